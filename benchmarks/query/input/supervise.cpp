// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/query/input/supervise.h"

#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "core/fail.h"
#include "core/mutex.h"
#include "core/thread.h"
#include "core/waiting/duration.h"
#include "core/waiting/patience.h"

namespace headrace {
namespace {

// Owned by the caller and the work together. Only the caller uses `waiting`: work left behind wakes
// no thread.
struct Shared {
  Shared(std::function<Status()> to_do, Waiting& by) : work(std::move(to_do)), waiting(&by) {}

  const std::function<Status()> work;
  Status outcome;  // written before `ended` becomes 1
  std::atomic<std::uint32_t> ended{0};
  Mutex mutex;
  Waiting* waiting GUARDED_BY(mutex);  // nullptr: the caller has left

  void end() {
    ended = 1;
    const MutexLock lock(mutex);
    if (waiting != nullptr) waiting->wake_all(ended);
  }
  void leave() {
    const MutexLock lock(mutex);
    waiting = nullptr;
  }
};

class Watch {
 public:
  explicit Watch(const Supervision& supervision)
      : supervision_(supervision),
        stall_(supervision.clock, supervision.waiting, kStallBound),
        seen_(supervision.progress()) {}

  // Waits until the work has ended (true) or must be left behind (false).
  bool until(const std::atomic<std::uint32_t>& ended, std::atomic<bool>& told) {
    while (ended.load() == 0) {
      if (!why_ && (why_ = reason())) {
        told = true;
        grace_.emplace(supervision_.clock, supervision_.waiting, kGrace);
      }
      if (grace_ && grace_->over()) return false;
      (grace_ ? *grace_ : stall_).sleep(ended, 0, kWaitStep);
    }
    return true;
  }
  // Why it was stopped.
  const std::optional<Error>& why() const { return why_; }

 private:
  std::optional<Error> reason() {
    if (supervision_.stop()) return Error{ErrorCode::cancelled, "stopped"};
    const std::uint64_t now = supervision_.progress();
    if (std::exchange(seen_, now) != now) stall_.renew();
    if (!stall_.over()) return std::nullopt;
    return fail(ErrorCode::timed_out,
                "nothing came from {} for {}; the kernel log (dmesg) says more",
                supervision_.source, to_string(kStallBound))
        .error();
  }

  const Supervision& supervision_;
  Patience stall_;
  std::optional<Patience> grace_;
  std::uint64_t seen_;
  std::optional<Error> why_;
};

}  // namespace

Status supervise(const Supervision& supervision, std::atomic<bool>& told,
                 std::function<Status()> work) {
  if (supervision.stop()) return fail(ErrorCode::cancelled, "stopped");
  const auto shared = std::make_shared<Shared>(std::move(work), supervision.waiting);
  const auto body = [shared] {
    shared->outcome = shared->work();
    shared->end();
  };
  HEADRACE_TRY(std::thread thread, start_thread("headrace-work", body));
  Watch watch(supervision);
  if (!watch.until(shared->ended, told)) {
    shared->leave();
    thread.detach();
    return Unexpected(*watch.why());
  }
  join(thread);
  const Status& outcome = shared->outcome;
  if (!outcome && outcome.error().code == ErrorCode::cancelled && watch.why()) {
    return Unexpected(*watch.why());
  }
  return outcome;
}

}  // namespace headrace
