// SPDX-License-Identifier: Apache-2.0
#include <liburing.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <bit>
#include <csignal>

#include "backend/storage/queue.h"
#include "core/check.h"
#include "core/fail.h"
#include "core/own_files.h"

namespace headrace::storage {
namespace {

// Entries for a few cancellations at once, besides the reads.
constexpr std::size_t kCancelEntries = 4;

// A ring without two kinds of flags: those that bind it to one thread, and those that delay
// completions until the sending thread enters the kernel again. That thread may be computing while
// another waits.
class UringShared final : public SharedRing {
 public:
  UringShared() = default;
  ~UringShared() override {
    if (!open_) return;
    own_files::remove(ring_.ring_fd);
    io_uring_queue_exit(&ring_);
  }
  UringShared(const UringShared&) = delete;
  UringShared& operator=(const UringShared&) = delete;

  Status open(std::size_t depth, int descriptor);

  void start(Request& request) override;
  void cancel(Request& request) override;
  bool send() override;
  void take(std::vector<Finished>& out, const Request* kept) override;
  void announce(bool ends) override;
  void sleep(Nanoseconds timeout) override;

 private:
  io_uring ring_{};
  std::size_t depth_ = 0;
  unsigned taken_ = 0;  // completions that were taken but are still in the ring
  bool open_ = false;
};

Status UringShared::open(std::size_t depth, int descriptor) {
  depth_ = depth;
  const auto entries = static_cast<unsigned>(std::bit_ceil(depth + kCancelEntries));
  if (const int error = -io_uring_queue_init(entries, &ring_, IORING_SETUP_CLAMP); error != 0) {
    return fail_errno(error, "io_uring");
  }
  open_ = true;
  own_files::add(ring_.ring_fd);
  if ((ring_.features & IORING_FEAT_EXT_ARG) == 0 || ring_.cq.kflags == nullptr) {
    return fail(ErrorCode::unsupported, "io_uring of this kernel is too old (5.11 is needed)");
  }
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
  const auto whole = std::chrono::duration_cast<std::chrono::seconds>(timeout);
  const __kernel_timespec limit{.tv_sec = whole.count(), .tv_nsec = (timeout - whole).count()};
  io_uring_getevents_arg bound{};
  bound.sigmask_sz = _NSIG / 8;
  bound.ts = reinterpret_cast<std::uintptr_t>(&limit);
  // The caller checks for ended reads, whatever the call returns.
  syscall(__NR_io_uring_enter, ring_.ring_fd, 0, 1, IORING_ENTER_GETEVENTS | IORING_ENTER_EXT_ARG,
          &bound, sizeof bound);
}

}  // namespace

Result<std::unique_ptr<SharedRing>> open_shared_ring(std::size_t depth, int descriptor) {
  auto ring = std::make_unique<UringShared>();
  HEADRACE_TRY_STATUS(ring->open(depth, descriptor));
  return ring;
}

}  // namespace headrace::storage
