// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/cpu.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <thread>

#include "backend/cpu/calibration.h"
#include "core/affinity.h"
#include "core/check.h"
#include "core/fail.h"
#include "core/fork.h"
#include "core/mutex.h"
#include "core/thread.h"

namespace headrace {
namespace {

// A worker checks the queue at least this often, so that a lost wake-up cannot hang it.
constexpr Nanoseconds kNap = std::chrono::seconds{1};
// A piece of this size occupies a worker for about a second. Larger pieces would let the destructor
// wait, and a cancelled move write, for too long.
constexpr Bytes kMaxPiece = 8_GiB;
// See CpuOptions::workers.
constexpr std::size_t kUsualWorkers = 4;

struct QueuedPiece {
  Piece piece;
  Completion* completion = nullptr;
};

void copy_piece(const Piece& piece) {
  copy_bytes(piece.to.memory(), piece.from.memory(), piece.from.length.value, piece.hint);
}

// The CPUs of `node` that this process may use.
CpuSet allowed_cpus_of(const Node* node) {
  if (node == nullptr) return {};
  CpuSet cpus;
  std::ranges::set_intersection(node->cpus, allowed_cpus(), std::back_inserter(cpus));
  return cpus;
}

// The queue and the workers of one engine.
class EngineWorkers {
 public:
  EngineWorkers(EngineId engine, std::size_t max_in_flight)
      : engine_(engine), max_in_flight_(max_in_flight) {}
  ~EngineWorkers();

  // Starts the workers, pinned to `cpus` unless it is empty. Called once.
  Status start(std::size_t workers, const CpuSet& cpus);
  // False if the queue is full.
  bool offer(const Piece& piece, Completion& completion) EXCLUDES(mutex_);
  EngineId engine() const { return engine_; }
  std::size_t count() const { return threads_.size(); }
  bool pinned() const { return pinned_; }

 private:
  void work() EXCLUDES(mutex_);
  // Waits for the next piece; false if no more will come.
  bool take(QueuedPiece& next) EXCLUDES(mutex_);

  // Immutable after start().
  const EngineId engine_;
  const std::size_t max_in_flight_;
  std::vector<std::thread> threads_;
  bool pinned_ = true;

  Mutex mutex_;
  CondVar wake_;
  std::deque<QueuedPiece> queue_ GUARDED_BY(mutex_);
  std::size_t in_flight_ GUARDED_BY(mutex_) = 0;  // queued or being copied
  bool ending_ GUARDED_BY(mutex_) = false;
};

EngineWorkers::~EngineWorkers() {
  {
    MutexLock lock(mutex_);
    ending_ = true;
  }
  wake_.notify_all();
  for (auto& thread : threads_) join(thread);
}

Status EngineWorkers::start(std::size_t workers, const CpuSet& cpus) {
  for (std::size_t i = 0; i < workers; ++i) {
    HEADRACE_TRY(std::thread thread, start_thread("headrace-cpu", [this] { work(); }));
    pinned_ = pin(thread.native_handle(), cpus) && pinned_;
    threads_.push_back(std::move(thread));
  }
  return {};
}

bool EngineWorkers::offer(const Piece& piece, Completion& completion) {
  {
    MutexLock lock(mutex_);
    if (in_flight_ >= max_in_flight_) return false;
    queue_.push_back({piece, &completion});
    ++in_flight_;
  }
  wake_.notify_one();
  return true;
}

bool EngineWorkers::take(QueuedPiece& next) {
  MutexLock lock(mutex_);
  while (queue_.empty() && !ending_) wake_.wait_for(mutex_, kNap);
  if (queue_.empty()) return false;
  next = queue_.front();
  queue_.pop_front();
  return true;
}

void EngineWorkers::work() {
  QueuedPiece next;
  while (take(next)) {
    copy_piece(next.piece);
    {
      // Before the report, whose receiver may submit again into the free place.
      MutexLock lock(mutex_);
      --in_flight_;
    }
    next.completion->complete(next.piece.tag, {});
  }
}

class CpuBackend final : public Backend {
 public:
  CpuBackend(Capabilities capabilities, std::vector<std::unique_ptr<EngineWorkers>> engines)
      : capabilities_(std::move(capabilities)), engines_(std::move(engines)) {}
  ~CpuBackend() override {
    if (!origin_.here()) abandon(std::move(engines_));
  }

