// SPDX-License-Identifier: Apache-2.0
// Pages per node of a range by /proc/self/numa_maps, to check where().
#pragma once

#include <cstdint>
#include <fstream>
#include <map>
#include <optional>
#include <span>
#include <sstream>
#include <string>

#include "headrace/units.h"

namespace headrace::test {

// Base pages (4 KiB) per node of the mappings that begin in `range`; nullopt: the kernel has no
// such file.
inline std::optional<std::map<NodeId, std::uint64_t>> numa_maps(std::span<const std::byte> range) {
  std::ifstream file("/proc/self/numa_maps");
  if (!file) return std::nullopt;
  std::map<NodeId, std::uint64_t> pages;
  const auto begin = reinterpret_cast<std::uintptr_t>(range.data());
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string word;
    words >> word;
    const auto address = std::stoull(word, nullptr, 16);
    if (address < begin || address >= begin + range.size()) continue;
    std::map<NodeId, std::uint64_t> here;
    std::uint64_t kib = 4;
    while (words >> word) {
      const auto equals = word.find('=');
      if (equals == std::string::npos) continue;
      const std::string key = word.substr(0, equals), value = word.substr(equals + 1);
      if (key == "kernelpagesize_kB") kib = std::stoull(value);
      if (key.size() > 1 && key[0] == 'N' && key.find_first_not_of("0123456789", 1) == key.npos) {
        here[NodeId{static_cast<std::uint32_t>(std::stoul(key.substr(1)))}] += std::stoull(value);
      }
    }
    for (const auto& [node, count] : here) pages[node] += count * kib / 4;
  }
  return pages;
}

}  // namespace headrace::test
