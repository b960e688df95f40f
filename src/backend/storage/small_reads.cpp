// SPDX-License-Identifier: Apache-2.0
#include "backend/storage/small_reads.h"

#include <sys/eventfd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <new>
#include <span>
#include <utility>
#include <vector>

#include "backend/storage/queue.h"
#include "backend/storage/request_cutting.h"
#include "core/check.h"
#include "core/mutex.h"
#include "headrace/clock.h"
#include "headrace/copy.h"

namespace headrace::storage {
namespace {

// Number of rings. With at most this many threads, each has its own. A ring costs a descriptor and
// about 20 KiB at first use.
constexpr std::size_t kSlots = 64;
// Reads of one ring in flight. Further reads go to the lane.
constexpr std::size_t kDepth = 16;
// Reads that go to the lane after a thread continued without waiting: the lane sends many at once.
// The number covers a stream that has just run dry.
constexpr int kStream = 8;
// A small read and the rest of the blocks at both of its ends.
constexpr std::size_t kPage = 4096;
constexpr std::size_t kSmallBounce = kSmall.value + 2 * kPage;

}  // namespace

struct SmallReads::SmallRead : Request {
  // ended: no thread has begun to report it. reported: by one thread, without the lock.
  enum class State : std::uint8_t { free, in_flight, ended, reported };
  AcceptedPiece piece;
  Step step;
  int result = 0;
  int looks = 0;  // of the lane, since it was accepted
  State state = State::free;
};

// A slot has a ring from its first read on. The slot's lock guards a read; during its report, the
// read belongs to the thread that took it.
struct SmallReads::Ring {
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  std::unique_ptr<SharedRing> queue;
  std::unique_ptr<std::byte, Free> bounces;  // one for each read
  std::array<SmallRead, kDepth> reads;
  std::vector<SmallRead*> free;
  std::vector<SmallRead*> ended;
  std::vector<Finished> finished;
  std::size_t in_flight = 0;
  // The read that a thread waits for, asleep on the ring; not in `free` meanwhile.
  SmallRead* awaited = nullptr;
  bool shared = false;  // other threads wait for it too
  bool unsent = false;
  bool announced = false;

