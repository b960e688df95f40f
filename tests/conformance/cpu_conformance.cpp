// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/cpu.h"
#include "conformance/suite.h"
#include "tests/support/machines.h"

namespace headrace::conformance {
namespace {

Case cpu(std::string name, CpuOptions options) {
  return {
      .name = std::move(name),
      .open =
          [options] {
            return std::move(*open_cpu(test::small_machine(), {test::kCpuA, test::kCpuB}, options));
          },
      .engine = test::kCpuA,
      .source = memory_on(test::kDram),
      .destination = memory_on(test::kHbm)};
}

INSTANTIATE_TEST_SUITE_P(
    Cpu, BackendConformance,
    testing::Values(cpu("Default", {}), cpu("Threads", {.workers = 2, .inline_below = 0_B}),
                    cpu("Narrow", {.workers = 1, .max_in_flight = 2, .inline_below = 100_B})),
    case_name);

}  // namespace
}  // namespace headrace::conformance
