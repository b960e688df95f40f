// SPDX-License-Identifier: Apache-2.0
// An array of zeros that costs no time to make, however large: the kernel clears each page when it
// is first touched.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <new>

#include "core/check.h"

namespace headrace {

// Requires: a T of zero bytes is one, and none needs its destructor. Throws std::bad_alloc.
template <class T>
class ZeroedArray {
 public:
  ZeroedArray() = default;
  explicit ZeroedArray(std::size_t count) {
    at_.reset(static_cast<T*>(std::calloc(count, sizeof(T))));
    if (at_ != nullptr) return;
    ::operator delete(
        ::operator new(count * sizeof(T)));  // throws, or something was freed meanwhile
    at_.reset(static_cast<T*>(std::calloc(count, sizeof(T))));
    CHECK(at_ != nullptr);
  }
  T& operator[](std::size_t i) const { return at_.get()[i]; }

 private:
  struct Free {
    void operator()(T* at) const { std::free(at); }
  };
  std::unique_ptr<T, Free> at_;
};

}  // namespace headrace
