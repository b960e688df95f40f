// SPDX-License-Identifier: Apache-2.0
#include "tests/support/fake_backend.h"

#include "conformance/suite.h"
#include "tests/support/machines.h"

namespace headrace::conformance {
namespace {

Case fake(std::string name, FakeOptions options) {
  options.engines = {test::kCpuA, test::kCpuB};
  return {.name = std::move(name),
          .open = [options] { return std::make_unique<FakeBackend>(options); },
          .engine = test::kCpuB,
          .source = memory_on(test::kDram),
          .destination = memory_on(test::kHbm)};
}

INSTANTIATE_TEST_SUITE_P(
    Fake, BackendConformance,
    testing::Values(fake("Polled", {}), fake("Reordering", {.polls = 1, .reorder = true}),
                    fake("Partial", {.max_in_flight = 3, .partial_chance = 0.5}),
                    fake("Inside", {.inside_chance = 1}), fake("Mixed", {.inside_chance = 0.5}),
                    fake("OwnThread", {.own_thread = true})),
    case_name);

INSTANTIATE_TEST_SUITE_P(
    Fake, FailingBackendConformance,
    testing::Values(fake("Polled", {.partial_chance = 0.3, .fail_chance = 0.3}),
                    fake("Reordering", {.polls = 1, .reorder = true, .fail_chance = 0.3}),
                    fake("Inside", {.inside_chance = 0.5, .fail_chance = 0.3}),
                    fake("OwnThread", {.fail_chance = 0.3, .own_thread = true})),
    case_name);

}  // namespace
}  // namespace headrace::conformance
