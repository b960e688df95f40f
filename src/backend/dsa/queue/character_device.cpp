// SPDX-License-Identifier: Apache-2.0
#include "backend/dsa/queue/character_device.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <limits>

#include "core/fail.h"
#include "core/fork.h"
#include "core/own_files.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

namespace headrace::dsa {
namespace {

constexpr std::size_t kPortalBytes = 4096;
constexpr std::size_t kLineBytes = 64;

#if defined(__x86_64__)
__attribute__((target("movdir64b"))) void movdir64b(void* portal, const Descriptor& descriptor) {
  _movdir64b(portal, &descriptor);
}
// Returns whether the device took it.
__attribute__((target("enqcmd"))) bool enqcmd(void* portal, const Descriptor& descriptor) {
  return _enqcmd(portal, &descriptor) == 0;
}
void store_fence() { _mm_sfence(); }
#else
void movdir64b(void*, const Descriptor&) {}
bool enqcmd(void*, const Descriptor&) { return false; }
void store_fence() {}
#endif

Unexpected after_fork() {
  return fail(ErrorCode::denied,
              "the queue was opened before a fork(); open it again in the child");
}

// A work queue that this process has open. The driver ends work in flight when the last process
// closes the file. A child that kept it open would let the device write after the parent's close().
class OpenFile {
 public:
  explicit OpenFile(int fd) : fd_(fd) {}
  ~OpenFile() {
    // In a child it was closed at the fork.
    if (origin_.here()) own_files::close(fd_);
  }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  int get() const { return fd_; }

 private:
  const int fd_;
  const Origin origin_;
};

class MappedPortal final : public Portal {
 public:
  MappedPortal(std::unique_ptr<OpenFile> file, void* page, const WorkQueue& queue)
      : file_(std::move(file)),
        page_(static_cast<std::byte*>(page)),
        shared_(queue.shared),
        batches_(queue.operations.has(Opcode::batch)) {}
  ~MappedPortal() override {
    // A child does not have this mapping.
    if (origin_.here()) munmap(page_, kPortalBytes);
  }

  Result<std::size_t> submit(std::span<const Descriptor> descriptors) override {
    if (!origin_.here()) return after_fork();
    // ENQCMD and MOVDIR64B are not ordered after the stores to the memory that they point to.
    store_fence();
    std::size_t taken = 0;
    for (const Descriptor& descriptor : descriptors) {
      if (!submit_one(descriptor)) break;
      ++taken;
    }
    return taken;
  }
  bool takes_batches() const override { return batches_; }
  std::string_view name() const override { return shared_ ? "ENQCMD" : "MOVDIR64B"; }

 private:
  bool submit_one(const Descriptor& descriptor) {
    // Each line of the page is the same portal. Using them in turn lets the CPU combine the writes.
    const std::size_t line = next_++;
    std::byte* const portal = page_ + line * kLineBytes % kPortalBytes;
    if (shared_) return enqcmd(portal, descriptor);
    movdir64b(portal, descriptor);
    return true;
  }

  const std::unique_ptr<OpenFile> file_;
  std::byte* const page_;
  const bool shared_;
  const bool batches_;
  const Origin origin_;
  std::atomic<std::size_t> next_{0};
};

// The way by idxd's write(): each call takes as many descriptors as fit. The kernel submits each
// with its own ENQCMDS or MOVDIR64B.
class WrittenPortal final : public Portal {
 public:
  explicit WrittenPortal(std::unique_ptr<OpenFile> file) : file_(std::move(file)) {}

  Result<std::size_t> submit(std::span<const Descriptor> descriptors) override {
    if (!origin_.here()) return after_fork();
    if (descriptors.empty()) return 0;
    ssize_t written = 0;
    do {
      written = write(file_->get(), descriptors.data(), descriptors.size_bytes());
    } while (written < 0 && errno == EINTR);
    if (written >= 0) return static_cast<std::size_t>(written) / sizeof(Descriptor);
    switch (errno) {
      case EAGAIN:
      case EBUSY: return 0;
      case EPERM:
      case EACCES: return fail(ErrorCode::denied, "the kernel takes no more descriptors from us");
      case ENODEV:
      case ENXIO:
      case EIO:
      case ENOTCONN: return fail(ErrorCode::absent, "the queue is disabled or gone");
      case EINVAL:
        return fail(ErrorCode::invalid, "the kernel refused a descriptor (opcode or record)");
      default: return fail_errno(errno, "cannot write to the work queue");
    }
  }
  bool takes_batches() const override { return false; }
  bool mapped() const override { return false; }
  std::string_view name() const override { return "write()"; }

 private:
  const std::unique_ptr<OpenFile> file_;
  const Origin origin_;
};

Unexpected cannot_open(const WorkQueue& queue, int error) {
  switch (error) {
    case EACCES:
    case EPERM:
      return fail(ErrorCode::denied, "{} is not ours to open: chown it, or add a udev rule for it",
                  queue.file.string());
    case EBUSY:
      return fail(ErrorCode::exhausted,
                  "{} is a dedicated queue that another process has; configure a shared one",
                  queue.file.string());
    default:
      return fail(ErrorCode::absent, "{} cannot be opened ({}); is the queue enabled?",
                  queue.file.string(), std::generic_category().message(error));
  }
}

}  // namespace

CpuInstructions cpu_instructions() {
  CpuInstructions found;
#if defined(__x86_64__)
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) != 0) {
    found = {.movdir64b = (c >> 28 & 1) != 0, .enqcmd = (c >> 29 & 1) != 0};
  }
#endif
  return found;
}

Result<std::unique_ptr<Portal>> open_character_device(const WorkQueue& queue,
                                                      CharacterDeviceOptions options) {
  const int fd = own_files::open(queue.file.c_str());
  if (fd < 0) return cannot_open(queue, errno);
  auto file = std::make_unique<OpenFile>(fd);
  const CpuInstructions has = cpu_instructions();
  if (!options.force_write && (queue.shared ? has.enqcmd : has.movdir64b)) {
    void* const page = mmap(nullptr, kPortalBytes, PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
    if (page != MAP_FAILED) return std::make_unique<MappedPortal>(std::move(file), page, queue);
  }
  // Writes nothing: this only finds out whether the driver has write() (Linux 6.10 and later).
  if (write(fd, nullptr, 0) != 0) {
    return fail(ErrorCode::unsupported,
                "{} can neither be mapped nor written to; use Linux 6.10 or later, or grant "
                "CAP_SYS_RAWIO on a CPU with {}",
                queue.file.string(), queue.shared ? "ENQCMD" : "MOVDIR64B");
  }
  return std::make_unique<WrittenPortal>(std::move(file));
}

}  // namespace headrace::dsa
