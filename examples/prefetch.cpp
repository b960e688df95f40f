// SPDX-License-Identifier: Apache-2.0
// Reads a file through a cache that fetches its blocks ahead of their use.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "headrace/headrace.h"

using namespace headrace;

// The sum of all bytes of a file, read block by block as a query would.
Result<unsigned long> sum_of_bytes(const Machine& machine, Mover& mover, const char* path) {
  auto file = File::open(machine, path);
  if (!file) return Unexpected(file.error());
  const NodeId dram = machine.of_kind(NodeKind::dram).front()->id;
  auto cache = Cache::create(mover, {.budgets = {{dram, 16_MiB}}});
  if (!cache) return Unexpected(cache.error());

  std::vector<Extent> plan;  // the blocks in the order of their use
  const Extent all = whole(**file);
  for (std::uint64_t at = 0; at < all.length.value; at += (1_MiB).value) {
    plan.push_back(all.part(at, std::min(1_MiB, Bytes{all.length.value - at})));
  }
  const Prefetch ahead = (*cache)->prefetch(plan);
  unsigned long sum = 0;
  for (const Extent& extent : plan) {
    const Block block = (*cache)->access(extent, {.plan = &ahead});  // pinned until destroyed
    const auto bytes = block.wait();
    if (!bytes) return Unexpected(bytes.error());
    for (std::byte byte : *bytes) sum += std::to_integer<unsigned long>(byte);
  }
  return sum;
}

Result<unsigned long> sum_with_prefetch(const std::string& path) {
  const auto machine = Machine::discover({.storage = {path}});
  if (!machine) return Unexpected(machine.error());
  const auto backends = Backends::open(*machine);
  if (!backends) return Unexpected(backends.error());
  Mover mover(*machine, *backends);
  return sum_of_bytes(*machine, mover, path.c_str());
}

int main() {
  std::string path = std::filesystem::temp_directory_path() / "headrace-XXXXXX";
  const int made = mkstemp(path.data());
  if (made < 0) return 1;
  close(made);
  std::ofstream(path) << std::string(5'000'000, '\1');
  const auto sum = sum_with_prefetch(path);
  std::filesystem::remove(path);
  if (!sum) {
    std::fprintf(stderr, "%s\n", sum.error().message.c_str());
    return 1;
  }
  std::printf("sum of bytes: %lu\n", *sum);
  return *sum == 5'000'000 ? 0 : 1;
}
