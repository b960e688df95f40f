// SPDX-License-Identifier: Apache-2.0
#include "core/affinity.h"

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

namespace headrace {
namespace {

using Mask = std::vector<unsigned long>;
constexpr std::size_t kWordBits = 8 * sizeof(unsigned long);

// Requires: at least one.
Mask mask_of(std::span<const unsigned> cpus) {
  Mask mask(std::ranges::max(cpus) / kWordBits + 1);
  for (const unsigned cpu : cpus) mask[cpu / kWordBits] |= 1UL << (cpu % kWordBits);
  return mask;
}

}  // namespace

std::vector<unsigned> allowed_cpus(pid_t thread) {
  Mask mask(1024);  // 65536 CPUs, above the kernel's largest NR_CPUS
  const long bytes =
      syscall(SYS_sched_getaffinity, thread, mask.size() * sizeof(mask[0]), mask.data());
  std::vector<unsigned> cpus;
  for (unsigned cpu = 0; bytes > 0 && cpu < static_cast<unsigned long>(bytes) * 8; ++cpu) {
    if ((mask[cpu / kWordBits] >> (cpu % kWordBits) & 1) != 0) cpus.push_back(cpu);
  }
  return cpus;
}

bool pin(pthread_t thread, std::span<const unsigned> cpus) {
  if (cpus.empty()) return false;
  const Mask mask = mask_of(cpus);
  return pthread_setaffinity_np(thread, mask.size() * sizeof(mask[0]),
                                reinterpret_cast<const cpu_set_t*>(mask.data())) == 0;
}

bool pin_process(pid_t process, std::span<const unsigned> cpus) {
  if (cpus.empty()) return false;
  const Mask mask = mask_of(cpus);
  return syscall(SYS_sched_setaffinity, process, mask.size() * sizeof(mask[0]), mask.data()) == 0;
}

}  // namespace headrace
