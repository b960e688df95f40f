#include "backend/cpu/cpu.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <deque>
#include <system_error>
#include <thread>

#include "core/check.h"
#include "core/fail.h"
#include "core/mutex.h"

namespace headrace {
namespace {

// A worker looks around at least this often, so that no wake-up lost can hang it.
constexpr Nanoseconds kNap = std::chrono::seconds{1};
// A piece above it holds a worker for about a second, too long to cancel or to share.
constexpr Bytes kMaxPiece = 8_GiB;

struct Job {
  Piece piece;
  Completion* completion = nullptr;
};

void copy_piece(const Piece& piece) {
  copy_bytes(piece.to.memory(), piece.from.memory(), piece.from.length.value, piece.hint);
}

// The CPUs of `node` on which this process may run.
CpuSet allowed_cpus(const Node* node) {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (node == nullptr || sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return {};
  CpuSet cpus;
  for (const unsigned cpu : node->cpus) {
    if (cpu < CPU_SETSIZE && CPU_ISSET(cpu, &allowed)) cpus.push_back(cpu);
  }
  return cpus;
}

void pin_here(const CpuSet& cpus) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const unsigned cpu : cpus) CPU_SET(cpu, &set);
  pthread_setaffinity_np(pthread_self(), sizeof(set), &set);
}

// The queue and the workers of one engine.
class Crew {
 public:
  Crew(EngineId engine, std::size_t max_in_flight)
      : engine_(engine), max_in_flight_(max_in_flight) {}
  ~Crew();

  Status start(unsigned workers, const CpuSet& cpus);
  // False when the queue is full.
  bool offer(const Piece& piece, Completion& completion) EXCLUDES(mutex_);
  EngineId engine() const { return engine_; }

 private:
  void work(CpuSet cpus);
  bool take(Job& job) EXCLUDES(mutex_);

  const EngineId engine_;
  const std::size_t max_in_flight_;
  std::vector<std::thread> threads_;

  Mutex mutex_;
  CondVar wake_;
  std::deque<Job> queue_ GUARDED_BY(mutex_);
  std::size_t in_flight_ GUARDED_BY(mutex_) = 0;
  bool ending_ GUARDED_BY(mutex_) = false;
};

Crew::~Crew() {
  {
    MutexLock lock(mutex_);
    ending_ = true;
  }
  wake_.notify_all();
  for (auto& thread : threads_) thread.join();
}

Status Crew::start(unsigned workers, const CpuSet& cpus) {
  try {
    for (unsigned i = 0; i < workers; ++i) threads_.emplace_back([this, cpus] { work(cpus); });
  } catch (const std::system_error&) {
    return fail(ErrorCode::exhausted, "cannot start copy threads; raise the limit on processes");
  }
  return {};
}

bool Crew::offer(const Piece& piece, Completion& completion) {
  {
    MutexLock lock(mutex_);
    if (in_flight_ >= max_in_flight_) return false;
    ++in_flight_;
    queue_.push_back({piece, &completion});
  }
  wake_.notify_one();
  return true;
}

bool Crew::take(Job& job) {
  MutexLock lock(mutex_);
  while (queue_.empty() && !ending_) wake_.wait_for(mutex_, kNap);
  if (queue_.empty()) return false;
  job = queue_.front();
  queue_.pop_front();
  return true;
}

void Crew::work(CpuSet cpus) {
  if (!cpus.empty()) pin_here(cpus);
  Job job;
  while (take(job)) {
    copy_piece(job.piece);
    {
      MutexLock lock(mutex_);
      --in_flight_;
    }
    job.completion->complete(job.piece.tag, {});
  }
}

class CpuBackend final : public Backend {
 public:
  CpuBackend(Capabilities capabilities, std::vector<std::unique_ptr<Crew>> crews)
      : capabilities_(std::move(capabilities)), crews_(std::move(crews)) {}

  const Capabilities& capabilities() const override { return capabilities_; }
  Result<std::size_t> submit(std::span<const Piece> pieces, Completion& completion) override;

 private:
  Crew& crew(EngineId engine) const {
    const auto found = std::ranges::find(crews_, engine, [](const auto& c) { return c->engine(); });
    CHECK(found != crews_.end());
    return **found;
  }

  const Capabilities capabilities_;
  const std::vector<std::unique_ptr<Crew>> crews_;
};

Result<std::size_t> CpuBackend::submit(std::span<const Piece> pieces, Completion& completion) {
  std::size_t accepted = 0;
  for (const Piece& piece : pieces) {
    if (auto status = check_piece(capabilities_, piece); !status) {
      if (accepted > 0) return accepted;
      return std::unexpected<Error>(status.error());
    }
    if (piece.from.length < capabilities_.inline_below) {
      copy_piece(piece);
      completion.complete(piece.tag, {});
    } else if (!crew(piece.engine).offer(piece, completion)) {
      break;
    }
    ++accepted;
  }
  return accepted;
}

}  // namespace

Result<std::unique_ptr<Backend>> open_cpu(const Machine& machine, std::vector<EngineId> engines) {
  return open_cpu(machine, std::move(engines), CpuOptions{});
}

Result<std::unique_ptr<Backend>> open_cpu(const Machine& machine, std::vector<EngineId> engines,
                                          const CpuOptions& options) {
  std::vector<std::unique_ptr<Crew>> crews;
  for (const EngineId id : engines) {
    const Engine* engine = machine.find(id);
    if (engine == nullptr || engine->kind != EngineKind::cpu) {
      return fail(ErrorCode::invalid, "engine {} is not the cores of a node", raw(id));
    }
    const CpuSet cpus = allowed_cpus(machine.find(engine->home));
    auto crew = std::make_unique<Crew>(id, options.max_in_flight);
    const unsigned usual = std::clamp<unsigned>(static_cast<unsigned>(cpus.size()), 1, 4);
    HEADRACE_TRY_STATUS(crew->start(options.workers == 0 ? usual : options.workers, cpus));
    crews.push_back(std::move(crew));
  }
  Capabilities capabilities{.name = "cpu",
                            .engines = std::move(engines),
                            .max_piece = kMaxPiece,
                            .max_in_flight = options.max_in_flight,
                            .min_efficient = options.inline_below,
                            .inline_below = options.inline_below,
                            .may_reorder = true};
  return std::make_unique<CpuBackend>(std::move(capabilities), std::move(crews));
}

}  // namespace headrace
