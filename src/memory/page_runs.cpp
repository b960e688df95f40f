// SPDX-License-Identifier: Apache-2.0
#include "memory/page_runs.h"

#include <algorithm>
#include <limits>
#include <numeric>

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
  const auto turns = [&] { return (mapped - 1_B) / turn(nodes, unit) + 1; };  // the last is short
  while (times(turns(), nodes.size()) > max_runs) unit = unit * 2;
  return unit;
}

std::vector<PageRun> cut_into_runs(Bytes mapped, Bytes unit, std::span<const NodeWeight> nodes) {
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

std::optional<std::vector<Stage>> split_by_space(Bytes mapped, Bytes unit,
                                                 std::span<const NodeWeight> nodes,
                                                 std::span<const Bytes> space,
                                                 std::span<const Bytes> other_space) {
  CHECK(space.size() == nodes.size() && !nodes.empty());
  std::vector<Stage> stages;
  Bytes left = mapped;
  const auto add = [&](std::vector<std::size_t> to, Bytes bytes) {
    if (bytes == Bytes{0}) return;
    left -= bytes;
    stages.push_back({std::move(to), bytes});
  };
  std::vector<Bytes> free(space.begin(), space.end());
  std::vector<std::size_t> with_room(nodes.size());
  std::iota(with_room.begin(), with_room.end(), std::size_t{0});
  const auto turns_on = [&](std::size_t i) { return free[i] / unit / nodes[i].weight; };
  while (left > Bytes{0} && with_room.size() > 1) {
    const std::uint64_t turns = turns_on(*std::ranges::min_element(with_room, {}, turns_on));
    Bytes of_turn;
    for (const std::size_t i : with_room) {
      of_turn += unit * nodes[i].weight;
      free[i] -= unit * (turns * nodes[i].weight);
    }
    add(with_room, std::min(left, Bytes{times(turns, of_turn.value)}));
    std::erase_if(with_room, [&](std::size_t i) { return turns_on(i) == 0; });
  }
  if (with_room.size() == 1) add(with_room, std::min(left, free[with_room.front()]));
  for (std::size_t i = 0; i < other_space.size(); ++i) {
    add({nodes.size() + i}, std::min(left, other_space[i]));
  }
  if (left > Bytes{0}) return std::nullopt;
  return stages;
}

std::vector<PageRun> cut_into_runs(std::span<const Stage> stages, Bytes unit,
                                   std::span<const NodeWeight> nodes) {
  std::vector<PageRun> runs;
  std::uint64_t begin = 0;
  for (const Stage& stage : stages) {
    std::vector<NodeWeight> weighted;
    for (const std::size_t i : stage.nodes) {
      weighted.push_back(i < nodes.size() ? nodes[i] : NodeWeight{});
    }
    for (const PageRun& run : cut_into_runs(stage.bytes, unit, weighted)) {
      runs.push_back({begin + run.offset, run.length, stage.nodes[run.node]});
    }
    begin += stage.bytes.value;
  }
  return runs;
}

std::vector<Bytes> distributed_shares(Bytes mapped, Bytes unit, std::span<const NodeWeight> nodes) {
  const std::uint64_t units = (mapped.value + unit.value - 1) / unit.value;
  const std::uint64_t sum = sum_of_weights(nodes);
  std::vector<Bytes> shares;
  for (const NodeWeight& each : nodes) {
    // The whole turns, and of a short turn at most the node's own part.
    const std::uint64_t rest = std::min<std::uint64_t>(units % sum, each.weight);
    shares.push_back(unit * (units / sum * each.weight + rest));
  }
  return shares;
}

bool same_weights(std::span<const NodeWeight> nodes, std::span<const NodeWeight> table) {
  return std::ranges::all_of(
      nodes, [&](const NodeWeight& each) { return std::ranges::find(table, each) != table.end(); });
}

bool plain_interleave(std::span<const NodeWeight> nodes) {
  return std::ranges::all_of(nodes, [](const NodeWeight& each) { return each.weight == 1; });
}

}  // namespace headrace
