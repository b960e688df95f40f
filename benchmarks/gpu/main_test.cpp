// SPDX-License-Identifier: Apache-2.0
// The table of headrace-bench-gpu on a GPU made of software with the costs of an H200.
#include <gtest/gtest.h>

#include "tests/support/fake_cuda/fake_library.h"
#include "tests/support/run_program.h"

namespace headrace {
namespace {

std::string output_of(const std::string& part) {
  const test::Ended ended = test::run_program(
      "HEADRACE_BENCH_MIB=8 HEADRACE_BENCH_REPETITIONS=1 " HEADRACE_BENCH_GPU " . " + part);
  EXPECT_EQ(ended.code, 0) << ended.out;
  return ended.out;
}

TEST(BenchGpu, PrintsATableThatSaysItIsEmulated) {
  if (real_cuda()) GTEST_SKIP() << "HEADRACE_TEST_LIBCUDA names a real driver";
  // The library itself: another process cannot open the copy of a test.
  const ScopedVariable library("HEADRACE_LIBCUDA", HEADRACE_FAKE_CUDA_STEM ".so");
  const ScopedVariable settings("HEADRACE_FAKE_CUDA", "h200");
  const std::string pinned = output_of("pinned");
  EXPECT_NE(pinned.find("emulated"), std::string::npos) << pinned;
  EXPECT_NE(pinned.find("pinned 8 MiB, to the GPU"), std::string::npos) << pinned;
  EXPECT_NE(output_of("small").find("pinned 4 KiB to the GPU, wait()"), std::string::npos);
  EXPECT_NE(output_of("plain").find("plain 8 MiB, from it"), std::string::npos);
  EXPECT_NE(output_of("fragments").find("in runs of 16"), std::string::npos);
}

TEST(BenchGpu, SaysWhatIsMissing) {
  const ScopedVariable none("HEADRACE_LIBCUDA", "/nowhere/libcuda.so");
  const test::Ended ended = test::run_program(HEADRACE_BENCH_GPU " . pinned");
  EXPECT_NE(ended.out.find("no GPU with a driver"), std::string::npos) << ended.out;
  EXPECT_NE(ended.code, 0);
}

}  // namespace
}  // namespace headrace
