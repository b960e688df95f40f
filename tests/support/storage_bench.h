// SPDX-License-Identifier: Apache-2.0
// Helpers of benchmarks that read files: the file, and the CPU time. Not for tests.
#pragma once

#include <sys/resource.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "headrace/units.h"

namespace headrace::test {

// The large file named by `HEADRACE_BENCH_FILE`; else 256 MiB in the temporary directory, written
// at the first call and removed when the program ends.
inline std::filesystem::path bench_file() {
  if (const char* given = std::getenv("HEADRACE_BENCH_FILE")) return given;
  static const struct Own {
    Own() {
      std::ofstream out(path, std::ios::binary);
      const std::string block(1 << 20, 'h');
      for (std::uint64_t i = 0; i < 256_MiB / 1_MiB; ++i) out << block;
    }
    ~Own() { std::filesystem::remove(path); }
    std::filesystem::path path =
        std::filesystem::temp_directory_path() / ("headrace_bench_" + std::to_string(getpid()));
  } own;
  return own.path;
}

// CPU time of all threads of this process so far.
inline double cpu_seconds() {
  rusage use{};
  getrusage(RUSAGE_SELF, &use);
  const auto of = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
  };
  return of(use.ru_utime) + of(use.ru_stime);
}

}  // namespace headrace::test
