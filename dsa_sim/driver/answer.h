// SPDX-License-Identifier: Apache-2.0
// What a system call on a served file returns: a value, or an errno value as std::errc.
//
// Not a Result: its errors are for people, these are for programs that know the kernel's driver.
#pragma once

#include <expected>
#include <system_error>

namespace headrace::emulator {

template <class T>
using Answer = std::expected<T, std::errc>;

inline std::unexpected<std::errc> refuse(std::errc error) {
  return std::unexpected<std::errc>(error);
}

}  // namespace headrace::emulator
