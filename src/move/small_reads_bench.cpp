// SPDX-License-Identifier: Apache-2.0
// Small reads of a file by threads that wait for each, compared with pread on the same descriptors,
// and beside a scan by 1 MiB or 16 KiB. `HEADRACE_BENCH_FILE` names an existing large file
// (default: 256 MiB are written below the temporary directory). Timings are noisy on a busy
// machine:
//
//   HEADRACE_BENCH_FILE=file build/release/move_bench --benchmark_filter='small|scan'
//     --benchmark_enable_random_interleaving=true --benchmark_repetitions=15
#include <benchmark/benchmark.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <functional>
#include <thread>

#include "backend/storage/storage.h"
#include "headrace/file.h"
#include "headrace/mover.h"
#include "headrace/random.h"
#include "support/storage_bench.h"

namespace headrace {
namespace {

constexpr Bytes kScanInFlight = 8_MiB;
constexpr std::uint64_t kScanSteps = 256;  // per iteration
constexpr std::uint64_t kBlock = 4096;
constexpr std::uint64_t kLargest = 4;  // blocks in a small read
constexpr int kReadsPerThread = 2000;  // per iteration

// Page-aligned memory, touched.
class Memory {
 public:
  explicit Memory(std::size_t bytes) : bytes_(bytes) {
    map_ = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE,
                -1, 0);
  }
  ~Memory() { munmap(map_, bytes_); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  std::span<std::byte> bytes() const { return {static_cast<std::byte*>(map_), bytes_}; }

 private:
  void* map_;
  std::size_t bytes_;
};

struct SmallReadsRig {
  explicit SmallReadsRig(bool direct) {
    machine.name = "bench";
    machine.nodes = {
        {.id = NodeId{0}, .kind = NodeKind::dram, .reason = "bench", .name = "memory"},
        {.id = NodeId{1000}, .kind = NodeKind::storage, .reason = "bench", .name = "disk"}};
    machine.engines = {{.id = EngineId{0},
                        .kind = EngineKind::ssd,
                        .name = "disk",
                        .home = NodeId{1000},
                        .reason = "bench"}};
    if (auto opened = File::open(machine, test::bench_file(), {.direct = direct})) {
      file = *std::move(opened);
    }
    if (auto opened = open_storage(machine, {EngineId{0}})) backends.add(*std::move(opened));
    mover.emplace(machine, backends);
  }

  // One read by pread or by the Mover; returns false if it failed.
  bool read(bool plain, const MemoryRange& to, std::uint64_t offset, Bytes length) {
    if (plain) {
      const int fd = file->direct() ? file->direct_fd() : file->buffered_fd();
      return pread(fd, to.memory(), length.value, static_cast<off_t>(offset)) ==
             static_cast<ssize_t>(length.value);
    }
    return mover->copy({&to, 0, length}, {file.get(), offset, length}).wait().has_value();
  }

