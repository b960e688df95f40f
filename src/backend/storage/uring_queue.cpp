// SPDX-License-Identifier: Apache-2.0
#include <liburing.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <bit>
#include <cerrno>
#include <csignal>

#include "backend/storage/queue.h"
#include "core/check.h"
#include "core/fail.h"
#include "core/own_files.h"

namespace headrace::storage {
namespace {

// user_data of entries that are no requests. A request has its address, which differs from both.
constexpr std::uint64_t kWake = 1;
constexpr std::uint64_t kCancel = 2;
// Entries besides the requests: the watch on the eventfd, and a few cancellations at once.
constexpr std::size_t kSpareEntries = 8;
// The pause after an unforeseen refusal of the kernel, to avoid spinning.
constexpr useconds_t kPause = 10'000;

// From the best set-up to the one that every kernel knows. With DEFER_TASKRUN (6.1) the waiting
// thread processes completions in wait(), so they interrupt no thread.
constexpr std::array<unsigned, 3> kSetups = {
    IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_CLAMP,
    IORING_SETUP_COOP_TASKRUN | IORING_SETUP_CLAMP, IORING_SETUP_CLAMP};

// A ring that ends with its owner.
struct Ring : io_uring {
  Ring() : io_uring{} {}
  ~Ring() {
    if (!is_open) return;
    own_files::remove(ring_fd);
    io_uring_queue_exit(this);
  }
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;

  // Uses the first set-up that the kernel knows.
  Status open(std::size_t entries, std::span<const unsigned> setups) {
    int error = 0;
    for (const unsigned setup : setups) {
      error = -io_uring_queue_init(static_cast<unsigned>(std::bit_ceil(entries)), this, setup);
      if (error != EINVAL) break;
    }
    if (error != 0) return fail_errno(error, "io_uring");
    is_open = true;
    own_files::add(ring_fd);
    // A wait with a bound needs 5.11.
    if ((features & IORING_FEAT_EXT_ARG) == 0 || cq.kflags == nullptr) {
      return fail(ErrorCode::unsupported, "io_uring of this kernel is too old (5.11 is needed)");
    }
    return {};
  }
  bool is_open = false;
};

struct EventFd {
  EventFd() = default;
  ~EventFd() {
    if (fd >= 0) own_files::close(fd);
  }
  EventFd(const EventFd&) = delete;
  EventFd& operator=(const EventFd&) = delete;
  int fd = -1;
};

__kernel_timespec to_timespec(Nanoseconds time) {
  const auto whole = std::chrono::duration_cast<std::chrono::seconds>(time);
  return {.tv_sec = whole.count(), .tv_nsec = (time - whole).count()};
}

class UringQueue final : public Queue {
 public:
  Status open(std::size_t depth, std::span<std::byte> bounce);

  void start(Request& request) override;
  void cancel(Request& request) override;
  void wait(Nanoseconds timeout, std::vector<Finished>& out) override;
  void wake() override { CHECK(eventfd_write(event_.fd, 1) == 0); }
  std::optional<int> wake_descriptor() const override { return event_.fd; }
  std::string describe() const override {
    return registered_ ? "io_uring, registered bounce buffers" : "io_uring";
  }

 private:
  io_uring_sqe* entry();
  void watch();
  void reap(std::vector<Finished>& out);

