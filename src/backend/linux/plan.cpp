#include "backend/linux/plan.h"

#include <algorithm>
#include <limits>

#include "core/check.h"

namespace headrace {
namespace {

std::uint64_t times(std::uint64_t a, std::uint64_t b) {
  std::uint64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? std::numeric_limits<std::uint64_t>::max()
                                                : product;
}

std::uint64_t sum_of_weights(std::span<const NodeWeight> nodes) {
  std::uint64_t sum = 0;
  for (const NodeWeight& each : nodes) sum += each.weight;
  return sum;
}

}  // namespace

Bytes turn(std::span<const NodeWeight> nodes, Bytes unit) {
  return {times(sum_of_weights(nodes), unit.value)};
}

Bytes choose_unit(Bytes mapped, Bytes page, std::span<const NodeWeight> nodes,
                  std::uint64_t max_runs) {
  CHECK(mapped.value > 0 && page.value > 0 && max_runs >= nodes.size());
  Bytes unit = page;
  const auto turns = [&] { return (mapped - 1_B) / turn(nodes, unit) + 1; };  // the last cut short
  while (times(turns(), nodes.size()) > max_runs) unit = unit * 2;
  return unit;
}

std::vector<PageRun> plan_runs(Bytes mapped, Bytes unit, std::span<const NodeWeight> nodes) {
  CHECK(unit.value > 0 && !nodes.empty());
  if (nodes.size() == 1) return {{0, mapped.value, 0}};
  std::vector<PageRun> runs;
  std::size_t node = 0;
  for (std::uint64_t offset = 0; offset < mapped.value;) {
    const std::uint64_t wanted = times(nodes[node].weight, unit.value);
    const std::uint64_t length = std::min(wanted, mapped.value - offset);
    runs.push_back({offset, length, node});
    offset += length;
    node = (node + 1) % nodes.size();
  }
  return runs;
}

std::vector<Bytes> bytes_by_node(std::span<const PageRun> runs, std::size_t count) {
  std::vector<Bytes> bytes(count);
  for (const PageRun& run : runs) bytes[run.node] += Bytes{run.length};
  return bytes;
}

Bytes interleave_share(Bytes mapped, Bytes unit, std::size_t count) {
  const std::uint64_t units = (mapped.value + unit.value - 1) / unit.value;
  return unit * ((units + count - 1) / count);
}

bool plain_interleave(std::span<const NodeWeight> nodes) {
  return std::ranges::all_of(nodes, [](const NodeWeight& each) { return each.weight == 1; });
}

}  // namespace headrace
