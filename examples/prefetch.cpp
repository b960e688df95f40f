// Reads a file through a cache that fetches its blocks ahead of their use.
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "headrace/headrace.h"

using namespace headrace;

// The sum of all bytes of a file, read block by block as a query would.
Result<unsigned long> sum_of_bytes(const Machine& machine, Mover& mover, const char* path) {
  auto file = File::open(machine, path);
  if (!file) return std::unexpected(file.error());
  auto cache = Cache::create(mover, {.budgets = {{machine.nodes.front().id, 16_MiB}}});
  if (!cache) return std::unexpected(cache.error());

  std::vector<Extent> plan;  // the blocks in the order of their use
  const Extent all = whole(**file);
  for (std::uint64_t at = 0; at < all.length.value; at += (1_MiB).value) {
    plan.push_back(all.part(at, std::min(1_MiB, Bytes{all.length.value - at})));
  }
  const Prefetch ahead = (*cache)->prefetch(plan);
  unsigned long sum = 0;
  for (const Extent& extent : plan) {
    const Block block = (*cache)->access(extent);  // pinned until the end of the scope
    const auto bytes = block.wait();
    if (!bytes) return std::unexpected(bytes.error());
    for (std::byte byte : *bytes) sum += std::to_integer<unsigned long>(byte);
  }
  return sum;
}

int main() {
  const auto path = std::filesystem::temp_directory_path() / "headrace-example.bin";
  std::ofstream(path) << std::string(5'000'000, '\1');
  const auto machine = Machine::discover({.storage = {path}});
  const auto backends = Backends::open(*machine);
  if (!machine || !backends) return 1;
  Mover mover(*machine, *backends);
  const auto sum = sum_of_bytes(*machine, mover, path.c_str());
  std::filesystem::remove(path);
  if (!sum) {
    std::fprintf(stderr, "%s\n", sum.error().message.c_str());
    return 1;
  }
  std::printf("sum of bytes: %lu\n", *sum);
  return *sum == 5'000'000 ? 0 : 1;
}