  std::size_t depth_ = 0;
  bool registered_ = false;
  bool watching_ = false;
  EventFd event_;
  Ring ring_;  // last: it ends before the eventfd, which it watches
};

Status UringQueue::open(std::size_t depth, std::span<std::byte> bounce) {
  event_.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (event_.fd < 0) return fail_errno(errno, "eventfd");
  own_files::add(event_.fd);
  depth_ = depth;
  HEADRACE_TRY_STATUS(ring_.open(depth + kSpareEntries, kSetups));
  // A filter may allow the set-up but deny the other calls: try one round.
  io_uring_prep_nop(entry());
  if (const int sent = io_uring_submit_and_wait(&ring_, 1); sent < 0) {
    return fail_errno(-sent, "io_uring");
  }
  std::vector<Finished> none;
  reap(none);
  const iovec region{.iov_base = bounce.data(), .iov_len = bounce.size()};
  registered_ = !bounce.empty() && io_uring_register_buffers(&ring_, &region, 1) == 0;
  return {};
}

io_uring_sqe* UringQueue::entry() {
  io_uring_sqe* sqe = io_uring_get_sqe(&ring_);
  if (sqe == nullptr) {
    io_uring_submit(&ring_);
    sqe = io_uring_get_sqe(&ring_);
  }
  return sqe;
}

void UringQueue::start(Request& request) {
  io_uring_sqe* sqe = entry();
  CHECK(sqe != nullptr);  // there are more entries than requests
  const auto bytes = static_cast<unsigned>(request.bytes);
  if (request.bounce && registered_) {
    if (request.write) {
      io_uring_prep_write_fixed(sqe, request.fd, request.memory, bytes, request.offset, 0);
    } else {
      io_uring_prep_read_fixed(sqe, request.fd, request.memory, bytes, request.offset, 0);
    }
  } else if (request.write) {
    io_uring_prep_write(sqe, request.fd, request.memory, bytes, request.offset);
  } else {
    io_uring_prep_read(sqe, request.fd, request.memory, bytes, request.offset);
  }
  io_uring_sqe_set_data(sqe, &request);
}

void UringQueue::cancel(Request& request) {
  // Uses spare entries only. If the kernel takes no entry for a while, start() still needs one for
  // each request, and watch() one. The caller asks again at its next look.
  if (io_uring_sq_space_left(&ring_) <= depth_ + 1) io_uring_submit(&ring_);
  if (io_uring_sq_space_left(&ring_) <= depth_ + 1) return;
  io_uring_sqe* sqe = io_uring_get_sqe(&ring_);
  io_uring_prep_cancel(sqe, &request, 0);
  io_uring_sqe_set_data64(sqe, kCancel);
}

void UringQueue::watch() {
  if (watching_) return;
  io_uring_sqe* sqe = entry();
  if (sqe == nullptr) return;
  io_uring_prep_poll_add(sqe, event_.fd, POLLIN);
  io_uring_sqe_set_data64(sqe, kWake);
  watching_ = true;
}

void UringQueue::reap(std::vector<Finished>& out) {
  io_uring_cqe* cqe = nullptr;
  unsigned head = 0;
  unsigned count = 0;
  io_uring_for_each_cqe(&ring_, head, cqe) {
    ++count;
    const std::uint64_t data = io_uring_cqe_get_data64(cqe);
    if (data == kWake) {
      watching_ = false;
      eventfd_t ignored = 0;
      eventfd_read(event_.fd, &ignored);
    } else if (data > kCancel) {
      out.push_back({static_cast<Request*>(io_uring_cqe_get_data(cqe)), cqe->res});
    }
  }
  io_uring_cq_advance(&ring_, count);
}

void UringQueue::wait(Nanoseconds timeout, std::vector<Finished>& out) {
  watch();
  __kernel_timespec limit = to_timespec(timeout);
  io_uring_cqe* first = nullptr;
  const int sent = io_uring_submit_and_wait_timeout(&ring_, &first, 1, &limit, nullptr);
  if (sent < 0 && sent != -ETIME && sent != -EINTR) usleep(kPause);
  reap(out);
}

// Entries for a few cancellations at once, besides the reads.
constexpr std::size_t kCancelEntries = 4;

// A ring without two kinds of flags: those that bind it to one thread, and those that delay
// completions until the sending thread enters the kernel again. That thread may be computing while
// another waits.
class UringShared final : public SharedRing {
 public:
  Status open(std::size_t depth, int descriptor);