  Machine machine;
  std::unique_ptr<File> file;
  Backends backends;
  std::optional<Mover> mover;
};

// Random reads of 4 to 16 KiB by one thread until `more` returns false. Returns the latencies in
// microseconds.
std::vector<float> read_randomly(SmallReadsRig& rig, bool plain, std::uint64_t seed,
                                 const std::function<bool(std::size_t)>& more,
                                 std::atomic<bool>& failed) {
  const Memory memory(kLargest * kBlock);
  const MemoryRange to(memory.bytes(), NodeId{0});
  Random random(seed);
  const std::uint64_t blocks = rig.file->size().value / kBlock - kLargest;
  std::vector<float> latencies;
  while (more(latencies.size()) && !failed) {
    const std::uint64_t offset = random.below(blocks) * kBlock;
    const Bytes length{(1 + random.below(kLargest)) * kBlock};
    const Nanoseconds begin = system_clock().now();
    if (!rig.read(plain, to, offset, length)) failed = true;
    latencies.push_back(static_cast<float>((system_clock().now() - begin).count()) * 1e-3F);
  }
  return latencies;
}

double quantile(std::vector<float>& sorted, double q) {
  if (sorted.empty()) return 0;
  return sorted[static_cast<std::size_t>(q * static_cast<double>(sorted.size() - 1))];
}

void tell(benchmark::State& state, std::vector<float>& latencies, double cpu) {
  std::ranges::sort(latencies);
  state.counters["p50_us"] = quantile(latencies, 0.5);
  state.counters["p99_us"] = quantile(latencies, 0.99);
  state.counters["cpu_us"] = cpu * 1e6 / static_cast<double>(latencies.size());
  state.counters["reads_per_s"] =
      benchmark::Counter(static_cast<double>(latencies.size()), benchmark::Counter::kIsRate);
}

void small_reads(benchmark::State& state, bool plain) {
  SmallReadsRig rig(state.range(0) != 0);
  if (rig.file == nullptr) return state.SkipWithError("cannot open the file");
  const auto threads = static_cast<std::size_t>(state.range(1));
  std::vector<float> all;
  std::atomic<bool> failed = false;
  std::uint64_t seed = 0;
  const double before = test::cpu_seconds();
  for ([[maybe_unused]] auto _ : state) {
    std::vector<std::vector<float>> each(threads);
    std::vector<std::thread> running;
    for (std::size_t t = 0; t < threads; ++t) {
      running.emplace_back([&, t, mine = ++seed] {
        each[t] = read_randomly(
            rig, plain, mine, [](std::size_t n) { return n < kReadsPerThread; }, failed);
      });
    }
    for (std::thread& thread : running) thread.join();
    for (const auto& some : each) all.insert(all.end(), some.begin(), some.end());
  }
  if (failed) return state.SkipWithError("a read failed");
  tell(state, all, test::cpu_seconds() - before);
}

// Reads kScanSteps extents of `each` from `at` on, at most 32 or kScanInFlight bytes at a time.
bool scan(SmallReadsRig& rig, const MemoryRange& memory, Bytes each, std::uint64_t& at) {
  std::deque<Transfer> open;
  const std::uint64_t slots = std::min<std::uint64_t>(kScanInFlight / each, 32);
  for (std::uint64_t i = 0; i < kScanSteps; ++i) {
    if (open.size() == slots) {
      if (!open.front().wait()) return false;
      open.pop_front();
    }
    if (at + each.value > rig.file->size().value) at = 0;
    open.push_back(rig.mover->copy({&memory, i % slots * each.value, each},
                                   {rig.file.get(), at, each}, {.priority = Priority::prefetch}));
    at += each.value;
  }
  bool good = true;
  for (const Transfer& transfer : open) good = transfer.wait().has_value() && good;
  return good;
}

// A scan beside `range(0)` threads that read randomly.
void scan_beside(benchmark::State& state, bool plain) {
  SmallReadsRig rig(true);
  if (rig.file == nullptr) return state.SkipWithError("cannot open the file");
  const Memory memory(kScanInFlight.value);
  madvise(memory.bytes().data(), memory.bytes().size(), MADV_HUGEPAGE);
  const MemoryRange range(memory.bytes(), NodeId{0});
  std::atomic<bool> over = false;
  std::atomic<bool> failed = false;
  std::vector<std::vector<float>> each(static_cast<std::size_t>(state.range(0)));
  std::vector<std::thread> running;
  const double before = test::cpu_seconds();
  for (std::size_t t = 0; t < each.size(); ++t) {
    running.emplace_back([&, t] {
      each[t] = read_randomly(rig, plain, t, [&](std::size_t) { return !over; }, failed);
    });
  }
  const Bytes step{static_cast<std::uint64_t>(state.range(1)) << 10};
  std::uint64_t at = 0;
  for ([[maybe_unused]] auto _ : state) {
    if (!scan(rig, range, step, at)) failed = true;
  }
  over = true;
  for (std::thread& thread : running) thread.join();
  if (failed) return state.SkipWithError("a read failed");
  std::vector<float> all;
  for (const auto& some : each) all.insert(all.end(), some.begin(), some.end());
  state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations() * kScanSteps * step.value));
  if (!all.empty()) tell(state, all, test::cpu_seconds() - before);
}

void small_reads_pread(benchmark::State& state) { small_reads(state, true); }
void small_reads_mover(benchmark::State& state) { small_reads(state, false); }
void scan_beside_pread(benchmark::State& state) { scan_beside(state, true); }
void scan_beside_mover(benchmark::State& state) { scan_beside(state, false); }

void ways(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"direct", "threads"})->UseRealTime()->Unit(benchmark::kMillisecond);
  for (const int direct : {1, 0}) {
    for (const int threads : {1, 8}) bench->Args({direct, threads});
  }
}

BENCHMARK(small_reads_pread)->Apply(ways);
BENCHMARK(small_reads_mover)->Apply(ways);
void scans(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"threads", "KiB"})->UseRealTime()->Unit(benchmark::kMillisecond);
  for (const int threads : {0, 8}) {
    for (const int each : {1024, 16}) bench->Args({threads, each});
  }
}
BENCHMARK(scan_beside_pread)->Apply(scans);
BENCHMARK(scan_beside_mover)->Apply(scans);

}  // namespace
}  // namespace headrace
