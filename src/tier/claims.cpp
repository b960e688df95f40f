// SPDX-License-Identifier: Apache-2.0
#include "tier/claims.h"

#include <pthread.h>
#include <sys/mman.h>

#include <map>

#include "core/fail.h"
#include "core/fork.h"
#include "memory/memory.h"

namespace headrace {
namespace {

struct Claim {
  std::uintptr_t end;
  HotnessKind kind;
};

GlobalMutex claims_mutex{kRankOfTracked};
bool accessed_bits_claimed GUARDED_BY(claims_mutex) = false;

// Keyed by begin; disjoint. Never destroyed: a source may end while the program ends.
std::map<std::uintptr_t, Claim>& claims() REQUIRES(claims_mutex) {
  static std::map<std::uintptr_t, Claim>& all = *new std::map<std::uintptr_t, Claim>;
  return all;
}

struct Shared {
  std::uintptr_t end;
  FileId file;
};

// All SharedMemory, by begin; a child has it too.
std::map<std::uintptr_t, Shared>& shared_memory() REQUIRES(claims_mutex) {
  static auto& all = *new std::map<std::uintptr_t, Shared>;
  return all;
}

std::optional<FileId> file_of(std::uintptr_t begin, std::uintptr_t end) REQUIRES(claims_mutex) {
  const auto after = shared_memory().upper_bound(begin);
  if (after == shared_memory().begin() || std::prev(after)->second.end < end) return std::nullopt;
  return std::prev(after)->second.file;
}

// Registered after the handler of claims_mutex, which frees the mutex in the child. A child
// inherits the changes that `referenced` made to mappings, and nothing undoes them there.
[[maybe_unused]] const int claims_registered = pthread_atfork(nullptr, nullptr, [] {
  const MutexLock lock(claims_mutex);
  for (const auto& [begin, each] : claims()) {
    if (each.kind != HotnessKind::referenced) continue;
    (void)::madvise(reinterpret_cast<void*>(begin), each.end - begin, MADV_DODUMP);
  }
  claims().clear();
  accessed_bits_claimed = false;
});

}  // namespace

Status claim(std::uintptr_t begin, std::uintptr_t end, HotnessKind kind) {
  const MutexLock lock(claims_mutex);
  const auto after = claims().lower_bound(end);
  if (after != claims().begin()) {
    if (const auto& [at, last] = *std::prev(after); last.end > begin) {
      return fail(ErrorCode::invalid,
                  "the memory [{:#x}, {:#x}) is tracked already, by {}; untrack it there first", at,
                  last.end, to_string(last.kind));
    }
  }
  claims().emplace(begin, Claim{end, kind});
  return {};
}

void release_claim(std::uintptr_t begin) {
  const MutexLock lock(claims_mutex);
  claims().erase(begin);
}

void add_shared(std::span<std::byte> memory, FileId file) {
  const auto begin = reinterpret_cast<std::uintptr_t>(memory.data());
  const MutexLock lock(claims_mutex);
  shared_memory().insert_or_assign(begin, Shared{begin + memory.size(), file});
}

void unmap_shared(std::span<std::byte> memory) {
  const MutexLock lock(claims_mutex);
  shared_memory().erase(reinterpret_cast<std::uintptr_t>(memory.data()));
  unmap(memory.data(), memory.size());
}

std::optional<FileId> shared_file(std::uintptr_t begin, std::uintptr_t end) {
  const MutexLock lock(claims_mutex);
  return file_of(begin, end);
}

std::optional<int> drop_entries(Kernel& kernel, std::uintptr_t begin, std::uintptr_t end) {
  const MutexLock lock(claims_mutex);
  if (!file_of(begin, end)) return std::nullopt;
  return kernel.madvise(begin, end - begin, MADV_DONTNEED);
}

bool claim_accessed_bits() {
  const MutexLock lock(claims_mutex);
  return !std::exchange(accessed_bits_claimed, true);
}

void release_accessed_bits() {
  const MutexLock lock(claims_mutex);
  accessed_bits_claimed = false;
}

}  // namespace headrace
