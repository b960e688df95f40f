// SPDX-License-Identifier: Apache-2.0
// The program's command line.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "benchmarks/keyvalue/live/drive.h"
#include "benchmarks/keyvalue/store/store.h"
#include "headrace/result.h"

namespace headrace::kv_bench {

// The task of one run.
enum class Task : std::uint8_t {
  load,   // stores the records on a server
  drive,  // sends requests to it
  place,  // brings its pages back, then moves a share to swap
  store,  // is a server itself, until it is ended
  serve,  // becomes a program that ends with its starter
};

struct Options {
  bool help = false;
  Task task = Task::drive;
  std::string workload = "C";  // of YCSB, that `drive` sends
  DriveOptions drive;
  StoreOptions store;
  double share = 0;                  // of pages to move to swap
  std::vector<const char*> program;  // to become
};

// `arguments`: without the program's name. Errors: invalid: the message lists what is allowed.
Result<Options> parse_options(std::span<const char* const> arguments);

// The output of --help.
std::string help_text();

}  // namespace headrace::kv_bench