  void start(Request& request) override;
  void cancel(Request& request) override;
  bool send() override;
  void take(std::vector<Finished>& out, const Request* kept) override;
  void announce(bool ends) override;
  void sleep(Nanoseconds timeout) override;

 private:
  Ring ring_;
  std::size_t depth_ = 0;
  unsigned taken_ = 0;  // completions that were taken but are still in the ring
};

Status UringShared::open(std::size_t depth, int descriptor) {
  depth_ = depth;
  constexpr std::array<unsigned, 1> kPlain = {IORING_SETUP_CLAMP};
  HEADRACE_TRY_STATUS(ring_.open(depth + kCancelEntries, kPlain));
  announce(false);
  if (const int error = -io_uring_register_eventfd(&ring_, descriptor); error != 0) {
    return fail_errno(error, "io_uring");
  }
  return {};
}

void UringShared::start(Request& request) {
  io_uring_sqe* sqe = io_uring_get_sqe(&ring_);
  CHECK(sqe != nullptr);  // there are more entries than requests
  CHECK(!request.write);
  io_uring_prep_read(sqe, request.fd, request.memory, static_cast<unsigned>(request.bytes),
                     request.offset);
  io_uring_sqe_set_data(sqe, &request);
}

void UringShared::cancel(Request& request) {
  // Uses spare entries only. If the kernel takes no entry for a while, start() still needs one for
  // each read. The caller asks again at its next look.
  if (io_uring_sq_space_left(&ring_) <= depth_) return;
  io_uring_sqe* sqe = io_uring_get_sqe(&ring_);
  io_uring_prep_cancel(sqe, &request, 0);
  io_uring_sqe_set_data(sqe, nullptr);
}

bool UringShared::send() {
  io_uring_submit(&ring_);
  return io_uring_sq_ready(&ring_) == 0;
}

// The kernel lets no thread sleep while a completion is in the ring.
void UringShared::take(std::vector<Finished>& out, const Request* kept) {
  io_uring_cqe* cqe = nullptr;
  unsigned head = 0;
  unsigned count = 0;
  unsigned gone = 0;
  bool keeps = false;
  io_uring_for_each_cqe(&ring_, head, cqe) {
    auto* request = static_cast<Request*>(io_uring_cqe_get_data(cqe));
    keeps = keeps || (request != nullptr && request == kept);
    if (!keeps) ++gone;
    if (++count > taken_ && request != nullptr) out.push_back({request, cqe->res});
  }
  taken_ = count - gone;
  io_uring_cq_advance(&ring_, gone);
}

// The kernel first stores the completion. Then, after a full barrier (wq_has_sleeper), it checks
// the flag. With the fence here, either the kernel sees the flag or take() sees the completion.
void UringShared::announce(bool ends) {
  io_uring_cq_eventfd_toggle(&ring_, ends);
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

// Makes the system call itself, since liburing would read fields that other threads change
// meanwhile.
void UringShared::sleep(Nanoseconds timeout) {
  const __kernel_timespec limit = to_timespec(timeout);
  io_uring_getevents_arg bound{};
  bound.sigmask_sz = _NSIG / 8;
  bound.ts = reinterpret_cast<std::uintptr_t>(&limit);
  // The caller checks for ended reads, whatever the call returns.
  syscall(__NR_io_uring_enter, ring_.ring_fd, 0, 1, IORING_ENTER_GETEVENTS | IORING_ENTER_EXT_ARG,
          &bound, sizeof bound);
}

}  // namespace

Result<std::unique_ptr<Queue>> open_uring(std::size_t depth, std::span<std::byte> bounce) {
  auto queue = std::make_unique<UringQueue>();
  HEADRACE_TRY_STATUS(queue->open(depth, bounce));
  return queue;
}

Result<std::unique_ptr<SharedRing>> open_shared_ring(std::size_t depth, int descriptor) {
  auto ring = std::make_unique<UringShared>();
  HEADRACE_TRY_STATUS(ring->open(depth, descriptor));
  return ring;
}

}  // namespace headrace::storage
