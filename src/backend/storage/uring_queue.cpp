// SPDX-License-Identifier: Apache-2.0
#include <liburing.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <cerrno>

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

class UringQueue final : public Queue {
 public:
  UringQueue() = default;
  ~UringQueue() override {
    if (open_) {
      own_files::remove(ring_.ring_fd);
      io_uring_queue_exit(&ring_);
    }
    if (event_ >= 0) own_files::close(event_);
  }
  UringQueue(const UringQueue&) = delete;
  UringQueue& operator=(const UringQueue&) = delete;

  Status open(std::size_t depth, std::span<std::byte> bounce);

  void start(Request& request) override;
  void cancel(Request& request) override;
  void wait(Nanoseconds timeout, std::vector<Finished>& out) override;
  void wake() override { CHECK(eventfd_write(event_, 1) == 0); }
  std::optional<int> wake_descriptor() const override { return event_; }
  std::string describe() const override {
    return registered_ ? "io_uring, registered bounce buffers" : "io_uring";
  }

 private:
  io_uring_sqe* entry();
  void watch();
  void reap(std::vector<Finished>& out);

  io_uring ring_{};
  std::size_t depth_ = 0;
  int event_ = -1;
  bool open_ = false;
  bool registered_ = false;
  bool watching_ = false;
};

Status UringQueue::open(std::size_t depth, std::span<std::byte> bounce) {
  event_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (event_ < 0) return fail_errno(errno, "eventfd");
  own_files::add(event_);
  const auto entries = static_cast<unsigned>(std::bit_ceil(depth + kSpareEntries));
  depth_ = depth;
  int error = 0;
  for (const unsigned setup : kSetups) {
    error = -io_uring_queue_init(entries, &ring_, setup);
    if (error != EINVAL) break;
  }
  if (error != 0) return fail_errno(error, "io_uring");
  open_ = true;
  own_files::add(ring_.ring_fd);
  // A wait with a bound needs 5.11.
  if ((ring_.features & IORING_FEAT_EXT_ARG) == 0) {
    return fail(ErrorCode::unsupported, "io_uring of this kernel is too old (5.11 is needed)");
  }
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
  io_uring_prep_poll_add(sqe, event_, POLLIN);
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
      eventfd_read(event_, &ignored);
    } else if (data > kCancel) {
      out.push_back({static_cast<Request*>(io_uring_cqe_get_data(cqe)), cqe->res});
    }
  }
  io_uring_cq_advance(&ring_, count);
}

void UringQueue::wait(Nanoseconds timeout, std::vector<Finished>& out) {
  watch();
  const auto whole = std::chrono::duration_cast<std::chrono::seconds>(timeout);
  __kernel_timespec limit{.tv_sec = whole.count(), .tv_nsec = (timeout - whole).count()};
  io_uring_cqe* first = nullptr;
  const int sent = io_uring_submit_and_wait_timeout(&ring_, &first, 1, &limit, nullptr);
  if (sent < 0 && sent != -ETIME && sent != -EINTR) usleep(kPause);
  reap(out);
}

}  // namespace

Result<std::unique_ptr<Queue>> open_uring(std::size_t depth, std::span<std::byte> bounce) {
  auto queue = std::make_unique<UringQueue>();
  HEADRACE_TRY_STATUS(queue->open(depth, bounce));
  return queue;
}

}  // namespace headrace::storage
