// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/cache/stores/headrace_store.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "core/fail.h"
#include "headrace/file.h"

namespace headrace::cache_bench {
namespace {

constexpr NodeId kFastNode{0};

// One core between the node of the copies and that of the source.
Machine two_nodes() {
  Machine machine;
  machine.nodes = {
      {.id = kFastNode, .kind = NodeKind::dram, .reason = "bench", .name = "fast", .cpus = {0}},
      {.id = kSlowNode, .kind = NodeKind::cxl, .reason = "bench", .name = "slow"}};
  machine.engines = {{.id = EngineId{0},
                      .kind = EngineKind::cpu,
                      .name = "cpu",
                      .home = kFastNode,
                      .reason = "bench"}};
  return machine;
}

// memcpy in the calling thread, as for the peers.
class InlineBackend final : public Backend {
 public:
  const Capabilities& capabilities() const override { return capabilities_; }
  Result<std::size_t> submit(std::span<const Piece> pieces, Completion& completion) override {
    for (const Piece& piece : pieces) {
      std::memcpy(piece.to.memory(), piece.from.memory(), piece.from.length.value);
      completion.complete(piece.tag, Status{});
    }
    return pieces.size();
  }

 private:
  const Capabilities capabilities_{.name = "inline",
                                   .engines = {EngineId{0}},
                                   .max_piece = 1_GiB,
                                   .max_in_flight = 1024,
                                   .inline_below = 1_GiB,
                                   .note = "memcpy in the calling thread"};
};

Result<NodeId> node_with_cpus(const Machine& machine) {
  for (const Node& node : machine.nodes) {
    if (node.byte_addressable() && !node.cpus.empty()) return node.id;
  }
  return fail(ErrorCode::absent, "no memory near a CPU; headrace topo lists the nodes");
}

}  // namespace

template <std::size_t kShards>
Result<std::unique_ptr<HeadraceStoreOf<kShards>>> HeadraceStoreOf<kShards>::make(
    const Source& source, Bytes budget, CacheOptions options) {
  const bool in_memory = source.memory(0) != nullptr;
  bool writable = false;
  Machine machine = two_nodes();
  Backends backends;
  if (in_memory) {
    backends.add(std::make_unique<InlineBackend>());
  } else {
    const auto& file = static_cast<const File&>(source.object());
    writable = file.writable();
    DiscoverOptions where;
    where.storage = {file.path()};
    HEADRACE_TRY(machine, Machine::discover(where));
    HEADRACE_TRY(backends, Backends::open(machine));
  }
  std::unique_ptr<HeadraceStoreOf> store(
      new HeadraceStoreOf(source, std::move(machine), std::move(backends)));
  HEADRACE_TRY(const NodeId node, node_with_cpus(store->machine_));
  MoverOptions moves;
  if (in_memory) moves.route = place::one;
  store->mover_ = std::make_unique<Mover>(store->machine_, store->backends_, std::move(moves));
  options.budgets = {{node, budget}};
  options.reserve = true;
  options.shards = kShards;
  options.writable = writable;
  if (in_memory) options.placement = place::always(node);
  HEADRACE_TRY(store->cache_, Cache::create(*store->mover_, std::move(options)));
  return store;
}

template <std::size_t kShards>
Prefetch HeadraceStoreOf<kShards>::plan(const Source& source, std::uint64_t first,
                                        std::uint64_t count) {
  std::vector<Extent> extents(count);
  for (std::uint64_t i = 0; i < count; ++i) extents[i] = source.extent(first + i);
  return cache_->prefetch(extents);
}

template class HeadraceStoreOf<0>;
template class HeadraceStoreOf<16>;

}  // namespace headrace::cache_bench
