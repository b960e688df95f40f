// SPDX-License-Identifier: Apache-2.0
// The functions that code compiled with -fsanitize=thread calls, and those of the C library by
// which threads meet. In a schedule each is an operation after which another thread may run;
// outside one they do what they always do. Linked in place of ThreadSanitizer's own runtime.
#include <dlfcn.h>
#include <errno.h>
#include <linux/futex.h>
#include <linux/membarrier.h>
#include <malloc.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdarg>
#include <cstdlib>
#include <cstring>

#include "tests/explore/real.h"
#include "tests/explore/schedule.h"

namespace headrace::explore {
namespace {

#define HERE __builtin_return_address(0)

template <class T>
bool on_own_stack(const Thread& thread, const volatile T* at) {
  const auto* const address = reinterpret_cast<const volatile std::byte*>(at);
  return address >= thread.stack && address < thread.stack + thread.stack_bytes;
}

void drain(Thread& self) {
  if (!self.stores.empty()) self.stores.drain();
}

template <class T>
T load(const volatile T* at, const void* from) {
  Thread* const self = current;
  if (self == nullptr) return __atomic_load_n(at, __ATOMIC_SEQ_CST);
  Schedule::running()->point(Op::load, at, from);
  if (!self->stores.empty()) {
    if (const std::uint64_t* own = self->stores.find(at)) return static_cast<T>(*own);
  }
  return *at;
}

template <class T>
void store(volatile T* at, T value, int order, const void* from) {
  Thread* const self = current;
  if (self == nullptr) return __atomic_store_n(at, value, __ATOMIC_SEQ_CST);
  Schedule& schedule = *Schedule::running();
  schedule.point(Op::store, at, from);
  if (order == __ATOMIC_SEQ_CST || !schedule.settings().store_buffers || on_own_stack(*self, at)) {
    drain(*self);
    *at = value;
    return;
  }
  if (self->stores.full()) self->stores.drain_one();
  self->stores.push(at, sizeof(T), static_cast<std::uint64_t>(value));
  schedule.note_buffered(*self);
}

// Reads, modifies and writes: `change` gets the old value and returns the new one.
template <class T, class Change>
T exchange(volatile T* at, const void* from, const Change& change) {
  Thread* const self = current;
  if (self == nullptr) {
    T seen = __atomic_load_n(at, __ATOMIC_SEQ_CST);
    while (!__atomic_compare_exchange_n(at, &seen, change(seen), true, __ATOMIC_SEQ_CST,
                                        __ATOMIC_SEQ_CST)) {
    }
    return seen;
  }
  Schedule::running()->point(Op::exchange, at, from);
  drain(*self);
  const T old = *at;
  *at = change(old);
  return old;
}

template <class T>
int compare_exchange(volatile T* at, T* expected, T wanted, bool weak, const void* from) {
  Thread* const self = current;
  if (self == nullptr) {
    return __atomic_compare_exchange_n(at, expected, wanted, false, __ATOMIC_SEQ_CST,
                                       __ATOMIC_SEQ_CST);
  }
  Schedule& schedule = *Schedule::running();
  schedule.point(Op::exchange, at, from);
  drain(*self);
  const T old = *at;
  // A weak one may fail without a reason, on other machines.
  if (old == *expected && !(weak && schedule.chance(32))) {
    *at = wanted;
    return 1;
  }
  *expected = old;
  return 0;
}

// Plain accesses are no operations of a schedule. One to the place of a buffered store comes after
// that store.
void access(const void* at, std::size_t bytes) {
  Thread* const self = current;
  if (self != nullptr && !self->stores.empty() && self->stores.overlaps(at, bytes)) drain(*self);
}

}  // namespace

const Real& real() {
  static const Real functions = [] {
    const auto find = [](auto& to, const char* name) {
      to = reinterpret_cast<std::remove_reference_t<decltype(to)>>(dlsym(RTLD_NEXT, name));
      if (to == nullptr) std::abort();
    };
    Real all{};
    find(all.create, "pthread_create");
    find(all.join, "pthread_join");
    find(all.lock, "pthread_mutex_lock");
    find(all.trylock, "pthread_mutex_trylock");
    find(all.unlock, "pthread_mutex_unlock");
    find(all.wait, "pthread_cond_wait");
    find(all.clockwait, "pthread_cond_clockwait");
    find(all.timedwait, "pthread_cond_timedwait");
    find(all.signal, "pthread_cond_signal");
    find(all.broadcast, "pthread_cond_broadcast");
    find(all.now, "clock_gettime");
    find(all.sleep, "nanosleep");
    find(all.clock_sleep, "clock_nanosleep");
    return all;
  }();
  return functions;
}

}  // namespace headrace::explore

