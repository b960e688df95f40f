#include "backend/storage/lane.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include "core/check.h"
#include "core/fail.h"
#include "core/thread.h"
#include "headrace/copy.h"

namespace headrace::storage {
namespace {

// EINTR, EAGAIN and answers without progress are tried again this often, each time after twice the
// pause before: 1 + 2 + ... + 64 ms, so that a device that is only short of something (memory,
// tags) gets a second chance and a broken one does not hold its piece for long.
constexpr unsigned kRetries = 7;
constexpr Nanoseconds kFirstPause = std::chrono::milliseconds{1};
// With nothing to do the thread sleeps this long at a time; every piece wakes it.
constexpr Nanoseconds kIdle = std::chrono::seconds{60};
// How often times are looked at, as a part of the limit: a lost request is found after at most
// 1 + 1/4 of it.
constexpr int kLooksPerLimit = 4;
// After a cancelled request the kernel may still wait for the device's own time-out (30 s for SCSI
// and NVMe). Memory that a device may write to must not be freed, so beyond this the process ends.
constexpr Nanoseconds kKernelBound = std::chrono::seconds{120};

// Huge pages hand the device a bounced request as one run of memory instead of 64 (by how much it
// is faster: docs/design/storage.md).
constexpr std::size_t kHugePage = 2 << 20;

std::size_t bounce_bytes(const StorageOptions& options) {
  return (options.bounce_buffers * kBounceBytes + kHugePage - 1) / kHugePage * kHugePage;
}

Error error_of(const Job& job, std::uint64_t offset, int error) {
  return {code_of_errno(error) == ErrorCode::exhausted ? ErrorCode::exhausted : ErrorCode::io,
          fmt::format("cannot {} {} at offset {}: {}; {}", job.range.write ? "write" : "read",
                      job.file->quoted(), offset, std::generic_category().message(error),
                      error == ENOSPC || error == EDQUOT ? "make room on its disk"
                                                         : "the kernel log (dmesg) says more")};
}

Error shorter(const Job& job, std::uint64_t end) {
  return {ErrorCode::io,
          fmt::format("{} is shorter than when it was opened: it ends at offset {}; open it again",
                      job.file->quoted(), end)};
}

}  // namespace

Job make_job(const Piece& piece, Completion& completion, Bytes request) {
  const bool write = piece.from.object->memory() != nullptr;
  const Extent& at = write ? piece.to : piece.from;
  const Extent& memory = write ? piece.from : piece.to;
  // A File is the only object without memory on a storage node (headrace/file.h).
  const auto* file = static_cast<const File*>(at.object);
  Job job;
  job.file = file;
  job.completion = &completion;
  job.tag = piece.tag;
  job.hint = piece.hint;
  job.next = at.offset;
  job.range = {.write = write,
               .begin = at.offset,
               .end = at.end(),
               .address = reinterpret_cast<std::uintptr_t>(memory.memory()),
               .page = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE)),
               .request_bytes = request.value};
  if (file->direct()) job.range.direct = file->alignment();
  return job;
}

Lane::Lane(const StorageOptions& options)
    : options_(options),
      tick_(std::max<Nanoseconds>(options.limit / kLooksPerLimit, kFirstPause)),
      jobs_(options.max_pieces),
      slots_(options.queue_depth) {
  for (Job& job : jobs_) free_jobs_.push_back(&job);
  for (Slot& slot : slots_) free_slots_.push_back(&slot);
  finished_.reserve(options.queue_depth);
  taken_.reserve(options.max_pieces);
  const MutexLock lock(mutex_);
  inbox_.reserve(options.max_pieces);
}

Lane::~Lane() {
  if (thread_.joinable()) {
    {
      const MutexLock lock(mutex_);
      ending_ = true;
      if (opened_ && *opened_) queue_->wake();
    }
    thread_.join();
  }
  if (mapped_ != nullptr) munmap(mapped_, bounce_bytes(options_) + kHugePage);
}

Result<std::unique_ptr<Lane>> Lane::open(const StorageOptions& options) {
  std::unique_ptr<Lane> lane(new Lane(options));
  HEADRACE_TRY_STATUS(lane->start());
  return lane;
}

