// SPDX-License-Identifier: Apache-2.0
// Measures the software around a device: from pieces to descriptors, from records to outcomes.
//
// The portal only writes the record, as if the device were infinitely fast. HEADRACE: at most 100
// ns a copy, 40 ns in batches of 32.

#include <benchmark/benchmark.h>

#include <array>
#include <memory>
#include <vector>

#include "backend/dsa/dsa.h"

namespace headrace {
namespace {

class InstantPortal final : public dsa::Portal {
 public:
  explicit InstantPortal(bool batches) : batches_(batches) {}

  Result<std::size_t> submit(std::span<const dsa::Descriptor> descriptors) override {
    for (const dsa::Descriptor& descriptor : descriptors) {
      if (descriptor.opcode() == dsa::Opcode::batch) {
        const auto* list = reinterpret_cast<const dsa::Descriptor*>(descriptor.source);
        for (std::uint32_t i = 0; i < descriptor.size; ++i) answer(list[i]);
      }
      answer(descriptor);
    }
    return descriptors.size();
  }
  bool takes_batches() const override { return batches_; }
  std::string_view name() const override { return "instant"; }

 private:
  static void answer(const dsa::Descriptor& descriptor) {
    auto* const record = reinterpret_cast<dsa::Record*>(descriptor.record);
    __atomic_store_n(&record->status, std::uint8_t{1}, __ATOMIC_RELEASE);
  }

  const bool batches_;
};

class Counting final : public Completion {
 public:
  void complete(std::uint64_t, Status outcome) noexcept override { ended += outcome ? 1 : 0; }
  std::size_t ended = 0;
};

std::unique_ptr<Backend> open_instant(bool batches) {
  Machine machine;
  machine.nodes = {{.id = NodeId{0}, .kind = NodeKind::dram}};
  machine.engines = {{.id = EngineId{0}, .kind = EngineKind::dsa, .name = "dsa0"}};
  dsa::WorkQueue queue{.name = "wq0.0", .size = 128, .threshold = 128};
  queue.max_transfer = 1 << 30;
  queue.max_batch = 1024;
  for (const auto opcode : {dsa::Opcode::memmove, dsa::Opcode::batch}) queue.operations.set(opcode);
  dsa::Device device{.name = "dsa0", .operations = queue.operations, .queues = {queue}};
  DsaOptions options{.devices = {{device}}};
  options.open = [batches](const dsa::WorkQueue&) -> Result<std::unique_ptr<dsa::Portal>> {
    return std::make_unique<InstantPortal>(batches);
  };
  return std::move(*open_dsa(machine, {EngineId{0}}, options));
}

// Submits `at once` copies, then polls until they have ended.
void copies(benchmark::State& state) {
  const auto at_once = static_cast<std::size_t>(state.range(0));
  const auto backend = open_instant(state.range(1) != 0);
  std::vector<std::byte> bytes(1 << 20);
  const MemoryRange memory(bytes, NodeId{0});
  std::vector<Piece> pieces;
  for (std::size_t i = 0; i < at_once; ++i) {
    pieces.push_back({.from = {&memory, i * 4096, 4_KiB},
                      .to = {&memory, (1 << 19) + i * 4096, 4_KiB},
                      .engine = EngineId{0},
                      .tag = i});
  }
  Counting counting;
  for (auto _ : state) {
    benchmark::DoNotOptimize(backend->submit(pieces, counting));
    backend->poll();
  }
  const auto done = static_cast<std::int64_t>(counting.ended);
  state.SetItemsProcessed(done);
  state.counters["ns/copy"] = benchmark::Counter(
      static_cast<double>(done) * 1e-9, benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}

BENCHMARK(copies)->ArgNames({"at_once", "batches"})->ArgsProduct({{1, 8, 32}, {0, 1}});

}  // namespace
}  // namespace headrace
