// SPDX-License-Identifier: Apache-2.0
// What the program is told on its command line.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "headrace/result.h"
#include "workload/kv/live/drive.h"
#include "workload/kv/model/model.h"
#include "workload/kv/store/store.h"

namespace headrace::kv_bench {

// What the program does, once.
enum class Task : std::uint8_t {
  model,
  load,   // stores the records on a server
  drive,  // asks it
  place,  // sends a share of its pages to swap, after bringing all back, or to a node
  store,  // is a server itself, until it is ended
  serve,  // becomes a program that ends with whoever started it
};

struct Options {
  bool help = false;
  Task task = Task::model;
  ModelOptions model;
  DriveOptions drive;
  StoreOptions store;
  double share = 0;                  // of pages, out
  std::optional<int> to;             // a node; nothing: swap
  std::vector<const char*> program;  // to become
};

// Without the program's name. invalid: with what is allowed.
Result<Options> parse_options(std::span<const char* const> arguments);

// What --help prints.
std::string help_text();

}  // namespace headrace::kv_bench