Status Lane::start() {
  const std::size_t bytes = bounce_bytes(options_);
  void* memory =
      mmap(nullptr, bytes + kHugePage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return fail_errno(errno, "no memory for the bounce buffers");
  mapped_ = memory;
  const auto address = reinterpret_cast<std::uintptr_t>(memory);
  bounce_ = static_cast<std::byte*>(memory) + (kHugePage - address % kHugePage) % kHugePage;
  madvise(bounce_, bytes, MADV_HUGEPAGE);  // a wish: small pages work too
  for (std::size_t i = 0; i < options_.bounce_buffers; ++i) {
    free_bounces_.push_back(bounce_ + i * kBounceBytes);
  }
  HEADRACE_TRY(thread_, start_thread("headrace-ssd", [this] { run(); }));
  // Opening blocks on nothing but the kernel's answer.
  MutexLock lock(mutex_);
  while (!opened_) opened_cond_.wait_for(mutex_, kIdle);
  return *opened_;
}

// The ring belongs to the thread that opens it, so this runs in the lane's.
Status Lane::open_queue() {
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
    HEADRACE_TRY(queue_, open_threads(options_.threads));
    note_ = fmt::format("{} ({})", queue_->describe(), why);
  }
  if (options_.wrap) queue_ = options_.wrap(std::move(queue_));
  return {};
}

bool Lane::accept(Job&& job) {
  bool wake = false;
  {
    const MutexLock lock(mutex_);
    if (accepted_ >= options_.max_pieces) return false;
    ++accepted_;
    inbox_.push_back(std::move(job));
    wake = std::exchange(asleep_, false);
  }
  if (wake) queue_->wake();
  return true;
}

void Lane::run() {
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
    queue_->wait(patience(), finished_);
    {
      const MutexLock lock(mutex_);
      asleep_ = false;
    }
    if (!finished_.empty()) last_answer_ = options_.clock->now();
    for (const auto& [request, result] : finished_) finish(static_cast<Slot&>(*request), result);
    finished_.clear();
    look_at_times();
  }
  queue_.reset();  // by the thread that opened it
}

// False once everything is done and the lane is to end.
bool Lane::take_inbox() {
  bool ending = false;
  {
    const MutexLock lock(mutex_);
    std::swap(inbox_, taken_);
    asleep_ = true;
    ending = ending_;
  }
  for (Job& job : taken_) {
    Job& kept = *free_jobs_.back();
    free_jobs_.pop_back();
    kept = std::move(job);
    kept.since = options_.clock->now();
    waiting_.push_back(&kept);
  }
  taken_.clear();
  if (!ending) return true;
  if (free_jobs_.size() == jobs_.size()) return false;
  const Nanoseconds now = system_clock().now();
  if (ending_since_ == Nanoseconds{0}) ending_since_ = now;
  CHECK(now - ending_since_ < options_.limit + kKernelBound);  // see kKernelBound
  return true;
}

Status Lane::no_answer(const Job& job, std::uint64_t offset) const {
  return fail(ErrorCode::timed_out,
              "no answer for {} at offset {} within {} s; the kernel log (dmesg) says more",
              job.file->quoted(), offset, seconds(options_.limit));
}

Nanoseconds Lane::patience() const {
  if (free_slots_.size() == slots_.size()) return kIdle;
  if (parked_ == 0) return tick_;
  return std::min(tick_, kFirstPause);
}

void Lane::pump() {
  while (!waiting_.empty() && !free_slots_.empty()) {
    Job& job = *waiting_.front();
    if (!send_next(job)) return;  // no bounce buffer: one comes back with the next completion
    if (job.next == job.range.end) waiting_.pop_front();
  }
}

bool Lane::send_next(Job& job) {
  const Step step = next_step(job.range, job.next);
  if (step.bounce && free_bounces_.empty()) return false;
  Slot& slot = *free_slots_.back();
  free_slots_.pop_back();
  auto* memory = reinterpret_cast<std::byte*>(job.range.address_of(step.from));
  static_cast<Request&>(slot) = {
      .write = job.range.write,
      .fd = step.direct ? job.file->direct_fd() : job.file->buffered_fd(),
      .memory = memory,
      .bytes = step.bytes,
      .offset = step.offset,
      .bounce = step.bounce};
  if (step.bounce) {
    slot.memory = free_bounces_.back();
    free_bounces_.pop_back();
    if (slot.write) copy_bytes(slot.memory, memory, step.bytes, job.hint);
  }
  slot.job = &job;
  slot.step = step;
  slot.retries = 0;
  slot.since = options_.clock->now();
  if (free_slots_.size() + 1 == slots_.size()) last_answer_ = slot.since;
  job.next = step.to;
  ++job.under_way;
  queue_->start(slot);
  return true;
}

void Lane::finish(Slot& slot, int result) {
  const Job& job = *slot.job;
  if (job.cut_off()) return retire(slot, {});
  if (result >= 0) return advance(slot, static_cast<std::uint64_t>(result));
  if (result == -EINTR || result == -EAGAIN) return retry(slot, -result);
  if (result == -EINVAL && slot.fd == job.file->direct_fd()) {
    // A file system that opens for direct requests and then refuses them. The page cache takes
    // the same request.
    slot.fd = job.file->buffered_fd();
    slot.step.direct = false;
    return queue_->start(slot);
  }
  retire(slot, std::unexpected(error_of(job, slot.offset, -result)));
}

