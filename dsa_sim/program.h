// SPDX-License-Identifier: Apache-2.0
// The end of a program's main(): the message of an error and its exit code. Single-thread.
#pragma once

#include <fmt/core.h>

#include <array>
#include <cstdio>
#include <utility>

#include "headrace/result.h"

namespace headrace::dsa_sim {

// By ErrorCode, as python/headrace/_cli/exit_codes.py has them.
inline constexpr auto kExitCodes = std::to_array<std::pair<ErrorCode, int>>({
    {ErrorCode::invalid, 2},
    {ErrorCode::absent, 3},
    {ErrorCode::unsupported, 4},
    {ErrorCode::denied, 5},
    {ErrorCode::exhausted, 6},
    {ErrorCode::io, 7},
    {ErrorCode::timed_out, 8},
    {ErrorCode::cancelled, 130},
});

inline int exit_code(const char* program, const Status& done) {
  if (done) return 0;
  fmt::print(stderr, "{}: {}\n", program, done.error().message);
  for (const auto& [code, exit] : kExitCodes) {
    if (code == done.error().code) return exit;
  }
  return 70;
}

}  // namespace headrace::dsa_sim
