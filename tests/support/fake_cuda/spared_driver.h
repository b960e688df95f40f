// SPDX-License-Identifier: Apache-2.0
// A driver for tests in which memory runs out. They must know whether a thread is inside the fake
// driver, which shares operator new with the program and may not throw.
#pragma once

#include <type_traits>
#include <utility>

#include "backend/cuda/driver.h"

namespace headrace::test {

inline constinit thread_local bool in_driver = false;

template <auto Member, typename Function>
struct Spared;
template <auto Member, typename... Arguments>
struct Spared<Member, cuda::CUresult (*)(Arguments...)> {
  static inline cuda::CUresult (*honest)(Arguments...) = nullptr;
  static cuda::CUresult call(Arguments... arguments) {
    in_driver = true;
    const cuda::CUresult result = honest(arguments...);
    in_driver = false;
    return result;
  }
};

template <auto Member>
void spare(cuda::Driver& driver) {
  using Of = Spared<Member, std::remove_reference_t<decltype(driver.*Member)>>;
  Of::honest = std::exchange(driver.*Member, &Of::call);
  if (Of::honest == nullptr) driver.*Member = nullptr;
}

// Makes all functions of one driver report this; one such driver at a time.
inline void spare_all(cuda::Driver& driver) {
#define HEADRACE_SPARE(need, since, name, parameters) spare<&cuda::Driver::name>(driver);
  HEADRACE_CUDA_SYMBOLS(HEADRACE_SPARE)
#undef HEADRACE_SPARE
}

}  // namespace headrace::test