using namespace headrace;
using namespace headrace::explore;

extern "C" {

void __tsan_init() {}
void __tsan_func_entry(void* caller) {
  Thread* const self = current;
  if (self == nullptr) return;
  if (self->depth < self->calls.size()) self->calls[self->depth] = caller;
  ++self->depth;
}
void __tsan_func_exit() {
  Thread* const self = current;
  if (self != nullptr && self->depth > 0) --self->depth;
}
void __tsan_vptr_update(void** at, void*) { access(at, sizeof *at); }
void __tsan_vptr_read(void**) {}
void __tsan_read_range(void* at, unsigned long bytes) { access(at, bytes); }
void __tsan_write_range(void* at, unsigned long bytes) { access(at, bytes); }
void __tsan_atomic_thread_fence(int order) {
  if (Thread* const self = current) {
    Schedule::running()->point(Op::fence, nullptr, HERE);
    if (order == __ATOMIC_SEQ_CST) drain(*self);
  }
}
void __tsan_atomic_signal_fence(int) {
  if (current != nullptr) Schedule::running()->point(Op::fence, nullptr, HERE);
}

#define PLAIN(bytes)                                                 \
  void __tsan_read##bytes(void* at) { access(at, bytes); }           \
  void __tsan_write##bytes(void* at) { access(at, bytes); }          \
  void __tsan_unaligned_read##bytes(void* at) { access(at, bytes); } \
  void __tsan_unaligned_write##bytes(void* at) { access(at, bytes); }
PLAIN(1)
PLAIN(2)
PLAIN(4)
PLAIN(8)
PLAIN(16)
#undef PLAIN

#define FETCH(bits, T, name, expression)                         \
  T __tsan_atomic##bits##_##name(volatile T* at, T value, int) { \
    return exchange<T>(at, HERE, [value](T old) {                \
      (void)old;                                                 \
      return static_cast<T>(expression);                         \
    });                                                          \
  }
#define ATOMIC(bits, T)                                                                          \
  T __tsan_atomic##bits##_load(const volatile T* at, int) { return load<T>(at, HERE); }          \
  void __tsan_atomic##bits##_store(volatile T* at, T value, int order) {                         \
    store<T>(at, value, order, HERE);                                                            \
  }                                                                                              \
  FETCH(bits, T, exchange, value)                                                                \
  FETCH(bits, T, fetch_add, old + value)                                                         \
  FETCH(bits, T, fetch_sub, old - value)                                                         \
  FETCH(bits, T, fetch_and, old& value)                                                          \
  FETCH(bits, T, fetch_or, old | value)                                                          \
  FETCH(bits, T, fetch_xor, old ^ value)                                                         \
  FETCH(bits, T, fetch_nand, ~(old & value))                                                     \
  int __tsan_atomic##bits##_compare_exchange_strong(volatile T* at, T* expected, T wanted, int,  \
                                                    int) {                                       \
    return compare_exchange<T>(at, expected, wanted, false, HERE);                               \
  }                                                                                              \
  int __tsan_atomic##bits##_compare_exchange_weak(volatile T* at, T* expected, T wanted, int,    \
                                                  int) {                                         \
    return compare_exchange<T>(at, expected, wanted, true, HERE);                                \
  }                                                                                              \
  T __tsan_atomic##bits##_compare_exchange_val(volatile T* at, T expected, T wanted, int, int) { \
    compare_exchange<T>(at, &expected, wanted, false, HERE);                                     \
    return expected;                                                                             \
  }
