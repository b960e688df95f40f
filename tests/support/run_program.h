// SPDX-License-Identifier: Apache-2.0
// Runs a program as a user starts it, for tests.
#pragma once

#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <string>

namespace headrace::test {

struct Ended {
  int code = -1;
  std::string out;  // errors included
};

// `command`: a line of the shell.
inline Ended run_program(const std::string& command) {
  Ended ended;
  FILE* const pipe = ::popen((command + " 2>&1").c_str(), "r");
  std::array<char, 4096> text;
  while (const std::size_t got = std::fread(text.data(), 1, text.size(), pipe)) {
    ended.out.append(text.data(), got);
  }
  ended.code = WEXITSTATUS(::pclose(pipe));
  return ended;
}

}  // namespace headrace::test