  const Capabilities& capabilities() const override { return capabilities_; }
  Result<std::size_t> submit(std::span<const Piece> pieces, Completion& completion) override;

 private:
  Status check(const Piece& piece) const;
  EngineWorkers& workers_of(EngineId engine) const {
    const auto found =
        std::ranges::find(engines_, engine, [](const auto& e) { return e->engine(); });
    CHECK(found != engines_.end());
    return **found;
  }

  const Origin origin_;
  const Capabilities capabilities_;
  std::vector<std::unique_ptr<EngineWorkers>> engines_;  // constant after construction
};

Status CpuBackend::check(const Piece& piece) const {
  HEADRACE_TRY_STATUS(check_piece(capabilities_, piece));
  if (piece.from.memory() == nullptr || piece.to.memory() == nullptr) {
    return fail(ErrorCode::unsupported,
                "cores copy only between memories; give engine {} no file and no GPU memory",
                raw(piece.engine));
  }
  return {};
}

Result<std::size_t> CpuBackend::submit(std::span<const Piece> pieces, Completion& completion) {
  HEADRACE_TRY_STATUS(origin_.check("the cpu backend"));
  // Checks all pieces first: an error means that none was accepted.
  for (const Piece& piece : pieces) HEADRACE_TRY_STATUS(check(piece));
  std::size_t accepted = 0;
  for (const Piece& piece : pieces) {
    if (piece.from.length.value == 0 || piece.from.length < capabilities_.inline_below) {
      copy_piece(piece);
      completion.complete(piece.tag, {});
    } else if (!workers_of(piece.engine).offer(piece, completion)) {
      break;
    }
    ++accepted;
  }
  return accepted;
}

// "2 workers per engine, pinned; engine 1 unpinned: ..."
std::string note_of(const std::vector<std::unique_ptr<EngineWorkers>>& engines) {
  std::string counts;
  std::string unpinned;
  for (const auto& each : engines) {
    counts += fmt::format("{}{}", counts.empty() ? "" : ", ", each->count());
    if (each->pinned()) continue;
    unpinned += fmt::format("{}{}", unpinned.empty() ? "" : ", ", raw(each->engine()));
  }
  std::string note = fmt::format("workers per engine: {}", counts);
  if (!unpinned.empty()) {
    note += fmt::format("; not pinned: engine {}, whose CPUs this process cannot use", unpinned);
  }
  const std::string kernel = override_note();
  return kernel.empty() ? note : fmt::format("{}; {}", note, kernel);
}

Result<std::unique_ptr<EngineWorkers>> start_workers(const Machine& machine, EngineId id,
                                                     const CpuOptions& options) {
  const Engine* engine = machine.find(id);
  if (engine == nullptr || engine->kind != EngineKind::cpu) {
    return fail(ErrorCode::invalid, "engine {} of this machine is not the cores of a node; {}",
                raw(id), "give open_cpu engines of kind cpu");
  }
  const CpuSet cpus = allowed_cpus_of(machine.find(engine->home));
  const std::size_t usual = std::clamp<std::size_t>(cpus.size(), 1, kUsualWorkers);
  auto workers = std::make_unique<EngineWorkers>(id, options.max_in_flight);
  HEADRACE_TRY_STATUS(workers->start(options.workers == 0 ? usual : options.workers, cpus));
  return workers;
}

}  // namespace

Result<std::unique_ptr<Backend>> open_cpu(const Machine& machine, std::vector<EngineId> engines) {
  return open_cpu(machine, std::move(engines), CpuOptions{});
}

Result<std::unique_ptr<Backend>> open_cpu(const Machine& machine, std::vector<EngineId> engines,
                                          const CpuOptions& options) {
  CHECK(options.max_in_flight > 0);
  std::vector<std::unique_ptr<EngineWorkers>> started;
  for (const EngineId id : engines) {
    HEADRACE_TRY(auto workers, start_workers(machine, id, options));
    started.push_back(std::move(workers));
  }
  Capabilities capabilities{.name = "cpu",
                            .engines = std::move(engines),
                            .max_piece = kMaxPiece,
                            .max_in_flight = options.max_in_flight,
                            .min_efficient = options.inline_below,
                            .inline_below = options.inline_below,
                            .note = note_of(started)};
  return std::make_unique<CpuBackend>(std::move(capabilities), std::move(started));
}

}  // namespace headrace
