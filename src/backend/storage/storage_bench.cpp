// SPDX-License-Identifier: Apache-2.0
// Measures the read rate of the storage backend by request size and depth, compared with one thread
// of pread. `HEADRACE_BENCH_FILE` names an existing large file; without it 256 MiB are written
// below the temporary directory. docs/design/storage.md has the command to compare with fio.
#include <benchmark/benchmark.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>

#include "backend/storage/storage.h"
#include "core/mutex.h"
#include "headrace/file.h"
#include "support/storage_bench.h"

namespace headrace {
namespace {

constexpr Bytes kPiece = 1_MiB;
constexpr std::uint64_t kInFlight = 16;  // pieces, as fio --bs=1M --iodepth=16

Machine machine() {
  Machine m;
  m.name = "bench";
  m.nodes = {{.id = NodeId{0}, .kind = NodeKind::dram, .reason = "bench", .name = "memory"},
             {.id = NodeId{1000}, .kind = NodeKind::storage, .reason = "bench", .name = "disk"}};
  m.engines = {{.id = EngineId{0},
                .kind = EngineKind::ssd,
                .name = "disk",
                .home = NodeId{1000},
                .reason = "bench"}};
  return m;
}

// Keeps kInFlight pieces in flight until the file has been read; each has its own slot.
class Stream final : public Completion {
 public:
  Stream(Backend& backend, const File& file, const MemoryRange& memory)
      : backend_(backend), file_(file), memory_(memory), total_(file.size() / kPiece) {}

  bool run() {
    for (std::uint64_t slot = 0; slot < std::min(kInFlight, total_); ++slot) send(slot);
    const MutexLock lock(mutex_);
    while (done_ < total_) changed_.wait_for(mutex_, std::chrono::seconds{1});
    return failed_ == 0;
  }

  void complete(std::uint64_t slot, Status outcome) noexcept override {
    send(slot);
    const MutexLock lock(mutex_);
    failed_ += outcome ? 0 : 1;
    if (++done_ == total_) changed_.notify_one();
  }

 private:
  void send(std::uint64_t slot) {
    const std::uint64_t at = next_.fetch_add(1);
    if (at >= total_) return;
    const Piece piece{.from = {&file_, at * kPiece.value, kPiece},
                      .to = {&memory_, slot * kPiece.value, kPiece},
                      .engine = EngineId{0},
                      .tag = slot};
    static_cast<void>(backend_.submit({&piece, 1}, *this).has_value());
  }

  Backend& backend_;
  const File& file_;
  const MemoryRange& memory_;
  const std::uint64_t total_;
  std::atomic<std::uint64_t> next_{0};
  Mutex mutex_;
  CondVar changed_;
  std::uint64_t done_ GUARDED_BY(mutex_) = 0;
  std::uint64_t failed_ GUARDED_BY(mutex_) = 0;
};

void run_stream(benchmark::State& state, const StorageOptions& options, std::size_t skew,
                bool huge) {
  const Machine m = machine();
  const auto file = File::open(m, test::bench_file());
  auto backend = open_storage(m, {EngineId{0}}, options);
  if (!file || !backend) return state.SkipWithError("cannot open the file or the backend");
  const std::size_t bytes = (kInFlight + 2) * kPiece.value;
  void* map = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  madvise(map, bytes, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
  const MemoryRange memory({static_cast<std::byte*>(map) + skew, bytes - skew}, NodeId{0});
  const double before = test::cpu_seconds();
  for ([[maybe_unused]] auto _ : state) {
    if (!Stream(**backend, **file, memory).run()) return state.SkipWithError("a piece failed");
  }
  const auto moved = static_cast<double>(state.iterations()) *
                     static_cast<double>((*file)->size() / kPiece * kPiece.value);
  state.SetBytesProcessed(static_cast<std::int64_t>(moved));
  state.counters["cpu_us_per_MiB"] = (test::cpu_seconds() - before) * 1e6 / (moved / (1 << 20));
  munmap(map, bytes);
}

void aligned(benchmark::State& state) {
  run_stream(state,
             {.queue_depth = static_cast<std::size_t>(state.range(1)),
              .request = Bytes{static_cast<std::uint64_t>(state.range(0)) << 10}},
             0, state.range(2) != 0);
}
void bounced(benchmark::State& state) { run_stream(state, {}, 1, true); }
void threads(benchmark::State& state) {
  run_stream(state,
             {.queue = StorageQueue::threads, .threads = static_cast<std::size_t>(state.range(0))},
             0, true);
}

BENCHMARK(aligned)
    ->ArgNames({"request_KiB", "depth", "huge"})
    ->Args({128, 128, 1})
    ->Args({256, 64, 1})
    ->Args({512, 64, 1})
    ->Args({1024, 16, 1})
    ->Args({512, 64, 0})
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);
BENCHMARK(bounced)->UseRealTime()->Unit(benchmark::kMillisecond);
BENCHMARK(threads)->ArgName("threads")->Arg(4)->Arg(16)->UseRealTime()->Unit(
    benchmark::kMillisecond);

}  // namespace
}  // namespace headrace