ATOMIC(8, std::uint8_t)
ATOMIC(16, std::uint16_t)
ATOMIC(32, std::uint32_t)
ATOMIC(64, std::uint64_t)
#undef ATOMIC
#undef FETCH

int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*body)(void*),
                   void* argument) {
  if (current == nullptr) return real().create(thread, attributes, body, argument);
  return Schedule::running()->start(thread, body, argument, HERE);
}

int pthread_join(pthread_t thread, void** result) {
  if (Thread* const self = current) {
    Schedule& schedule = *Schedule::running();
    schedule.point(Op::join, nullptr, HERE);
    drain(*self);
    Thread* const other = schedule.find(thread);
    while (other != nullptr && !other->ended) {
      schedule.sleep(Op::join, other->turns.get(), Nanoseconds::max(), HERE);
    }
  }
  return real().join(thread, result);
}

// In a schedule a locked mutex has the number of its thread, from 1 on, in the field that is 0 in
// an unlocked one.
int pthread_mutex_lock(pthread_mutex_t* mutex) noexcept {
  Thread* const self = current;
  if (self == nullptr) return real().lock(mutex);
  Schedule& schedule = *Schedule::running();
  schedule.point(Op::lock, mutex, HERE);
  drain(*self);
  while (mutex->__data.__lock != 0) {
    if (mutex->__data.__lock == static_cast<int>(self->number) + 1) {
      schedule.fail("a thread locks a mutex that it holds");
    }
    schedule.sleep(Op::lock, mutex, Nanoseconds::max(), HERE);
  }
  mutex->__data.__lock = static_cast<int>(self->number) + 1;
  return 0;
}

int pthread_mutex_trylock(pthread_mutex_t* mutex) noexcept {
  Thread* const self = current;
  if (self == nullptr) return real().trylock(mutex);
  Schedule::running()->point(Op::lock, mutex, HERE);
  drain(*self);
  if (mutex->__data.__lock != 0) return EBUSY;
  mutex->__data.__lock = static_cast<int>(self->number) + 1;
  return 0;
}

int pthread_mutex_unlock(pthread_mutex_t* mutex) noexcept {
  Thread* const self = current;
  if (self == nullptr) return real().unlock(mutex);
  Schedule& schedule = *Schedule::running();
  drain(*self);
  if (mutex->__data.__lock != static_cast<int>(self->number) + 1) {
    schedule.fail("a thread unlocks a mutex that it does not hold");
  }
  mutex->__data.__lock = 0;
  schedule.wake(mutex, Schedule::kMostThreads);
  schedule.point(Op::unlock, mutex, HERE);
  return 0;
}

static int wait_on(pthread_cond_t* condition, pthread_mutex_t* mutex, Nanoseconds until,
                   const void* from) {
  Thread* const self = current;
  Schedule& schedule = *Schedule::running();
  schedule.point(Op::wait, condition, from);
  drain(*self);
  // Unlocks and sleeps at once.
  mutex->__data.__lock = 0;
  schedule.wake(mutex, Schedule::kMostThreads);
  const bool woken = schedule.sleep(Op::wait, condition, until, from);
  pthread_mutex_lock(mutex);
  return woken ? 0 : ETIMEDOUT;
}
static Nanoseconds from_timespec(const timespec& at) {
  return std::chrono::seconds{at.tv_sec} + Nanoseconds{at.tv_nsec};
}

int pthread_cond_wait(pthread_cond_t* condition, pthread_mutex_t* mutex) {
  if (current == nullptr) return real().wait(condition, mutex);
  return wait_on(condition, mutex, Nanoseconds::max(), HERE);
}
int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock,
                           const timespec* until) {
  if (current == nullptr) return real().clockwait(condition, mutex, clock, until);
  return wait_on(condition, mutex, from_timespec(*until), HERE);
}
int pthread_cond_timedwait(pthread_cond_t* condition, pthread_mutex_t* mutex,
                           const timespec* until) {
  if (current == nullptr) return real().timedwait(condition, mutex, until);
  return wait_on(condition, mutex, from_timespec(*until), HERE);
}
int pthread_cond_signal(pthread_cond_t* condition) noexcept {
  if (current == nullptr) return real().signal(condition);
  Schedule::running()->point(Op::wake, condition, HERE);
  drain(*current);
  Schedule::running()->wake(condition, 1);
  return 0;
}
int pthread_cond_broadcast(pthread_cond_t* condition) noexcept {
  if (current == nullptr) return real().broadcast(condition);
  Schedule::running()->point(Op::wake, condition, HERE);
  drain(*current);
  Schedule::running()->wake(condition, Schedule::kMostThreads);
  return 0;
}

