// SPDX-License-Identifier: Apache-2.0
// The workloads of YCSB as sequences of operations.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "benchmarks/keyvalue/ycsb/keys.h"
#include "headrace/random.h"

namespace headrace::kv_bench {

enum class Kind : std::uint8_t { read, update, insert };

struct Operation {
  Kind kind = Kind::read;
  std::uint64_t record = 0;
};

// A core workload of YCSB with one field: an update writes the whole value.
struct Workload {
  char name = 'A';
  double reads = 1;      // share of operations
  bool inserts = false;  // true: the other operations insert; false: they update
  bool latest = false;   // true: newest records are most frequent; false: scrambled Zipf
};

// A: half updates; B: 5 % updates; C: only reads; D: 5 % inserts, reads of the latest. nullptr:
// unknown name.
const Workload* find_workload(std::string_view name);

// The same seed gives the same operations. Single-thread.
class Operations {
 public:
  // Requires: records > 1, all already stored.
  Operations(const Workload& workload, std::uint64_t records, std::uint64_t seed);
  Operation next();

 private:
  const Workload& workload_;
  Random random_;
  std::variant<ScrambledKeys, LatestKeys> keys_;
};

// The name of a record as in YCSB: "user" and its hash, without a sign.
std::string key_of(std::uint64_t record);

}  // namespace headrace::kv_bench
