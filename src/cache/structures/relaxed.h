// A variable that one thread changes under a lock while others read it without: they may see an old
// value, or the values of two variables from different times, and have to find out. Thread-safe.
#pragma once

#include <atomic>

namespace headrace {

// Reads and writes as T does. Nothing is ordered by it: what says that the values belong together
// pairs with an acquire elsewhere.
template <class T>
class Relaxed {
 public:
  Relaxed() = default;
  Relaxed(T value) : value_(value) {}
  Relaxed(const Relaxed& other) : Relaxed(T(other)) {}
  Relaxed& operator=(const Relaxed& other) { return *this = T(other); }
  Relaxed& operator=(T value) {
    value_.store(value, std::memory_order_relaxed);  // pairs with nothing, as above
    return *this;
  }
  operator T() const { return load(); }
  T load() const {
    return value_.load(std::memory_order_relaxed);  // pairs with nothing, as above
  }
  // For a pointer.
  T operator->() const { return *this; }

 private:
  std::atomic<T> value_{};
};

}  // namespace headrace