int clock_gettime(clockid_t clock, timespec* now) noexcept {
  if (current == nullptr || clock == CLOCK_THREAD_CPUTIME_ID) return real().now(clock, now);
  const Nanoseconds time = Schedule::running()->now();
  const auto whole = std::chrono::duration_cast<std::chrono::seconds>(time);
  *now = {.tv_sec = whole.count(), .tv_nsec = (time - whole).count()};
  return 0;
}

static void sleep_until(Nanoseconds until, const void* from) {
  Schedule::running()->sleep(Op::sleep, nullptr, until, from);
}
int nanosleep(const timespec* time, timespec* left) {
  if (current == nullptr) return real().sleep(time, left);
  sleep_until(Schedule::running()->now() + from_timespec(*time), HERE);
  return 0;
}
int clock_nanosleep(clockid_t clock, int flags, const timespec* time, timespec* left) {
  if (current == nullptr) return real().clock_sleep(clock, flags, time, left);
  const Nanoseconds begin =
      (flags & TIMER_ABSTIME) != 0 ? Nanoseconds{0} : Schedule::running()->now();
  sleep_until(begin + from_timespec(*time), HERE);
  return 0;
}
int sched_yield() noexcept {
  if (current == nullptr) return static_cast<int>(real_syscall(SYS_sched_yield, 0, 0, 0, 0, 0, 0));
  Schedule::running()->yield(HERE);
  return 0;
}
// Which CPU a thread is on must not change what it does.
int sched_getcpu() noexcept {
  if (current != nullptr) return 0;
  unsigned cpu = 0;
  real_syscall(SYS_getcpu, reinterpret_cast<long>(&cpu), 0, 0, 0, 0, 0);
  return static_cast<int>(cpu);
}

static long futex(const std::uint32_t* word, int operation, std::uint32_t value,
                  const timespec* limit, const void* from) {
  Thread* const self = current;
  Schedule& schedule = *Schedule::running();
  const int command = operation & FUTEX_CMD_MASK;
  schedule.point(command == FUTEX_WAKE ? Op::wake : Op::wait, word, from);
  drain(*self);
  if (command == FUTEX_WAKE) {
    schedule.wake(word, value);
    return 0;
  }
  if (*const_cast<const volatile std::uint32_t*>(word) != value) {
    errno = EAGAIN;
    return -1;
  }
  Nanoseconds until = Nanoseconds::max();
  if (limit != nullptr) {
    until = from_timespec(*limit);
    if (command == FUTEX_WAIT) until += schedule.now();
  }
  if (until <= schedule.now() || !schedule.sleep(Op::wait, word, until, from)) {
    errno = ETIMEDOUT;
    return -1;
  }
  return 0;
}

long syscall(long number, ...) noexcept {
  va_list list;
  va_start(list, number);
  long arguments[6];
  for (long& argument : arguments) argument = va_arg(list, long);
  va_end(list);
  if (current != nullptr && number == SYS_futex) {
    const int command = static_cast<int>(arguments[1]) & FUTEX_CMD_MASK;
    if (command == FUTEX_WAIT || command == FUTEX_WAIT_BITSET || command == FUTEX_WAKE) {
      return futex(reinterpret_cast<const std::uint32_t*>(arguments[0]),
                   static_cast<int>(arguments[1]), static_cast<std::uint32_t>(arguments[2]),
                   reinterpret_cast<const timespec*>(arguments[3]), HERE);
    }
  }
  if (current != nullptr && number == SYS_membarrier) {
    Schedule& schedule = *Schedule::running();
    if (!schedule.settings().membarrier) {
      errno = ENOSYS;
      return -1;
    }
    if (arguments[0] == MEMBARRIER_CMD_PRIVATE_EXPEDITED) {
      schedule.point(Op::heavy_fence, nullptr, HERE);
      schedule.drain_all();
    }
    return 0;
  }
  const long result = real_syscall(number, arguments[0], arguments[1], arguments[2], arguments[3],
                                   arguments[4], arguments[5]);
  if (result < 0 && result > -4096) {
    errno = static_cast<int>(-result);
    return -1;
  }
  return result;
}

