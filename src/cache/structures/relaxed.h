// SPDX-License-Identifier: Apache-2.0
// A variable that one thread changes under a lock while others read it without the lock. Readers
// may see an old value, or two variables from different times, and must detect that. Thread-safe.
#pragma once

#include <atomic>

namespace headrace {

// Reads and writes like T. It orders nothing: the access that shows that several values belong
// together pairs with an acquire elsewhere.
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

 private:
  std::atomic<T> value_{};
};

// A link of a chain that threads follow without the lock. A thread that finds an object by it sees
// all earlier writes to the object, also if its memory was just allocated.
template <class T>
class ChainLink {
 public:
  ChainLink(T* to = nullptr) : to_(to) {}
  ChainLink(const ChainLink& other) : ChainLink(static_cast<T*>(other)) {}
  ChainLink& operator=(const ChainLink& other) { return *this = static_cast<T*>(other); }
  ChainLink& operator=(T* to) {
    to_.store(to, std::memory_order_release);  // pairs with the load of a thread that follows it
    return *this;
  }
  operator T*() const {
    return to_.load(std::memory_order_acquire);  // pairs with the store above
  }
  T* operator->() const { return *this; }

 private:
  std::atomic<T*> to_;
};

}  // namespace headrace
