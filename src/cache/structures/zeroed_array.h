// SPDX-License-Identifier: Apache-2.0
// An array of zeros. Making a large one takes no time: it is new memory, whose pages the kernel
// clears when they are first touched.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>

namespace headrace {

// Requires: zero bytes are a valid T, and T needs no destructor. Throws std::bad_alloc.
template <class T>
class ZeroedArray {
 public:
  ZeroedArray() = default;
  explicit ZeroedArray(std::size_t count) {
    at_.reset(static_cast<T*>(std::calloc(count, sizeof(T))));
    if (at_ != nullptr) return;
    // This throws, or finds memory after all.
    at_ = Memory(static_cast<T*>(::operator new(count * sizeof(T))), {.by_new = true});
    std::memset(static_cast<void*>(at_.get()), 0, count * sizeof(T));
  }
  T& operator[](std::size_t i) const { return at_.get()[i]; }

 private:
  struct Free {
    bool by_new = false;
    void operator()(T* at) const { by_new ? ::operator delete(at) : std::free(at); }
  };
  using Memory = std::unique_ptr<T, Free>;
  Memory at_;
};

}  // namespace headrace
