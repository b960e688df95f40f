#include "backend/linux/policy.h"

#include <linux/mempolicy.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "core/check.h"

namespace headrace {
namespace {

int mode_of(Policy policy) {
  switch (policy) {
    case Policy::preferred: return MPOL_PREFERRED;
    case Policy::bind: return MPOL_BIND;
    case Policy::interleave: return MPOL_INTERLEAVE;
  }
  CHECK(false);
  return 0;
}

// Stores a zero into each page that is zero anyway: for kernels before 5.14.
void touch_by_store(std::byte* memory, std::size_t length) {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  for (std::size_t at = 0; at < length; at += page) {
    *static_cast<volatile std::byte*>(memory + at) = std::byte{0};
  }
}

}  // namespace

int set_policy(std::byte* memory, std::size_t length, Policy policy,
               std::span<const NodeId> nodes) {
  constexpr std::size_t kBits = 8 * sizeof(unsigned long);
  std::vector<unsigned long> mask;
  for (const NodeId node : nodes) {
    if (mask.size() <= raw(node) / kBits) mask.resize(raw(node) / kBits + 1);
    mask[raw(node) / kBits] |= 1UL << (raw(node) % kBits);
  }
  // The kernel reads one bit less than it is told.
  const unsigned long bits = mask.size() * kBits + 1;
  return ::syscall(SYS_mbind, memory, length, mode_of(policy), mask.data(), bits, 0U) == 0 ? 0
                                                                                           : errno;
}

int page_nodes(std::span<void*> addresses, std::span<int> nodes) {
  CHECK(addresses.size() == nodes.size());
  return ::syscall(SYS_move_pages, 0, addresses.size(), addresses.data(), nullptr, nodes.data(),
                   0) == 0
             ? 0
             : errno;
}

int populate(std::byte* memory, std::size_t length) {
  int error = 0;
  do {
    error = ::madvise(memory, length, MADV_POPULATE_WRITE) == 0 ? 0 : errno;
  } while (error == EINTR);
  if (error != EINVAL) return error;
  touch_by_store(memory, length);
  return 0;
}

}  // namespace headrace
