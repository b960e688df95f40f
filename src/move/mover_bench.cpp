// SPDX-License-Identifier: Apache-2.0
// The cost of the Mover itself, with backends that copy nothing: one-piece moves copied inline, the
// same through a device's queue, and pieces of a large move.
//
//   build/release/move_bench
#include <benchmark/benchmark.h>

#include <array>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "headrace/mover.h"

namespace headrace {
namespace {

constexpr NodeId kNode{0};
constexpr NodeId kOther{1};
constexpr EngineId kEngine{0};

class Nothing final : public Backend {
 public:
  // Shorter pieces end inside submit(), others in poll().
  explicit Nothing(Bytes inline_below) {
    facts_.name = "nothing";
    facts_.engines = {kEngine};
    facts_.max_piece = 1_GiB;
    facts_.max_in_flight = kRoom;
    facts_.inline_below = inline_below;
    facts_.completes_itself = inline_below > 0_B;
  }
  const Capabilities& capabilities() const override { return facts_; }
  Result<std::size_t> submit(std::span<const Piece> pieces, Completion& completion) override {
    const std::size_t count = pieces.size();
    if (facts_.completes_itself) {
      for (std::size_t i = 0; i < count; ++i) completion.complete(pieces[i].tag, {});
    } else {
      for (const Piece& piece : pieces) tags_[count_++] = piece.tag;
      completion_ = &completion;
    }
    return count;
  }
  std::size_t poll() override {
    const std::size_t found = std::exchange(count_, 0);
    for (std::size_t i = 0; i < found; ++i) completion_->complete(tags_[i], {});
    return found;
  }

 private:
  static constexpr std::size_t kRoom = 64;
  Capabilities facts_;
  std::array<std::uint64_t, kRoom> tags_;
  std::size_t count_ = 0;
  Completion* completion_ = nullptr;
};

struct Bench {
  Bench(Bytes bytes, Bytes inline_below, MoverOptions options = {})
      : size(bytes.value),
        a(std::make_unique_for_overwrite<std::byte[]>(size)),
        b(std::make_unique_for_overwrite<std::byte[]>(size)) {
    for (const NodeId node : {kNode, kOther}) {
      machine.nodes.push_back(
          {.id = node, .kind = NodeKind::dram, .reason = "bench", .name = "node"});
    }
    machine.engines = {
        {.id = kEngine, .kind = EngineKind::cpu, .name = "cpu0", .home = kNode, .reason = "bench"}};
    backends.add(std::make_unique<Nothing>(inline_below));
    mover.emplace(machine, backends, std::move(options));
  }
  // Never touched, so large sizes cost nothing.
  const std::size_t size;
  std::unique_ptr<std::byte[]> a;
  std::unique_ptr<std::byte[]> b;
  Machine machine;
  Backends backends;
  MemoryRange from{{a.get(), size}, kNode};
  MemoryRange to{{b.get(), size}, kNode};
  MemoryRange from_other{{a.get(), size}, kOther};
  std::optional<Mover> mover;
};

// copy() and the outcome of a one-piece move; each thread has a link of its own. Target: at most
// 150 ns.
void one_piece(benchmark::State& state) {
  static Bench bench(64_KiB, 1_GiB);
  const Extent from = whole(state.thread_index() % 2 == 0 ? bench.from : bench.from_other);
  for (auto _ : state) {
    const auto transfer = bench.mover->copy(whole(bench.to), from);
    benchmark::DoNotOptimize(transfer.done());
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(one_piece)->Threads(1)->Threads(2)->UseRealTime();

// Through a polled device: 32 moves, then one poll that finds all. Per piece; target: at most 200
// ns.
void queued_pieces(benchmark::State& state) {
  constexpr std::uint64_t kPieces = 32;
  Bench bench(64_KiB, 0_B, {.poller = false});
  for (auto _ : state) {
    for (std::uint64_t i = 0; i < kPieces; ++i) {
      static_cast<void>(bench.mover->copy({&bench.to, i * 64, 64_B}, {&bench.from, i * 64, 64_B}));
    }
    benchmark::DoNotOptimize(bench.mover->poll());
  }
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(kPieces));
}
BENCHMARK(queued_pieces);

// As one move of 32 pairs.
void batched_pieces(benchmark::State& state) {
  constexpr std::uint64_t kPieces = 32;
  Bench bench(64_KiB, 0_B, {.poller = false});
  std::vector<MovePair> pairs;
  for (std::uint64_t i = 0; i < kPieces; ++i) {
    pairs.push_back({{&bench.to, i * 64, 64_B}, {&bench.from, i * 64, 64_B}});
  }
  for (auto _ : state) {
    const auto transfer = bench.mover->copy(pairs);
    benchmark::DoNotOptimize(bench.mover->poll());
  }
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(kPieces));
}
BENCHMARK(batched_pieces);

// With a callback, as in the cache.
void one_piece_with_a_callback(benchmark::State& state) {
  Bench bench(64_KiB, 1_GiB);
  std::uint64_t told = 0;
  for (auto _ : state) {
    bench.mover->copy(whole(bench.to), whole(bench.from)).on_done([&](const auto&) { ++told; });
  }
  benchmark::DoNotOptimize(told);
}
BENCHMARK(one_piece_with_a_callback);

// Per piece of a large move.
void thousand_pieces(benchmark::State& state) {
  constexpr int kPieces = 1000;
  Bench bench(1_MiB * kPieces, 1_B, {.poller = false});
  for (auto _ : state) {
    const auto transfer = bench.mover->copy(whole(bench.to), whole(bench.from));
    while (!transfer.done()) bench.mover->poll();
  }
  state.SetItemsProcessed(state.iterations() * kPieces);
}
BENCHMARK(thousand_pieces);

}  // namespace
}  // namespace headrace
