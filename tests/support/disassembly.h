// SPDX-License-Identifier: Apache-2.0
// The compiled code of a loop: this program, disassembled by objdump.
#pragma once

#include <array>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <string>
#include <system_error>

namespace headrace::test {

// Calls `see` with each line of code of functions whose demangled name contains `name`, and with
// the function's header line. No calls without objdump.
inline void for_each_instruction(
    const std::string& name,
    const std::function<void(const std::string& function, const std::string& line)>& see) {
#if defined(__aarch64__)
  const std::string objdump = "aarch64-linux-gnu-objdump";  // also on aarch64 itself
#else
  const std::string objdump = "objdump";
#endif
  // Read here: an emulator shows a link to itself, except to the program that it runs.
  std::error_code none;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", none);
  const std::string command =
      objdump + " -d -C --no-show-raw-insn '" + program.string() + "' 2>/dev/null";
  FILE* const pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return;
  std::string function;
  std::array<char, 512> buffer{};
  while (std::fgets(buffer.data(), buffer.size(), pipe) != nullptr) {
    const std::string line = buffer.data();
    if (line.find(">:") != std::string::npos && line[0] != ' ') {
      function = line.find(name) == std::string::npos ? "" : line;
    } else if (!function.empty() && line[0] == ' ') {
      see(function, line);
    }
  }
  pclose(pipe);
}

}  // namespace headrace::test
