// SPDX-License-Identifier: Apache-2.0
#include "move/transfer.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <new>
#include <utility>

#include "core/check.h"
#include "core/fail.h"
#include "move/core.h"

namespace headrace {
namespace {

// Each read of an eventfd in semaphore mode subtracts one, so with this count it stays readable.
// (2^64 - 2 is the largest count, eventfd(2).)
constexpr std::uint64_t kForEver = ~std::uint64_t{0} - 1;

// Harmless if called twice.
void signal(int descriptor) {
  const std::uint64_t count = kForEver;
  CHECK(write(descriptor, &count, sizeof count) == sizeof count || errno == EAGAIN);
}

// The value of Move::listeners once all were called.
alignas(Listener) constinit std::byte no_listener{};
Listener* nobody_more() { return reinterpret_cast<Listener*>(&no_listener); }

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
  Listener* left = listeners.load();
  if (left == nobody_more()) left = nullptr;
  if (core != nullptr && !core->origin().here()) {
    abandon(std::exchange(left, nullptr));
    if (first_listener.then) abandon(std::move(first_listener.then));
  }
  while (left != nullptr) {
    Listener* const listener = std::exchange(left, left->next);
    if (!listener->in_move) delete listener;
  }
  if (descriptor >= 0) close(descriptor);
}

std::uint64_t Move::bytes() const {
  if (list == nullptr) return to.length.value;
  std::uint64_t sum = 0;
  for (const MovePair& part : listed) sum += part.to.length.value;
  return sum;
}

const Move& Move::pair(std::size_t index) const {
  const auto behind = std::ranges::upper_bound(*pairs, index, {}, &Move::first_pair);
  return *std::prev(behind);
}

bool Move::failed(std::size_t index) const {
  if (*outcome) return false;
  if (list == nullptr || outcome->error().code == ErrorCode::cancelled) return true;
  return marked_failed() == size() || list->failed[index] != 0;
}

std::size_t Move::count_failed() const {
  if (*outcome) return 0;
  return outcome->error().code == ErrorCode::cancelled ? size() : marked_failed();
}

std::size_t Move::marked_failed() const {
  if (list == nullptr) return 1;
  const auto marked =
      std::ranges::count_if(list->failed, [](std::uint8_t mark) { return mark != 0; });
  return marked == 0 ? size() : static_cast<std::size_t>(marked);
}

Bytes Move::unmarked() const {
  Bytes sum;
  if (marked_failed() == size()) return sum;
  for (std::size_t i = 0; i < size(); ++i) {
    if (list->failed[i] == 0) sum += listed[i].to.length;
  }
  return sum;
}

Listener* Move::finish(Result<MoveStats> result, Waiting& waiting) {
  outcome.emplace(std::move(result));
  const std::uint32_t before = word.exchange(kDone);
  CHECK(before != kDone);
  if (before == kAwaited) waiting.wake_all(word);
  // Either this thread sees a descriptor that is being opened, or its opener sees that the move is
  // done.
  if (descriptor.load() >= 0) signal(descriptor);
  Listener* in_order = nullptr;
  for (Listener* last = listeners.exchange(nobody_more()); last != nullptr;) {
    Listener* next = std::exchange(last->next, in_order);
    in_order = std::exchange(last, next);
  }
  return in_order;
}

bool Move::add(Then& then) {
  Listener* const listener = first_used.exchange(true) ? new Listener{} : &first_listener;
  listener->then.swap(then);
  Listener* last = listeners.load();
  do {
    if (last == nobody_more()) {
      listener->then.swap(then);
      if (!listener->in_move) delete listener;
      return false;
    }
    listener->next = last;
  } while (!listeners.compare_exchange_weak(last, listener));
  return true;
}

Result<int> Move::event_fd() {
  MutexLock lock(mutex);
  if (descriptor < 0) {
    HEADRACE_TRY(descriptor, open_eventfd());
    if (done()) signal(descriptor);
  }
  return descriptor.load();
}

Error error_in_words(ErrorCode code, const char* words) noexcept {
  try {
    return {code, words};
  } catch (const std::bad_alloc&) {
    return {code, {}};
  }
}

Result<MoveStats> copy_of(const Result<MoveStats>& outcome) noexcept {
  try {
    return outcome;
  } catch (const std::bad_alloc&) {
    return out_of_memory();
  }
}

Result<std::shared_ptr<const int>> event_fd_of_done() {
  HEADRACE_TRY(const int descriptor, open_eventfd());
  signal(descriptor);
  try {
    return std::shared_ptr<const int>(new int(descriptor), [](const int* owned) {
      close(*owned);
      delete owned;
    });
  } catch (const std::bad_alloc&) {
    close(descriptor);
    return out_of_memory();
  }
}

}  // namespace headrace
