// SPDX-License-Identifier: Apache-2.0
#include "backend/storage/lane.h"

#include <sys/mman.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <new>
#include <string_view>
#include <system_error>
#include <utility>

#include "backend/storage/small_reads.h"
#include "core/check.h"
#include "core/fail.h"
#include "core/thread.h"
#include "core/waiting/duration.h"
#include "headrace/copy.h"

namespace headrace::storage {
namespace {

// Retries after EINTR, EAGAIN and answers without progress. Each pause is twice the one before: 1 +
// 2 + ... + 64 ms. A device that is short of something (memory, tags) gets a second chance, and a
// broken device does not hold its piece for long.
constexpr unsigned kRetries = 7;
constexpr Nanoseconds kFirstPause = std::chrono::milliseconds{1};
// The longest pause between two requests to the kernel to end a cancelled request.
constexpr Nanoseconds kLongestAsk = std::chrono::milliseconds{10};
// The longest sleep with nothing to do; every piece wakes the thread.
constexpr Nanoseconds kIdle = std::chrono::seconds{60};
// A look that is late by this factor means that the process was stopped, not that the device was
// slow. The time since the look before then does not count.
constexpr int kTicksAway = 2;
// After a cancelled request the kernel may still wait for the device's own time-out (30 s for SCSI
// and NVMe). Memory that a device may write to must not be freed, so after this time the process
// ends.
constexpr Nanoseconds kKernelBound = std::chrono::seconds{120};

// With huge pages a bounced request is one run of memory for the device instead of 64
// (docs/design/storage.md has the gain).
constexpr std::size_t kHugePage = 2 << 20;

std::size_t bounce_bytes(const StorageOptions& options) {
  return (options.bounce_buffers * kBounceBytes + kHugePage - 1) / kHugePage * kHugePage;
}

// Without memory the words may be lost, but not the code: the lane's thread must continue.
template <class Words>
Error in_words(ErrorCode code, const Words& words) noexcept {
  try {
    return {code, words()};
  } catch (const std::bad_alloc&) {
    return {code, {}};
  }
}

std::string_view advice_on(int error) {
  if (error == ENOSPC || error == EDQUOT) return "make room on its disk";
  if (error == EBADF) return "its File was closed or destroyed; keep it while it is in use";
  return "the kernel log (dmesg) says more";
}

Error error_of(const AcceptedPiece& piece, std::uint64_t offset, int error) {
  const bool exhausted = code_of_errno(error) == ErrorCode::exhausted;
  return in_words(exhausted ? ErrorCode::exhausted : ErrorCode::io, [&] {
    return fmt::format("cannot {} {} at offset {}: {}; {}", piece.span.write ? "write" : "read",
                       piece.file->quoted(), offset, std::generic_category().message(error),
                       advice_on(error));
  });
}

Error shorter(const AcceptedPiece& piece, std::uint64_t end) {
  return in_words(ErrorCode::io, [&] {
    return fmt::format("{} is shorter than when it was opened: it ends by offset {}; open it again",
                       piece.file->quoted(), end);
  });
}

// Whether this thread is a lane's.
thread_local bool in_lane = false;

// Whether a core may write to a page that a device reads a file into, also after a fork(). Kernels
// from 6.5 on pin such pages (open(2)).
bool reads_pin_pages() {
  static const bool pins = [] {
    utsname system{};
    int major = 0;
    int minor = 0;
    return uname(&system) == 0 && std::sscanf(system.release, "%d.%d", &major, &minor) == 2 &&
           std::pair(major, minor) >= std::pair(6, 5);
  }();
  return pins;
}

}  // namespace

AcceptedPiece to_accepted(const Piece& piece, Completion& completion, Bytes request) {
  const bool write = piece.from.object->memory() != nullptr;
  const Extent& at = write ? piece.to : piece.from;
  const Extent& memory = write ? piece.from : piece.to;
  // UserReads has the other objects without memory on a storage node (headrace/file.h).
  const auto* file = static_cast<const File*>(at.object);
  static const auto page = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  AcceptedPiece accepted;
  accepted.file = file;
  accepted.completion = &completion;
  accepted.tag = piece.tag;
  accepted.cancelled = piece.cancelled;
  accepted.hint = piece.hint;
  accepted.next = at.offset;
  accepted.span = {.write = write,
                   .begin = at.offset,
                   .end = at.end(),
                   .address = reinterpret_cast<std::uintptr_t>(memory.memory()),
                   .page = page,
                   .memory_page = reads_pin_pages() ? 1 : page,
                   .request_bytes = request.value};
  if (file->direct()) accepted.span.direct = file->alignment();
  return accepted;
}

StorageLane::StorageLane(const StorageOptions& options, SmallReads& small, bool serves)
    : options_(options),
      tick_(std::max<Nanoseconds>(options.limit / kLooksPerLimit, kFirstPause)),
      small_(small),
      serves_(serves),
      time_(*options.clock, kTicksAway * tick_),
      pieces_(options.max_pieces),
      requests_(options.queue_depth) {
  for (AcceptedPiece& piece : pieces_) free_pieces_.push_back(&piece);
  for (TrackedRequest& request : requests_) free_requests_.push_back(&request);
  finished_.reserve(options.queue_depth);
  taken_.reserve(options.max_pieces);
  waiting_.reserve(options.max_pieces);
  const MutexLock lock(mutex_);
  inbox_.reserve(options.max_pieces);
}

StorageLane::~StorageLane() {
  if (thread_.joinable()) {
    {
      const MutexLock lock(mutex_);
      ending_ = true;
      if (opened_ && *opened_) queue_->wake();
    }
    join(thread_);
  }
  if (mapped_ != nullptr) munmap(mapped_, bounce_bytes(options_) + kHugePage);
}

Result<std::unique_ptr<StorageLane>> StorageLane::open(const StorageOptions& options,
                                                       SmallReads& small, bool serves) {
  std::unique_ptr<StorageLane> lane(new StorageLane(options, small, serves));
  HEADRACE_TRY_STATUS(lane->start());
  return lane;
}

Status StorageLane::start() {
  const std::size_t bytes = bounce_bytes(options_);
  void* memory =
      mmap(nullptr, bytes + kHugePage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return fail_errno(errno, "no memory for the bounce buffers");
  mapped_ = memory;
  const auto address = reinterpret_cast<std::uintptr_t>(memory);
  bounce_ = static_cast<std::byte*>(memory) + (kHugePage - address % kHugePage) % kHugePage;
  madvise(bounce_, bytes, MADV_HUGEPAGE);  // a request only: small pages work too
  for (std::size_t i = 0; i < options_.bounce_buffers; ++i) {
    free_bounces_.push_back(bounce_ + i * kBounceBytes);
  }
  HEADRACE_TRY(thread_, start_thread("headrace-ssd", [this] { run(); }));
  // The opening blocks only on the kernel's answer.
  MutexLock lock(mutex_);
  while (!opened_) opened_cond_.wait_for(mutex_, kIdle);
  return *opened_;
}

// The ring belongs to the thread that opens it, so this runs in the lane's thread.
Status StorageLane::open_queue() try {
  std::string why = "as asked";
  if (options_.queue != StorageQueue::threads) {
    auto ring = open_uring(options_.queue_depth, {bounce_, bounce_bytes(options_)});
    if (ring) {
      queue_ = *std::move(ring);
      note_ = queue_->describe();
    } else {
      why = ring.error().message;
    }
  }
  if (queue_ == nullptr && options_.queue == StorageQueue::io_uring) {
    return fail(ErrorCode::unsupported, "no io_uring here: {}", why);
  }
  if (queue_ == nullptr) {
    HEADRACE_TRY(queue_, open_threads(options_.threads, options_.queue_depth));
    note_ = fmt::format("{} ({})", queue_->describe(), why);
  }
  if (options_.wrap) queue_ = options_.wrap(std::move(queue_));
  if (const auto descriptor = queue_->wake_descriptor(); descriptor && serves_) {
    small_.serve(*descriptor);
  }
  return {};
} catch (const std::bad_alloc&) {
  return out_of_memory();
}

bool StorageLane::accept(AcceptedPiece&& piece) {
  std::size_t before = accepted_.load();
  do {
    if (before >= options_.max_pieces) return false;
  } while (!accepted_.compare_exchange_weak(before, before + 1));
  piece.lane = this;
  // A lane's thread waits for no small read. It takes a piece that it submits here at its next
  // turn.
  if (in_lane || !small_.accept(piece)) again(std::move(piece));
  return true;
}

void StorageLane::again(AcceptedPiece&& piece) {
  bool wake = false;
  {
    const MutexLock lock(mutex_);
    inbox_.push_back(std::move(piece));
    wake = std::exchange(asleep_, false);
  }
  if (wake) queue_->wake();
}

void StorageLane::cancel() noexcept {
  bool wake = false;
  {
    const MutexLock lock(mutex_);
    cancelled_ = true;
    wake = std::exchange(asleep_, false);
  }
  if (wake) queue_->wake();
}

void StorageLane::end(AcceptedPiece& piece, Status outcome) {
  accepted_.fetch_sub(1);  // before complete(), which may submit again
  if (piece.open != nullptr) piece.open->fetch_sub(1);
  piece.completion->complete(piece.tag, std::move(outcome));
}

void StorageLane::run() {
  in_lane = true;
  {
    Status opened = open_queue();
    const bool failed = !opened;
    const MutexLock lock(mutex_);
    opened_ = std::move(opened);
    opened_cond_.notify_one();
    if (failed) return;
  }
  while (take_inbox()) {
    pump();
    queue_->wait(std::min(ask(), patience()), finished_);
    {
      const MutexLock lock(mutex_);
      asleep_ = false;
    }
    if (!finished_.empty()) last_answer_ = time_.now();
    for (const auto& [request, result] : finished_)
      finish(static_cast<TrackedRequest&>(*request), result);
    finished_.clear();
    if (serves_) look_soon_ = small_.look();
    look_at_times();
  }
  queue_.reset();  // in the thread that opened it
}

// Returns false when all work is done and the lane must end.
bool StorageLane::take_inbox() {
  bool ending = false;
  bool cancelled = false;
  {
    const MutexLock lock(mutex_);
    std::swap(inbox_, taken_);
    cancelled = std::exchange(cancelled_, false);
    asleep_ = true;
    ending = ending_;
  }
  for (AcceptedPiece& piece : taken_) {
    AcceptedPiece& kept = *free_pieces_.back();
    free_pieces_.pop_back();
    kept = std::move(piece);
    kept.since = time_.now();
    waiting_.push_back(&kept);
    // Its cancellation may have come first.
    cancelled = cancelled || kept.is_cancelled();
  }
  taken_.clear();
  if (cancelled) take_cancelled();
  if (!ending) return true;
  if (free_pieces_.size() == pieces_.size() && !(serves_ && small_.busy())) return false;
  const Nanoseconds now = time_.now();
  if (!ending_since_) ending_since_ = now;
  CHECK(now - *ending_since_ < options_.limit + kKernelBound);  // see kKernelBound
  return true;
}

void StorageLane::take_cancelled() {
  bool at_once = !asking_;
  for (AcceptedPiece& piece : pieces_) {
    if (piece.completion == nullptr || piece.cut_off() || !piece.is_cancelled()) continue;
    fail_piece(piece, Unexpected(Error{ErrorCode::cancelled, "cancelled"}));
    if (piece.in_flight == 0) {
      report(piece);
    } else {
      at_once = true;
    }
  }
  if (!at_once) return;
  asking_.emplace(kFirstPause, kLongestAsk);
  next_ask_ = time_.now();
}

// Asks the kernel repeatedly to end cancelled requests. A request that the kernel retries forever
// (a FUSE file that answers EAGAIN) can be ended only at moments. Returns the time until the next
// call.
Nanoseconds StorageLane::ask() {
  if (!asking_) return kIdle;
  const Nanoseconds now = time_.now();
  if (now < next_ask_) return next_ask_ - now;
  bool any = serves_ && small_.ask();
  for (TrackedRequest& request : requests_) {
    if (request.piece == nullptr || !request.piece->cut_off() || request.parked) continue;
    queue_->cancel(request);
    any = true;
  }
  if (!any) {
    asking_.reset();
    return kIdle;
  }
  const Nanoseconds pause = asking_->next();
  next_ask_ = now + pause;
  return pause;
}

Status StorageLane::no_answer(const AcceptedPiece& piece, std::uint64_t offset) const {
  return Unexpected(in_words(ErrorCode::timed_out, [&] {
    return fmt::format("no answer for {} at offset {} within {}; the kernel log (dmesg) says more",
                       piece.file->quoted(), offset, to_string(options_.limit));
  }));
}

Nanoseconds StorageLane::patience() const {
  const bool idle = free_requests_.size() == requests_.size();
  if (idle && !serves_) return kIdle;
  if (parked_ == 0 && !look_soon_) return tick_;
  return std::min(tick_, kFirstPause);
}

void StorageLane::pump() {
  while (!waiting_.empty() && !free_requests_.empty()) {
    AcceptedPiece& piece = *waiting_.front();
    if (!send_next(piece)) return;  // no bounce buffer: the next completion frees one
    if (piece.next == piece.span.end) waiting_.erase(waiting_.begin());
  }
}

bool StorageLane::send_next(AcceptedPiece& piece) {
  const Step step = next_step(piece.span, piece.next);
  if (step.bounce && free_bounces_.empty()) return false;
  TrackedRequest& request = *free_requests_.back();
  free_requests_.pop_back();
  auto* memory = reinterpret_cast<std::byte*>(piece.span.address_of(step.from));
  static_cast<Request&>(request) = {
      .write = piece.span.write,
      .fd = step.direct ? piece.file->direct_fd() : piece.file->buffered_fd(),
      .memory = memory,
      .bytes = step.bytes,
      .offset = step.offset,
      .bounce = step.bounce};
  if (step.bounce) {
    request.memory = free_bounces_.back();
    free_bounces_.pop_back();
    if (request.write) copy_bytes(request.memory, memory, step.bytes, piece.hint);
  }
  request.piece = &piece;
  request.step = step;
  request.retries = 0;
  request.since = time_.now();
  if (free_requests_.size() + 1 == requests_.size()) last_answer_ = request.since;
  piece.next = step.to;
  ++piece.in_flight;
  queue_->start(request);
  return true;
}

void StorageLane::finish(TrackedRequest& request, int result) {
  const AcceptedPiece& piece = *request.piece;
  if (piece.cut_off()) return retire(request, {});
  if (result >= 0) return advance(request, static_cast<std::uint64_t>(result));
  if (result == -EINTR || result == -EAGAIN) return retry(request, -result);
  if (result == -EINVAL && request.fd == piece.file->direct_fd()) {
    // The file system accepts direct opens but refuses direct requests. The page cache takes the
    // same request.
    request.fd = piece.file->buffered_fd();
    request.step.direct = false;
    return queue_->start(request);
  }
  retire(request, Unexpected(error_of(piece, request.offset, -result)));
}

void StorageLane::retry(TrackedRequest& request, int error) {
  if (request.retries == kRetries) {
    return retire(request, Unexpected(error_of(*request.piece, request.offset, error)));
  }
  request.parked = true;
  request.again = time_.now() + kFirstPause * (1U << request.retries);
  ++request.retries;
  ++parked_;
}

// `moved` bytes of the request are done: passes on the wanted ones, and requests the rest.
void StorageLane::advance(TrackedRequest& request, std::uint64_t moved) {
  const AcceptedPiece& piece = *request.piece;
  Step& step = request.step;
  const std::uint64_t reached = request.offset + moved;
  const std::uint64_t upto = std::min(step.to, reached);
  if (upto > step.from) {
    if (step.bounce && !request.write) {
      copy_bytes(reinterpret_cast<std::byte*>(piece.span.address_of(step.from)),
                 request.memory + (step.from - request.offset), upto - step.from, piece.hint);
    }
    step.from = upto;
  }
  if (step.from == step.to) return retire(request, {});
  // A direct request continues at a whole block.
  const std::uint64_t block = step.direct ? piece.span.direct->offset : 1;
  const std::uint64_t whole = moved & ~(block - 1);
  if (whole == 0) return no_progress(request, reached);
  request.memory += whole;
  request.bytes -= whole;
  request.offset += whole;
  request.retries = 0;
  queue_->start(request);
}

// Less than a block was delivered: the file has shrunk, or the device delivers with interruptions.
void StorageLane::no_progress(TrackedRequest& request, std::uint64_t reached) {
  const AcceptedPiece& piece = *request.piece;
  const auto now = size_now(piece.file->buffered_fd());
  if (now && now->value < request.step.to) {
    return retire(request, Unexpected(shorter(piece, reached)));
  }
  retry(request, EIO);
}

void StorageLane::retire(TrackedRequest& request, Status outcome) {
  AcceptedPiece& piece = *request.piece;
  if (request.step.bounce) {
    const auto at = static_cast<std::uint64_t>(request.memory - bounce_);
    free_bounces_.push_back(bounce_ + at / kBounceBytes * kBounceBytes);
  }
  request.piece = nullptr;
  free_requests_.push_back(&request);
  --piece.in_flight;
  if (!outcome) fail_piece(piece, std::move(outcome));
  if (piece.in_flight == 0 && piece.next == piece.span.end) report(piece);
}

// Sends no further requests for this piece, which is reported when those in flight have ended.
void StorageLane::fail_piece(AcceptedPiece& piece, Status outcome) {
  if (piece.cut_off()) return;
  piece.outcome = std::move(outcome);
  if (piece.next != piece.span.end) {
    std::erase(waiting_, &piece);
    piece.next = piece.span.end;
  }
}

void StorageLane::report(AcceptedPiece& piece) {
  AcceptedPiece ended = std::exchange(piece, {});
  free_pieces_.push_back(&piece);
  end(ended, std::move(ended.outcome));
}

void StorageLane::look_at_times() {
  const Nanoseconds now = time_.now();
  const bool due = now >= next_look_;
  if (parked_ == 0 && !due) return;
  if (serves_ && due) look_soon_ = small_.age();
  if (due) next_look_ = now + tick_;
  for (TrackedRequest& request : requests_) {
    if (request.piece != nullptr) look_at(request, now);
  }
  look_at_waiting(now);
}

// If the device no longer answers, pieces without a request do not wait for it.
void StorageLane::look_at_waiting(Nanoseconds now) {
  if (now - last_answer_ < options_.limit) return;
  for (std::size_t i = 0; i < waiting_.size();) {
    AcceptedPiece& piece = *waiting_[i];
    if (now - piece.since < options_.limit) {
      ++i;
      continue;
    }
    fail_piece(piece, no_answer(piece, piece.next));  // removes it from waiting_
    if (piece.in_flight == 0) report(piece);
  }
}

void StorageLane::look_at(TrackedRequest& request, Nanoseconds now) {
  AcceptedPiece& piece = *request.piece;
  if (now - request.since >= options_.limit && !piece.cut_off()) {
    fail_piece(piece, no_answer(piece, request.offset));
  }
  if (request.parked) {
    if (!piece.cut_off() && now < request.again) return;
    request.parked = false;
    --parked_;
    if (piece.cut_off()) return retire(request, {});
    return queue_->start(request);
  }
  if (now - request.since >= options_.limit) queue_->cancel(request);
}

}  // namespace headrace::storage