  // Whether the sleeping thread handles the read's end.
  bool is_left(const SmallRead& read) const { return awaited == &read && !shared; }
  bool others_in_flight() const {
    const bool left =
        awaited != nullptr && !shared && awaited->state == SmallRead::State::in_flight;
    return in_flight > (left ? 1 : 0);
  }
  // Returns an ended read that no thread sleeps for, or null.
  SmallRead* other_ended() const {
    const auto found = std::ranges::find_if(ended, [&](auto* read) { return !is_left(*read); });
    return found == ended.end() ? nullptr : *found;
  }
};

// On its own cache lines, since each thread has its slot.
struct alignas(64) SmallReads::Slot {
  Mutex mutex;
  bool tried GUARDED_BY(mutex) = false;          // whether the ring was tried to open
  int streaming GUARDED_BY(mutex) = 0;           // next reads that go to the lane
  std::unique_ptr<Ring> ring GUARDED_BY(mutex);  // constant once it exists
  std::atomic<bool> watched{false};              // the lane must look
  std::atomic<std::size_t> busy{0};              // reads of the ring, accepted and not yet reported
  std::atomic<std::size_t> open{0};              // those, and the small reads that the lanes have
};

SmallReads::SmallReads(const StorageOptions& options)
    : options_(options), slots_(std::make_unique<Slot[]>(kSlots)) {}

SmallReads::~SmallReads() = default;

SmallReads::Slot& SmallReads::mine() {
  static std::atomic<std::size_t> threads{0};
  thread_local const std::size_t number = threads.fetch_add(1);
  return slots_[number % kSlots];
}

// Without a ring (no descriptor, no memory) the slot's threads use the lane.
void SmallReads::open(Slot& slot) {
  slot.mutex.assert_held();
  slot.tried = true;
  try {
    auto ring = std::make_unique<Ring>();
    ring->bounces.reset(static_cast<std::byte*>(std::aligned_alloc(kPage, kDepth * kSmallBounce)));
    auto queue = open_shared_ring(kDepth, descriptor_);
    if (ring->bounces == nullptr || !queue) return;
    ring->queue = *std::move(queue);
    if (options_.wrap_shared) ring->queue = options_.wrap_shared(std::move(ring->queue));
    ring->finished.reserve(kDepth);
    ring->free.reserve(kDepth);
    ring->ended.reserve(kDepth);
    for (SmallRead& read : ring->reads) ring->free.push_back(&read);
    std::ranges::reverse(ring->free);  // find() checks the first one first
    slot.ring = std::move(ring);
  } catch (const std::bad_alloc&) {
  }
}

bool SmallReads::accept(AcceptedPiece& piece) {
  const FileSpan& span = piece.span;
  if (descriptor_ < 0 || span.write || span.end - span.begin >= kSmall.value) return false;
  const Step step = next_step(span, span.begin);
  if (step.to != span.end || (step.bounce && step.bytes > kSmallBounce)) return false;
  Slot& slot = mine();
  const std::size_t open_before = slot.open.fetch_add(1);
  piece.open = &slot.open;
  const MutexLock lock(slot.mutex);
  // Checked here, so that ask() either comes before this or finds the read in flight.
  if (piece.is_cancelled()) return false;
  if (!slot.tried) open(slot);
  if (slot.ring == nullptr || slot.ring->free.empty()) return false;
  Ring& ring = *slot.ring;
  // Ended reads stay in the ring until the sleeping thread runs again.
  if (ring.awaited != nullptr && ring.awaited->state != SmallRead::State::in_flight) return false;
  if (!ring.unsent) {
    if (open_before > 0) slot.streaming = kStream;
    if (slot.streaming > 0) return --slot.streaming, false;
  }
  SmallRead& read = *ring.free.back();
  ring.free.pop_back();
  static_cast<Request&>(read) = {
      .fd = step.direct ? piece.file->direct_fd() : piece.file->buffered_fd(),
      .memory = reinterpret_cast<std::byte*>(span.address),
      .bytes = step.bytes,
      .offset = step.offset,
      .bounce = step.bounce};
  if (step.bounce) {
    const auto at = static_cast<std::size_t>(&read - ring.reads.data());
    read.memory = ring.bounces.get() + at * kSmallBounce;
  }
  read.piece = std::move(piece);
  read.step = step;
  read.looks = 0;
  read.state = SmallRead::State::in_flight;
  ++ring.in_flight;
  ring.unsent = true;
  slot.busy.fetch_add(1);
  ring.queue->start(read);
  return true;
}

void SmallReads::send() {
  Slot& slot = mine();
  if (slot.busy.load() > 0 && settle(slot, true)) eventfd_write(descriptor_, 1);
}

std::size_t SmallReads::help(std::span<const std::byte> to, Nanoseconds most) {
  Slot& slot = mine();
  if (slot.busy.load() == 0) return 0;
  MutexLock lock(slot.mutex);
  Ring& ring = *slot.ring;
  collect(ring);
  SmallRead* const read = find(ring, to);
  if (read == nullptr) return 0;
  const Nanoseconds end = system_clock().now() + most;
  if (read->state == SmallRead::State::in_flight && ring.awaited == nullptr) {
    for (Nanoseconds left = most; left > Nanoseconds{0}; left = end - system_clock().now()) {
      ring.awaited = read;
      arrange(slot);
      lock.unlock();
      ring.queue->sleep(left);
      lock.lock();
      ring.awaited = nullptr;
      collect(ring);
      if (read->state != SmallRead::State::in_flight) break;
    }
    ring.shared = false;
    if (read->state == SmallRead::State::free) ring.free.push_back(read);
  } else if (ring.awaited == read) {
    ring.shared = true;
  }
  const bool mine = read->state == SmallRead::State::ended;
  if (mine) take(slot, *read);
  arrange(slot);
  if (!mine) return 0;
  lock.unlock();
  const bool reported = report(*read);
  lock.lock();
  free(slot, *read);
  return reported ? 1 : 0;
}

bool SmallReads::look() {
  bool unsent = false;
  for (Slot& slot : std::span(slots_.get(), kSlots)) {
    if (slot.watched && settle(slot)) unsent = true;
  }
  return unsent;
}

bool SmallReads::age() {
  for (Slot& slot : std::span(slots_.get(), kSlots)) {
    const MutexLock lock(slot.mutex);
    if (slot.ring == nullptr) continue;
    Ring& ring = *slot.ring;
    for (SmallRead& read : ring.reads) {
      if (read.state != SmallRead::State::in_flight || ++read.looks <= kLooksPerLimit) continue;
      ring.queue->cancel(read);
      ring.unsent = true;
      slot.watched = true;
    }
  }
  return look();
}

bool SmallReads::ask() {
  bool any = false;
  for (Slot& slot : std::span(slots_.get(), kSlots)) {
    if (slot.busy.load() == 0) continue;
    bool here = false;
    {
      const MutexLock lock(slot.mutex);
      for (SmallRead& read : slot.ring->reads) {
        if (read.state != SmallRead::State::in_flight || !read.piece.is_cancelled()) continue;
        slot.ring->queue->cancel(read);
        slot.ring->unsent = here = true;
      }
    }
    if (here) settle(slot);
    any = any || here;
  }
  return any;
}

bool SmallReads::busy() const {
  for (const Slot& slot : std::span(slots_.get(), kSlots)) {
    if (slot.busy.load() > 0) return true;
  }
  return false;
}

// Returns the read into `to` that no thread has begun to report, or null.
SmallReads::SmallRead* SmallReads::find(Ring& ring, std::span<const std::byte> to) {
  const auto begin = reinterpret_cast<std::uintptr_t>(to.data());
  for (SmallRead& read : ring.reads) {
    const bool open =
        read.state == SmallRead::State::in_flight || read.state == SmallRead::State::ended;
    if (open && read.piece.span.address - begin < to.size()) return &read;
  }
  return nullptr;
}

void SmallReads::collect(Ring& ring) {
  ring.queue->take(ring.finished, ring.awaited);
  for (const auto& [request, result] : ring.finished) {
    auto& read = static_cast<SmallRead&>(*request);
    read.result = result;
    read.state = SmallRead::State::ended;
    --ring.in_flight;
    ring.ended.push_back(&read);
  }
  ring.finished.clear();
}

// Makes each end wake the lane, unless it is left to the thread that sleeps on the ring. An end
// from before was not announced, so the caller reports it. Announcements stay on until all such
// ends are reported: the kernel may have posted an end that is taken here, but not yet checked the
// flag.
void SmallReads::arrange(Slot& slot) {
  slot.mutex.assert_held();
  Ring& ring = *slot.ring;
  const bool announce = ring.others_in_flight() || ring.other_ended() != nullptr;
  // First, so that any announcement from here on makes the lane look.
  if (announce) slot.watched = true;
  if (std::exchange(ring.announced, announce) != announce) {
    ring.queue->announce(announce);
    if (announce) collect(ring);
  }
  slot.watched = ring.unsent || ring.others_in_flight() || ring.other_ended() != nullptr;
}

// Sends unsent reads, and reports ended ones, unless they are left to the sleeping thread.
// `if_unsent`: does nothing if all is sent. True: something is still unsent.
bool SmallReads::settle(Slot& slot, bool if_unsent) {
  MutexLock lock(slot.mutex);
  Ring& ring = *slot.ring;
  if (if_unsent && !ring.unsent) return false;
  if (ring.unsent) ring.unsent = !ring.queue->send();
  collect(ring);
  for (;;) {
    arrange(slot);
    SmallRead* const read = ring.other_ended();
    if (read == nullptr) return ring.unsent;
    take(slot, *read);
    lock.unlock();
    report(*read);
    lock.lock();
    free(slot, *read);
  }
}

// From here until free() the read belongs to this thread. Requires: it has ended.
void SmallReads::take(Slot& slot, SmallRead& read) {
  slot.mutex.assert_held();
  std::erase(slot.ring->ended, &read);
  read.state = SmallRead::State::reported;
}

void SmallReads::free(Slot& slot, SmallRead& read) {
  slot.mutex.assert_held();
  read.state = SmallRead::State::free;
  if (slot.ring->awaited != &read) slot.ring->free.push_back(&read);
  slot.busy.fetch_sub(1);
}

// False: the lane continues with it, and ends it if it was cancelled.
bool SmallReads::report(SmallRead& read) {
  AcceptedPiece piece = std::move(read.piece);
  StorageLane& lane = *piece.lane;
  const Step& step = read.step;
  if (read.result >= 0 && step.offset + static_cast<std::uint64_t>(read.result) >= step.to) {
    if (step.bounce) {
      copy_bytes(reinterpret_cast<std::byte*>(piece.span.address_of(step.from)),
                 read.memory + (step.from - step.offset), step.to - step.from, piece.hint);
    }
    lane.end(piece, {});
  } else if (read.looks > kLooksPerLimit) {
    lane.end(piece, lane.no_answer(piece, step.offset));
  } else {
    lane.again(std::move(piece));
    return false;
  }
  return true;
}

}  // namespace headrace::storage
