#include "move/transfer.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include "core/check.h"
#include "core/fail.h"
#include "move/core.h"

namespace headrace {
namespace {

// Reading an eventfd in semaphore mode takes one from its count, so with this many it stays
// readable even if somebody reads it. (2^64 - 2 is the most an eventfd holds, eventfd(2).)
constexpr std::uint64_t kForEver = ~std::uint64_t{0} - 1;

void signal(int descriptor) {
  const std::uint64_t count = kForEver;
  CHECK(write(descriptor, &count, sizeof count) == sizeof count);
}

Result<int> open_eventfd() {
  const int descriptor = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK | EFD_SEMAPHORE);
  if (descriptor < 0) {
    return fail(ErrorCode::exhausted,
                "no file descriptor left for the event of a move; raise the limit with ulimit -n");
  }
  return descriptor;
}

}  // namespace

Move::~Move() {
  if (core != nullptr && !core->origin().here()) abandon(std::move(thens));
  if (descriptor >= 0) close(descriptor);
}

std::vector<Then> Move::finish(Result<MoveStats> result, Waiting& waiting) {
  std::vector<Then> told;
  std::uint32_t before = kRunning;
  {
    MutexLock lock(mutex);
    outcome.emplace(std::move(result));
    before = word.exchange(kDone);
    if (descriptor >= 0) signal(descriptor);
    told.swap(thens);
  }
  CHECK(before != kDone);
  if (before == kAwaited) waiting.wake_all(word);
  return told;
}

bool Move::add(Then& then) {
  MutexLock lock(mutex);
  if (done()) return false;
  thens.push_back(std::move(then));
  return true;
}

Result<int> Move::event_fd() {
  MutexLock lock(mutex);
  if (descriptor < 0) {
    HEADRACE_TRY(descriptor, open_eventfd());
    if (done()) signal(descriptor);
  }
  return descriptor;
}

Result<int> event_fd_of_done() {
  // One for the process: it never changes.
  static const Result<int> descriptor = [] {
    Result<int> opened = open_eventfd();
    if (opened) signal(*opened);
    return opened;
  }();
  return descriptor;
}

}  // namespace headrace