// Disk calls. A write reaches the file in two halves, as a crash or another reader may see it.
static ssize_t write_half(int file, const void* from, std::size_t bytes, off_t at) {
  return syscall(SYS_pwrite64, file, from, bytes, at);
}
static void disk_point(const void* from) {
  if (Thread* const self = current) {
    Schedule::running()->point(Op::disk, nullptr, from);
    drain(*self);
  }
}
ssize_t pread(int file, void* to, std::size_t bytes, off_t at) {
  disk_point(HERE);
  return syscall(SYS_pread64, file, to, bytes, at);
}
ssize_t pwrite(int file, const void* from, std::size_t bytes, off_t at) {
  const std::size_t half = current == nullptr ? 0 : bytes / 2;
  disk_point(HERE);
  if (half > 0) {
    const ssize_t done = write_half(file, from, half, at);
    if (done != static_cast<ssize_t>(half)) return done;
    disk_point(HERE);
  }
  const ssize_t done = write_half(file, static_cast<const std::byte*>(from) + half, bytes - half,
                                  at + static_cast<off_t>(half));
  return done < 0 ? done : done + static_cast<ssize_t>(half);
}
int ftruncate(int file, off_t length) noexcept {
  disk_point(HERE);
  return static_cast<int>(syscall(SYS_ftruncate, file, length));
}
// A schedule has no power failure, so nothing needs to reach the disk.
static int sync_file(long call, int file, const void* from) {
  if (current == nullptr) return static_cast<int>(syscall(call, file));
  disk_point(from);
  return 0;
}
int fdatasync(int file) { return sync_file(SYS_fdatasync, file, HERE); }
int fsync(int file) { return sync_file(SYS_fsync, file, HERE); }

// Initialisation of static variables in functions: the second byte is 1 while a thread is at it.
int __cxa_guard_acquire(long long* guard) {
  auto* const bytes = reinterpret_cast<std::uint8_t*>(guard);
  for (;;) {
    if (__atomic_load_n(&bytes[0], __ATOMIC_ACQUIRE) != 0) return 0;
    std::uint8_t free = 0;
    if (__atomic_compare_exchange_n(&bytes[1], &free, 1, false, __ATOMIC_SEQ_CST,
                                    __ATOMIC_SEQ_CST)) {
      return 1;
    }
    if (current != nullptr) {
      Schedule::running()->sleep(Op::lock, guard, Nanoseconds::max(), HERE);
    } else {
      real_syscall(SYS_sched_yield, 0, 0, 0, 0, 0, 0);
    }
  }
}
static void end_guard(long long* guard, std::uint8_t done) {
  auto* const bytes = reinterpret_cast<std::uint8_t*>(guard);
  __atomic_store_n(&bytes[0], done, __ATOMIC_RELEASE);
  __atomic_store_n(&bytes[1], std::uint8_t{0}, __ATOMIC_SEQ_CST);
  if (current != nullptr) Schedule::running()->wake(guard, Schedule::kMostThreads);
}
void __cxa_guard_release(long long* guard) { end_guard(guard, 1); }
void __cxa_guard_abort(long long* guard) { end_guard(guard, 0); }

}  // extern "C"

// Memory that is freed must get no store later.
static void release(void* at) {
  if (current != nullptr && at != nullptr) access(at, malloc_usable_size(at));
  std::free(at);
}
void operator delete(void* at) noexcept { release(at); }
void operator delete(void* at, std::size_t) noexcept { release(at); }
void operator delete(void* at, std::align_val_t) noexcept { release(at); }
void operator delete(void* at, std::size_t, std::align_val_t) noexcept { release(at); }
