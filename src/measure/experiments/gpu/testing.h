// SPDX-License-Identifier: Apache-2.0
// Points of a GPU made of software, measured once.
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

// The same by another driver, which has to outlive all that is made of it.
inline GpuSetting by_driver(GpuSetting setting, const cuda::Driver& driver) {
  const GpuTarget& own = *setting.gpu;
  setting.gpu = std::shared_ptr<GpuTarget>(new GpuTarget{.machine = own.machine,
                                                         .node = own.node,
                                                         .driver = driver,
                                                         .device = own.device,
                                                         .host = own.host});
  return setting;
}

// The first sample; a value above 0 is expected.
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
