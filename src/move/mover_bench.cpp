// What the Mover itself costs: whole one-piece moves and the pieces of a large one, through a
// backend that copies nothing and completes inside submit().
//
//   build/release/move_bench
#include <benchmark/benchmark.h>

#include <memory>
#include <optional>

#include "headrace/mover.h"

namespace headrace {
namespace {

constexpr NodeId kNode{0};
constexpr EngineId kEngine{0};

class Nothing final : public Backend {
 public:
  Nothing() {
    facts_.name = "nothing";
    facts_.engines = {kEngine};
    facts_.max_piece = 1_GiB;
    facts_.max_in_flight = 64;
  }
  const Capabilities& capabilities() const override { return facts_; }
  Result<std::size_t> submit(std::span<const Piece> pieces, Completion& completion) override {
    const std::size_t count = pieces.size();
    for (std::size_t i = 0; i < count; ++i) completion.complete(pieces[i].tag, {});
    return count;
  }

 private:
  Capabilities facts_;
};

struct Bench {
  explicit Bench(Bytes bytes)
      : size(bytes.value),
        a(std::make_unique_for_overwrite<std::byte[]>(size)),
        b(std::make_unique_for_overwrite<std::byte[]>(size)) {
    machine.nodes = {{.id = kNode, .kind = NodeKind::dram, .reason = "bench", .name = "node 0"}};
    machine.engines = {
        {.id = kEngine, .kind = EngineKind::cpu, .name = "cpu0", .home = kNode, .reason = "bench"}};
    backends.add(std::make_unique<Nothing>());
    mover.emplace(machine, backends);
  }
  // Never touched, so large ones cost nothing.
  const std::size_t size;
  std::unique_ptr<std::byte[]> a;
  std::unique_ptr<std::byte[]> b;
  Machine machine;
  Backends backends;
  MemoryRange from{{a.get(), size}, kNode};
  MemoryRange to{{b.get(), size}, kNode};
  std::optional<Mover> mover;
};

// copy() and the outcome of a move of one piece. Target: at most 1 us.
void one_piece(benchmark::State& state) {
  static Bench bench(64_KiB);
  for (auto _ : state) {
    const auto outcome = bench.mover->copy(whole(bench.to), whole(bench.from)).poll();
    benchmark::DoNotOptimize(outcome->has_value());
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(one_piece)->Threads(1)->Threads(2)->UseRealTime();

// As the cache uses it: with a callback.
void one_piece_with_a_callback(benchmark::State& state) {
  Bench bench(64_KiB);
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
  Bench bench(1_MiB * kPieces);
  for (auto _ : state) {
    const auto outcome = bench.mover->copy(whole(bench.to), whole(bench.from)).poll();
    benchmark::DoNotOptimize(outcome->has_value());
  }
  state.SetItemsProcessed(state.iterations() * kPieces);
}
BENCHMARK(thousand_pieces);

}  // namespace
}  // namespace headrace
