// SPDX-License-Identifier: Apache-2.0
// Points of a software GPU, measured once.
#pragma once

#include <gtest/gtest.h>

#include "core/fail.h"
#include "measure/experiments/gpu/parts.h"
#include "tests/support/fake_gpu.h"

namespace headrace::experiment_gpu {

using Prepare = Prepared (*)(const GpuSetting&, Random&);

inline GpuSetting on_fake(const test::FakeGpu& fake, GpuSetting setting, NodeId gpu = test::kGpu) {
  setting.gpu = GpuTarget::find(fake.machine, *fake.machine.find(gpu)).value();
  if (setting.direction == kAcross) {
    setting.other = GpuTarget::find(fake.machine, *fake.machine.find(test::kOtherGpu)).value();
  }
  setting.node = test::kDram;
  return setting;
}

// The same setting with another driver. Requires: the driver outlives all that is made with it.
inline GpuSetting by_driver(GpuSetting setting, const cuda::Driver& driver) {
  const GpuTarget& own = *setting.gpu;
  setting.gpu = std::shared_ptr<GpuTarget>(new GpuTarget{.machine = own.machine,
                                                         .node = own.node,
                                                         .driver = driver,
                                                         .device = own.device,
                                                         .host = own.host});
  return setting;
}

inline Result<session::Sample> sample_of(Prepare prepare, const GpuSetting& setting) {
  Random random(1);
  HEADRACE_TRY(const auto probe, prepare(setting, random));
  return probe->sample();
}

inline void expect_sample(Prepare prepare, const GpuSetting& setting) {
  const auto sample = sample_of(prepare, setting);
  ASSERT_TRUE(sample) << sample.error().message;
  EXPECT_GT(sample->value, 0);
}

// Copies of 64 KiB.
inline const GpuSetting kSmall{
    .direction = kToGpu, .by = kEngine, .memory = kPinned, .bytes = 64_KiB};

inline GpuSetting small(std::string_view direction, std::string_view memory = kPinned) {
  GpuSetting setting = kSmall;
  setting.direction = direction;
  setting.memory = memory;
  return setting;
}

}  // namespace headrace::experiment_gpu