void Lane::retry(Slot& slot, int error) {
  if (slot.retries == kRetries) {
    return retire(slot, std::unexpected(error_of(*slot.job, slot.offset, error)));
  }
  slot.parked = true;
  slot.again = options_.clock->now() + kFirstPause * (1U << slot.retries);
  ++slot.retries;
  ++parked_;
}

// `moved` bytes of the request are done: hands on what is wanted of them, asks for the rest.
void Lane::advance(Slot& slot, std::uint64_t moved) {
  const Job& job = *slot.job;
  Step& step = slot.step;
  const std::uint64_t reached = slot.offset + moved;
  const std::uint64_t upto = std::min(step.to, reached);
  if (upto > step.from) {
    if (step.bounce && !slot.write) {
      copy_bytes(reinterpret_cast<std::byte*>(job.range.address_of(step.from)),
                 slot.memory + (step.from - slot.offset), upto - step.from, job.hint);
    }
    step.from = upto;
  }
  if (step.from == step.to) return retire(slot, {});
  // A direct request goes on at a whole block.
  const std::uint64_t block = step.direct ? job.range.direct->offset : 1;
  const std::uint64_t whole = moved & ~(block - 1);
  if (whole == 0) return no_progress(slot, reached);
  slot.memory += whole;
  slot.bytes -= whole;
  slot.offset += whole;
  slot.retries = 0;
  queue_->start(slot);
}

// Less than a block was delivered: the end of a file that has shrunk, or a device that stutters.
void Lane::no_progress(Slot& slot, std::uint64_t reached) {
  const Job& job = *slot.job;
  struct stat status{};
  if (fstat(job.file->buffered_fd(), &status) == 0 &&
      static_cast<std::uint64_t>(status.st_size) < slot.step.to) {
    return retire(slot, std::unexpected(shorter(job, reached)));
  }
  retry(slot, EIO);
}

void Lane::retire(Slot& slot, Status outcome) {
  Job& job = *slot.job;
  if (slot.step.bounce) {
    const auto at = static_cast<std::uint64_t>(slot.memory - bounce_);
    free_bounces_.push_back(bounce_ + at / kBounceBytes * kBounceBytes);
  }
  slot.job = nullptr;
  free_slots_.push_back(&slot);
  --job.under_way;
  if (!outcome) fail_job(job, std::move(outcome));
  if (job.under_way == 0 && job.next == job.range.end) report(job);
}

// No further requests for this piece; it is reported when those under way have ended.
void Lane::fail_job(Job& job, Status outcome) {
  if (job.cut_off()) return;
  job.outcome = std::move(outcome);
  if (job.next != job.range.end) {
    std::erase(waiting_, &job);
    job.next = job.range.end;
  }
}

void Lane::report(Job& job) {
  const std::uint64_t tag = job.tag;
  Completion& completion = *job.completion;
  Status outcome = std::move(job.outcome);
  job = {};
  free_jobs_.push_back(&job);
  {
    const MutexLock lock(mutex_);
    --accepted_;  // before complete(), which may submit again
  }
  completion.complete(tag, std::move(outcome));
}

void Lane::look_at_times() {
  const Nanoseconds now = options_.clock->now();
  if (parked_ == 0 && now < next_look_) return;
  next_look_ = now + tick_;
  for (Slot& slot : slots_) {
    if (slot.job != nullptr) look_at(slot, now);
  }
  look_at_waiting(now);
}

// Pieces that found no slot because the device answers nothing any more need not wait for it.
void Lane::look_at_waiting(Nanoseconds now) {
  if (now - last_answer_ < options_.limit) return;
  const std::vector<Job*> waiting(waiting_.begin(), waiting_.end());
  for (Job* job : waiting) {
    if (now - job->since < options_.limit) continue;
    fail_job(*job, no_answer(*job, job->next));
    if (job->under_way == 0) report(*job);
  }
}

void Lane::look_at(Slot& slot, Nanoseconds now) {
  Job& job = *slot.job;
  if (now - slot.since >= options_.limit && !job.cut_off()) {
    fail_job(job, no_answer(job, slot.offset));
  }
  if (slot.parked) {
    if (!job.cut_off() && now < slot.again) return;
    slot.parked = false;
    --parked_;
    if (job.cut_off()) return retire(slot, {});
    return queue_->start(slot);
  }
  if (now - slot.since >= options_.limit) queue_->cancel(slot);
}

}  // namespace headrace::storage
