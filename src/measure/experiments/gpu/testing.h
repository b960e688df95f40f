// SPDX-License-Identifier: Apache-2.0
// Points of a software GPU, measured once.
#pragma once

#include <gtest/gtest.h>

#include "measure/experiments/gpu/setting.h"
#include "tests/support/fake_gpu.h"

namespace headrace::experiment_gpu {

inline GpuSetting on_fake(const test::FakeGpu& fake, GpuSetting setting) {
  setting.gpu = GpuTarget::find(fake.machine, *fake.machine.find(test::kGpu)).value();
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

// The first sample; expects a value above 0.
inline session::Sample sample_of(const Prepared& probe) {
  EXPECT_TRUE(probe) << probe.error().message;
  if (!probe) return {};
  const auto sample = (*probe)->sample();
  EXPECT_TRUE(sample) << sample.error().message;
  if (!sample) return {};
  EXPECT_GT(sample->value, 0);
  return *sample;
}

}  // namespace headrace::experiment_gpu
