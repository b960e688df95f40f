// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/keyvalue/ycsb/operations.h"

#include <fmt/format.h>

#include <array>

namespace headrace::kv_bench {
namespace {

constexpr std::array kWorkloads = {
    Workload{'A', 0.5, false, false},
    Workload{'B', 0.95, false, false},
    Workload{'C', 1, false, false},
    Workload{'D', 0.95, true, true},
};

std::variant<ScrambledKeys, LatestKeys> keys_for(const Workload& workload, std::uint64_t records) {
  if (workload.latest) return LatestKeys(records);
  return ScrambledKeys(records);
}

}  // namespace

const Workload* find_workload(std::string_view name) {
  for (const Workload& workload : kWorkloads) {
    if (name == std::string_view(&workload.name, 1)) return &workload;
  }
  return nullptr;
}

Operations::Operations(const Workload& workload, std::uint64_t records, std::uint64_t seed)
    : workload_(workload), random_(seed), keys_(keys_for(workload, records)) {}

Operation Operations::next() {
  const bool read = random_.chance(workload_.reads);
  if (!read && workload_.inserts) return {Kind::insert, std::get<LatestKeys>(keys_).insert()};
  const std::uint64_t record =
      std::visit([this](const auto& keys) { return keys.draw(random_); }, keys_);
  return {read ? Kind::read : Kind::update, record};
}

std::string key_of(std::uint64_t record) {
  const std::uint64_t hash = fnv1a(record);
  return fmt::format("user{}", hash >> 63 != 0 ? 0 - hash : hash);
}

}  // namespace headrace::kv_bench
