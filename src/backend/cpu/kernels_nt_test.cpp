// SPDX-License-Identifier: Apache-2.0
// Checks that the streaming kernels stream; copy_test.cpp checks that they copy.
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "core/sanitizers.h"
#include "tests/support/disassembly.h"

namespace headrace {
namespace {

// Stores must bypass the cache and use whole registers. No result shows it, so the test reads the
// instructions.
TEST(CopyKernels, StreamEveryVectorTheyStore) {
#if defined(HEADRACE_ASAN) || defined(HEADRACE_TSAN)
  GTEST_SKIP() << "sanitizers add instructions of their own";
#endif
  std::map<std::string, int> streams;
  test::for_each_instruction("::nt_copy<",
                             [&](const std::string& function, const std::string& line) {
                               const auto name = function.find("headrace::N_") + 10;
                               streams[function.substr(name, function.find('(', name) - name)] +=
                                   line.find("movnt") != std::string::npos ? 1 : 0;
                             });
  if (streams.empty()) GTEST_SKIP() << "no objdump, or no kernels";
  std::map<std::string, int> kernels;
  for (const auto& [name, count] : streams) {
    const std::string target = name.substr(0, name.find(':'));
    if (target == "N_SCALAR" || target == "N_EMU128") continue;
    ++kernels[target];
    EXPECT_GT(count, 0) << name;
#if defined(NDEBUG)
    // A step of four lines and a last one: each line is this many stores.
    const int per_line = target == "N_SSSE3" ? 4 : target == "N_AVX2" ? 2 : 1;
    EXPECT_GE(count, 5 * per_line) << name;
    EXPECT_EQ(count % per_line, 0) << name;
#endif
  }
  EXPECT_EQ(kernels, (std::map<std::string, int>{{"N_SSSE3", 5}, {"N_AVX2", 5}, {"N_AVX3", 5}}));
}

}  // namespace
}  // namespace headrace
