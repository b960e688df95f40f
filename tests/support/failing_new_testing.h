// SPDX-License-Identifier: Apache-2.0
// Operators new and delete for tests in which memory runs out. One file of a program includes this
// header and defines which allocations fail. Empty with HEADRACE_TSAN: clang's ThreadSanitizer has
// these operators itself.
#pragma once

#include <malloc.h>
#include <pthread.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <string_view>

#include "core/sanitizers.h"

#if !defined(HEADRACE_TSAN)

namespace headrace::test {

// Whether this thread's present allocation fails. Defined by the including test; allocates nothing.
bool allocation_fails() noexcept;

// The bytes that are allocated now, with the allocator's header of 8 bytes each.
inline constinit std::atomic<std::int64_t> live_bytes{0};

inline void count_live(void* memory, std::int64_t sign) noexcept {
  live_bytes += sign * static_cast<std::int64_t>(malloc_usable_size(memory) + 8);
}

// Whether this thread has that name. The name is read once per thread. Requires: one name per
// program.
inline bool this_thread_is(std::string_view name) noexcept {
  enum class Is { unknown, it, another };
  constinit static thread_local Is is = Is::unknown;
  if (is == Is::unknown) {
    char own[16] = "";
    pthread_getname_np(pthread_self(), own, sizeof own);
    is = std::string_view(own) == name ? Is::it : Is::another;
  }
  return is == Is::it;
}

inline void* allocate_or_fail(std::size_t size) {
  if (allocation_fails()) throw std::bad_alloc();
  void* const memory = std::malloc(size == 0 ? 1 : size);
  if (memory == nullptr) throw std::bad_alloc();
  count_live(memory, 1);
  return memory;
}

// Not inlined: a compiler that sees both ends reports a mismatch.
[[gnu::noinline]] inline void give_back(void* memory) noexcept {
  if (memory != nullptr) count_live(memory, -1);
  std::free(memory);
}

}  // namespace headrace::test

// NOLINTBEGIN(misc-definitions-in-headers): in one file of a program
void* operator new(std::size_t size) { return headrace::test::allocate_or_fail(size); }
void* operator new[](std::size_t size) { return headrace::test::allocate_or_fail(size); }
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  try {
    return headrace::test::allocate_or_fail(size);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}
void operator delete(void* memory) noexcept { headrace::test::give_back(memory); }
void operator delete[](void* memory) noexcept { headrace::test::give_back(memory); }
void operator delete(void* memory, std::size_t) noexcept { headrace::test::give_back(memory); }
void operator delete[](void* memory, std::size_t) noexcept { headrace::test::give_back(memory); }
// NOLINTEND(misc-definitions-in-headers)

#endif  // HEADRACE_TSAN
