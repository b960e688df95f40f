// SPDX-License-Identifier: Apache-2.0
#include "backend/dsa/queue/pages.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "core/fail.h"

namespace headrace::dsa {
namespace {

constexpr int kTries = 100;  // if a signal interrupts the call

const auto kPage = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));

// False: a kernel before 5.14, on which the device may have to fault on every page. Called only
// after a failure, so the answer is not kept.
bool can_populate() {
  void* const probe =
      mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (probe == MAP_FAILED) return false;
  const bool populated = madvise(probe, kPage, MADV_POPULATE_WRITE) == 0;
  munmap(probe, kPage);
  return populated;
}

Status bring_in(std::uint64_t address, std::uint64_t size, bool written) {
  const std::uint64_t begin = address / kPage * kPage;
  const std::uint64_t last = address + size - 1;
  const std::uint64_t bytes = (last / kPage + 1) * kPage - begin;
  const int advice = written ? MADV_POPULATE_WRITE : MADV_POPULATE_READ;
  int error = EAGAIN;
  for (int i = 0; i < kTries && (error == EINTR || error == EAGAIN); ++i) {
    error = madvise(reinterpret_cast<void*>(begin), bytes, advice) == 0 ? 0 : errno;
  }
  // After repeated interruptions the device tries, and faults again.
  if (error == 0 || error == EINTR || error == EAGAIN || !can_populate()) return {};
  return fail(ErrorCode::invalid, "{:#x}, {} bytes, is no memory that can be {}; check the address",
              address, size, written ? "written" : "read");
}

}  // namespace

Status bring_in(const Copy& copy, std::uint64_t most) {
  const std::uint64_t size = std::min(copy.bytes, most);
  if (size == 0) return {};
  HEADRACE_TRY_STATUS(bring_in(copy.source, size, false));
  return bring_in(copy.destination, size, true);
}

}  // namespace headrace::dsa
