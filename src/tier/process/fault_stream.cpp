// SPDX-License-Identifier: Apache-2.0
#include "tier/process/fault_stream.h"

#include <linux/perf_event.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <limits>
#include <set>

#include "core/fail.h"

namespace headrace {
namespace {

// Bytes of all rings together; each thread gets a power of two of pages.
constexpr std::size_t kAllRings = 64 << 20;
constexpr std::size_t kLargestRing = 1 << 20;
constexpr std::size_t kMostThreads = 1024;
// Descriptors left for the rest of the process.
constexpr int kLeftDescriptors = 64;

int open_event(std::uint64_t config, pid_t thread, bool in_kernel) {
  perf_event_attr attributes{};
  attributes.type = PERF_TYPE_SOFTWARE;
  attributes.size = sizeof attributes;
  attributes.config = config;
  attributes.sample_period = 1;
  attributes.sample_type = PERF_SAMPLE_IDENTIFIER | PERF_SAMPLE_ADDR;
  attributes.exclude_kernel = in_kernel ? 0 : 1;
  attributes.exclude_hv = 1;
  const long descriptor =
      ::syscall(SYS_perf_event_open, &attributes, thread, -1, -1, PERF_FLAG_FD_CLOEXEC);
  return descriptor < 0 ? -errno : static_cast<int>(descriptor);
}

// Includes faults taken in system calls, where that is allowed.
int open_event(std::uint64_t config, pid_t thread) {
  const int all = open_event(config, thread, true);
  return all == -EACCES || all == -EPERM ? open_event(config, thread, false) : all;
}

Unexpected cannot_listen(int error) {
  if (error == ESRCH) return fail(ErrorCode::absent, "the thread has ended");
  return fail_errno(error, "cannot listen for page faults (perf_event_open)");
}

// Upper bound on descriptor numbers of the process.
int largest_descriptor() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return std::numeric_limits<int>::max();
  const rlim_t most = std::numeric_limits<int>::max();
  return static_cast<int>(std::min(limit.rlim_cur, most)) - 1;
}

Result<std::set<pid_t>> threads_of(int pid) {
  std::set<pid_t> threads;
  std::error_code error;
  const auto path = std::filesystem::path("/proc") / std::to_string(pid) / "task";
  for (std::filesystem::directory_iterator each(path, error), end; !error && each != end;
       each.increment(error)) {
    const std::string name = each->path().filename();
    pid_t id = 0;
    std::from_chars(name.data(), name.data() + name.size(), id);
    if (id > 0) threads.insert(id);
  }
  const bool ended = error.value() == ENOENT || error.value() == ESRCH;
  if (ended || (!error && threads.empty())) {
    return fail(ErrorCode::absent, "process {} has ended", pid);
  }
  if (error) return fail_errno(error.value(), "cannot list the threads of a process");
  return threads;
}

std::uint64_t word_at(std::span<const std::byte> ring, std::uint64_t at) {
  std::uint64_t word;
  std::memcpy(&word, ring.data() + at % ring.size(), sizeof word);
  return word;
}

}  // namespace

std::uint64_t read_ring(std::span<const std::byte> ring, std::uint64_t& tail, std::uint64_t head,
                        std::uint64_t major_id, std::vector<PageFault>& faults) {
  std::uint64_t lost = 0;
  // Records are multiples of 8 bytes, so the end of the ring splits no word.
  while (tail < head) {
    const auto header = std::bit_cast<perf_event_header>(word_at(ring, tail));
    if (header.size < sizeof header) break;
    if (header.type == PERF_RECORD_SAMPLE) {
      faults.push_back(
          {.address = word_at(ring, tail + 16), .major = word_at(ring, tail + 8) == major_id});
    } else if (header.type == PERF_RECORD_LOST) {
      lost += word_at(ring, tail + 16);
    }
    tail += header.size;
  }
  tail = head;
  return lost;
}

FaultStream::Thread::~Thread() {
  if (ring != nullptr) ::munmap(ring, bytes);
}

Status FaultStream::open(Thread& thread, pid_t id, std::size_t bytes) {
  const int minor = open_event(PERF_COUNT_SW_PAGE_FAULTS_MIN, id);
  if (minor < 0) return cannot_listen(-minor);
  thread.minor = OwnDescriptor(minor);
  const int major = open_event(PERF_COUNT_SW_PAGE_FAULTS_MAJ, id);
  if (major < 0) return cannot_listen(-major);
  thread.major = OwnDescriptor(major);
  if (const int most = largest_descriptor(); std::max(minor, major) > most - kLeftDescriptors) {
    return fail(ErrorCode::exhausted, "ulimit -n {} leaves no more descriptors", most + 1);
  }
  thread.bytes = bytes + static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  void* const ring = ::mmap(nullptr, thread.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, minor, 0);
  if (ring == MAP_FAILED) {
    return fail_errno(errno, "cannot map a ring of perf (see kernel.perf_event_mlock_kb)");
  }
  thread.ring = ring;
  if (::ioctl(major, PERF_EVENT_IOC_SET_OUTPUT, minor) != 0 ||
      ::ioctl(major, PERF_EVENT_IOC_ID, &thread.major_id) != 0) {
    return fail_errno(errno, "cannot put two events of perf into one ring");
  }
  return {};
}

Status FaultStream::listen(int pid) {
  HEADRACE_TRY(const std::set<pid_t> now, threads_of(pid));
  std::erase_if(threads_, [&](const auto& each) { return !now.contains(each.first); });
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const std::size_t share = kAllRings / std::min(now.size(), kMostThreads);
  const std::size_t bytes = std::bit_floor(std::clamp(share, 2 * page, kLargestRing));
  std::string why;
  for (const pid_t id : now) {
    if (threads_.contains(id)) continue;
    if (threads_.size() >= kMostThreads) {
      why = fmt::format("{} are the most", kMostThreads);
      break;
    }
    const auto opened = open(threads_[id], id, bytes);
    if (opened) continue;
    threads_.erase(id);
    // The thread may have ended meanwhile.
    if (opened.error().code == ErrorCode::absent) continue;
    if (threads_.empty()) return opened;
    why = opened.error().message;
    break;
  }
  unheard_ = why.empty() ? why
                         : fmt::format(
                               "page faults of {} of {} threads are listened to ({}); "
                               "surveys see what the others bring back",
                               threads_.size(), now.size(), why);
  return {};
}

std::uint64_t FaultStream::take(std::vector<PageFault>& faults) {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  std::uint64_t lost = 0;
  for (auto& [id, thread] : threads_) {
    auto& control = *static_cast<perf_event_mmap_page*>(thread.ring);
    const std::span ring(static_cast<const std::byte*>(thread.ring) + page, thread.bytes - page);
    // Acquire: pairs with the kernel's store after the records; release: it may now reuse them.
    const std::uint64_t head = std::atomic_ref(control.data_head).load(std::memory_order_acquire);
    std::uint64_t tail = control.data_tail;
    lost += read_ring(ring, tail, head, thread.major_id, faults);
    std::atomic_ref(control.data_tail).store(tail, std::memory_order_release);
  }
  return lost;
}

}  // namespace headrace
