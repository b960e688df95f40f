// SPDX-License-Identifier: Apache-2.0
#include "measure/experiments/gpu/parts.h"

#include "core/fail.h"
#include "headrace/clock.h"

namespace headrace::experiment_gpu {

using namespace cuda;
using namespace session;

namespace {

class Allocating final : public GpuProbe {
 public:
  using GpuProbe::GpuProbe;

  Result<Sample> sample() override {
    HEADRACE_TRY(const Nanoseconds time, setting_.by == kPlaced ? placed() : by_driver());
    const double mebibytes = static_cast<double>(setting_.bytes.value) / (1 << 20);
    return Sample{.value = static_cast<double>(time.count()) / mebibytes};
  }

 private:
  Result<Nanoseconds> placed() const {
    Placement placement = Placement::on(setting_.node);
    placement.pin = true;
    const Nanoseconds begin = system_clock().now();
    HEADRACE_TRY(const auto buffer,
                 allocate_for_cpus(space_->target().machine, setting_.bytes, placement));
    return system_clock().now() - begin;
  }

  Result<Nanoseconds> by_driver() const {
    const Driver& driver = space_->driver();
    void* memory = nullptr;
    const Nanoseconds begin = system_clock().now();
    const CUresult result =
        driver.cuMemHostAlloc(&memory, setting_.bytes.value, CU_MEMHOSTALLOC_PORTABLE);
    const Nanoseconds time = system_clock().now() - begin;
    HEADRACE_TRY_STATUS(space_->gpu().ok(result, "cuMemHostAlloc gives no memory"));
    HEADRACE_TRY_STATUS(
        space_->gpu().ok(driver.cuMemFreeHost(memory), "cuMemFreeHost takes nothing back"));
    return time;
  }
};

}  // namespace

Prepared prepare_allocation(const GpuSetting& setting, Random& random) {
  return prepared<Allocating>(setting, random);
}

}  // namespace headrace::experiment_gpu
