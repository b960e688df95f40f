// SPDX-License-Identifier: Apache-2.0
#include "measure/experiments/dsa/background.h"

#include <gtest/gtest.h>

#include "measure/experiments/dsa/testing.h"
#include "measure/instruments/worker_pool.h"

namespace headrace::experiment_dsa {

using namespace instruments;

namespace {

using test::SoftwareDsaHost;

TEST(DsaBackground, BothGetSomethingDone) {
  if (usable_cpus().size() < 2)
    GTEST_SKIP() << "one CPU: nothing runs at the same time as anything";
  const SoftwareDsaHost ground({emulator::DeviceOptions{}});
  const DsaHost host = ground.host();
  DsaThread thread = ground.copy_of(4_KiB);
  thread.window = 4;
  for (const bool of_stream : {false, true}) {
    auto rate = host.with_stream()(thread, {}, of_stream);
    // The device is a thread too, beside two that never rest: on a busy host it may get no CPU.
    for (int i = 0; i < 5 && !rate && rate.error().code == ErrorCode::timed_out; ++i) {
      rate = host.with_stream()(thread, {}, of_stream);
    }
    if (!rate && rate.error().code == ErrorCode::timed_out) GTEST_SKIP() << rate.error().message;
    ASSERT_TRUE(rate) << rate.error().message;
    EXPECT_GT(*rate, 0) << of_stream;
  }
}

}  // namespace
}  // namespace headrace::experiment_dsa
