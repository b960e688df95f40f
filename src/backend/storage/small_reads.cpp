// SPDX-License-Identifier: Apache-2.0
#include "backend/storage/small_reads.h"

#include <sys/eventfd.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <new>
#include <span>
#include <utility>
#include <vector>

#include "backend/storage/cutting.h"
#include "backend/storage/queue.h"
#include "core/check.h"
#include "core/mutex.h"
#include "headrace/copy.h"

namespace headrace::storage {
namespace {

// Rings. A thread keeps its own where there are no more threads; each costs a descriptor and about
// 20 KiB, when it is first used.
constexpr std::size_t kSlots = 64;
// Reads of one ring in flight. More go to the lane.
constexpr std::size_t kDepth = 16;
// Who goes on without having waited does not wait for each: the lane sends many at once. So do the
// next few, for a stream that has just run dry.
constexpr int kStream = 8;
// A small read and the odd rest of the blocks at both of its ends.
constexpr std::size_t kPage = 4096;
constexpr std::size_t kSmallBounce = kSmall.value + 2 * kPage;

}  // namespace

struct SmallReads::SmallRead : Request {
  AcceptedPiece piece;
  Step step;
  int result = 0;
  int looks = 0;  // of the lane since it was accepted
  bool in_flight = false;
};

struct SmallReads::Ended {
  std::array<SmallRead*, kDepth> reads;
  std::size_t count = 0;
};

// What a slot has once it is used. A read belongs to the lock while it is free or in flight, and in
// between, from its end until it was reported, to the thread that took it.
struct SmallReads::Ring {
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  std::unique_ptr<SharedRing> queue;
  std::unique_ptr<std::byte, Free> bounces;  // one for each read
  std::array<SmallRead, kDepth> reads;
  std::vector<SmallRead*> free;
  std::vector<Finished> finished;
  std::size_t in_flight = 0;
  bool unsent = false;
  bool announced = false;

  void announce(bool ends) {
    if (std::exchange(announced, ends) != ends) queue->announce(ends);
  }
};

// On lines of its own: each thread has its slot.
struct alignas(64) SmallReads::Slot {
  Mutex mutex;
  bool tried GUARDED_BY(mutex) = false;          // to open the ring
  bool attended GUARDED_BY(mutex) = false;       // a thread sleeps on the ring and will take
  int streaming GUARDED_BY(mutex) = 0;           // so many reads go to the lane
  std::unique_ptr<Ring> ring GUARDED_BY(mutex);  // constant once it is there
  std::atomic<bool> watched{false};              // the lane has to look
  std::atomic<std::size_t> busy{0};              // reads of the ring, accepted and not yet reported
  std::atomic<std::size_t> open{0};              // those and what the lanes have of small reads
};

SmallReads::SmallReads(const StorageOptions& options)
    : options_(options), slots_(std::make_unique<Slot[]>(kSlots)) {}

SmallReads::~SmallReads() = default;

SmallReads::Slot& SmallReads::mine() {
  static std::atomic<std::size_t> threads{0};
  thread_local const std::size_t number = threads.fetch_add(1);
  return slots_[number % kSlots];
}

// Without a ring (no descriptor, no memory) its threads go by the lane.
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
    for (SmallRead& read : ring->reads) ring->free.push_back(&read);
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
  if (!slot.tried) open(slot);
  if (slot.ring == nullptr || slot.ring->free.empty()) return false;
  Ring& ring = *slot.ring;
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
  read.in_flight = true;
  ++ring.in_flight;
  ring.unsent = true;
  slot.busy.fetch_add(1);
  ring.queue->start(read);
  return true;
}

void SmallReads::send() {
  Slot& slot = mine();
  {
    const MutexLock lock(slot.mutex);
    if (slot.ring == nullptr || !slot.ring->unsent) return;
  }
  settle(slot);
  const MutexLock lock(slot.mutex);
  if (slot.ring->unsent) eventfd_write(descriptor_, 1);
}

std::size_t SmallReads::help(Nanoseconds most) {
  Slot& slot = mine();
  SharedRing* queue = nullptr;
  {
    const MutexLock lock(slot.mutex);
    if (slot.ring == nullptr || slot.ring->in_flight == 0 || slot.attended) return 0;
    slot.attended = true;
    slot.ring->announce(false);
    slot.watched = slot.ring->unsent;
    queue = slot.ring->queue.get();
  }
  queue->sleep(most);
  return settle(slot, true);
}

bool SmallReads::look() {
  bool unsent = false;
  for (Slot& slot : std::span(slots_.get(), kSlots)) {
    if (!slot.watched) continue;
    settle(slot);
    const MutexLock lock(slot.mutex);
    unsent = unsent || slot.ring->unsent;
  }
  return unsent;
}

bool SmallReads::age() {
  for (Slot& slot : std::span(slots_.get(), kSlots)) {
    const MutexLock lock(slot.mutex);
    if (slot.ring == nullptr) continue;
    Ring& ring = *slot.ring;
    for (SmallRead& read : ring.reads) {
      if (!read.in_flight || ++read.looks <= kLooksPerLimit) continue;
      ring.queue->cancel(read);
      ring.unsent = true;
      slot.watched = true;
    }
  }
  return look();
}

bool SmallReads::busy() const {
  for (const Slot& slot : std::span(slots_.get(), kSlots)) {
    if (slot.busy.load() > 0) return true;
  }
  return false;
}

// Appends what has ended.
void SmallReads::collect(Ring& ring, Ended& ended) {
  ring.queue->take(ring.finished);
  for (const auto& [request, result] : ring.finished) {
    auto& read = static_cast<SmallRead&>(*request);
    read.result = result;
    read.in_flight = false;
    --ring.in_flight;
    ended.reads[ended.count++] = &read;
  }
  ring.finished.clear();
}

// Sends what is unsent and, unless another thread will, reports what has ended; what ends later is
// announced to the lane. `leaves`: this thread has attended until now.
std::size_t SmallReads::settle(Slot& slot, bool leaves) {
  Ended ended;
  {
    const MutexLock lock(slot.mutex);
    Ring& ring = *slot.ring;
    if (ring.unsent) ring.unsent = !ring.queue->send();
    if (leaves) slot.attended = false;
    if (!slot.attended) {
      collect(ring, ended);
      // First: what is announced from here on makes the lane look.
      if (ring.in_flight > 0) slot.watched = true;
      ring.announce(ring.in_flight > 0);
      if (ring.announced) collect(ring, ended);
    }
    slot.watched = ring.unsent || (!slot.attended && ring.in_flight > 0);
  }
  std::size_t reported = 0;
  for (SmallRead* read : std::span(ended.reads).first(ended.count)) {
    if (report(*read)) ++reported;
    const MutexLock lock(slot.mutex);
    slot.ring->free.push_back(read);
    slot.busy.fetch_sub(1);
  }
  return reported;
}

// False: the lane goes on with it.
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
