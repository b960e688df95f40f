#include "measure/dsa_beside.h"

#include <gtest/gtest.h>

#include "measure/dsa_testing.h"
#include "measure/team.h"

namespace headrace {
namespace {

using test::SoftwareDsaHost;

TEST(DsaBeside, CoresCopyBetweenNodes) {
  const Machine machine = *Machine::discover();
  const NodeId node = machine.nodes.front().id;
  const DsaRow row{.bytes = 8_MiB, .threads = 1, .from = node, .to = node};
  const auto rates = copy_by_cores(machine, row, 2);
  ASSERT_TRUE(rates) << rates.error().message;
  EXPECT_EQ(rates->size(), 2U);
  DsaRow many = row;
  many.threads = 100'000;
  EXPECT_EQ(copy_by_cores(machine, many, 1).error().code, ErrorCode::absent);
}

TEST(DsaBeside, BothGetSomethingDone) {
  if (usable_cpus().size() < 2) GTEST_SKIP() << "one CPU: nothing runs beside anything";
  const SoftwareDsaHost ground({dsa::DeviceOptions{}});
  const DsaHost host = ground.host();
  DsaPoint point{.kind = DsaPoint::Kind::stream, .threads = {ground.copy_of(4_KiB)}};
  point.threads.front().window = 4;
  for (const char* method : {"single", "stream"}) {
    point.row.method = method;
    auto rates = run_beside_stream(host, point, 1);
    // The device is a thread too, beside two that never rest: on a busy host it may get no CPU.
    for (int i = 0; i < 5 && !rates && rates.error().code == ErrorCode::timed_out; ++i) {
      rates = run_beside_stream(host, point, 1);
    }
    if (!rates && rates.error().code == ErrorCode::timed_out) {
      GTEST_SKIP() << rates.error().message;
    }
    ASSERT_TRUE(rates) << rates.error().message;
    ASSERT_EQ(rates->size(), 1U);
    EXPECT_GT(rates->front(), 0) << method;
  }
}

}  // namespace
}  // namespace headrace
