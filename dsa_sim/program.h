// SPDX-License-Identifier: Apache-2.0
// The end of a program's main(): the message of an error and its exit code. Single-thread.
#pragma once

#include <fmt/core.h>

#include <cstdio>

#include "headrace/result.h"

namespace headrace::dsa_sim {

inline int exit_code(const char* program, const Status& done) {
  if (done) return 0;
  fmt::print(stderr, "{}: {}\n", program, done.error().message);
  return exit_code(done.error().code);
}

}  // namespace headrace::dsa_sim
