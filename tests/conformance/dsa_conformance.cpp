// SPDX-License-Identifier: Apache-2.0
#include "conformance/suite.h"
#include "tests/support/dsa/dsa.h"
#include "tests/support/machines.h"

namespace headrace::conformance {
namespace {

Case dsa_case(std::string name, emulator::BackendOptions options) {
  options.limit = std::chrono::milliseconds{200};
  Machine machine = test::small_machine();
  for (Engine& engine : machine.engines) engine.kind = EngineKind::dsa;
  return {
      .name = std::move(name),
      .open = [=] { return *emulator::open_backend(machine, {test::kCpuA, test::kCpuB}, options); },
      .engine = test::kCpuB,
      .source = memory_on(test::kDram),
      .destination = memory_on(test::kHbm)};
}

const emulator::DeviceOptions kPaging{.faults = {.page_fault_chance = 0.2}};
const emulator::DeviceOptions kFailing{
    .faults = {.hardware_chance = 0.2, .lost_record_chance = 0.01}};

INSTANTIATE_TEST_SUITE_P(Dsa, BackendConformance,
                         testing::Values(dsa_case("Batches", {}),
                                         dsa_case("Writes", {.portals = {true}}),
                                         dsa_case("Paging", {.device = kPaging})),
                         case_name);
INSTANTIATE_TEST_SUITE_P(Dsa, FailingBackendConformance,
                         testing::Values(dsa_case("Failing", {.device = kFailing})), case_name);

}  // namespace
}  // namespace headrace::conformance
