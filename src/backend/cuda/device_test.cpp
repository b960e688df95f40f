// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/device.h"

#include <gtest/gtest.h>

#include "tests/support/fake_cuda/fake_library.h"

namespace headrace::cuda {
namespace {

TEST(CudaDevices, AreDescribed) {
  const FakeCudaLibrary library("devices=2,memory=64M,host_node=3,engines=5,paradigm=hmm");
  const auto devices = find_devices(**driver());
  ASSERT_TRUE(devices) << devices.error().message;
  ASSERT_EQ(devices->size(), 2U);
  const Device& first = devices->front();
  EXPECT_TRUE(first.name.starts_with(kEmulatedName)) << first.name;
  EXPECT_TRUE(first.emulated);
  EXPECT_EQ(first.capacity, 64_MiB);
  EXPECT_EQ(first.copy_engines, 5U);
  EXPECT_EQ(first.host_node, 3U);
  EXPECT_EQ(first.numa_node, std::nullopt);
  EXPECT_TRUE(first.pageable_access);
  EXPECT_FALSE(first.host_page_tables);
  EXPECT_EQ(first.uuid.size(), 32U);
  EXPECT_NE(first.pci, devices->back().pci);
  const FakeCudaLibrary coherent("host_node=-1,numa_node=1,paradigm=ats");
  const Device other = find_devices(**driver())->front();
  EXPECT_EQ(other.host_node, std::nullopt);
  EXPECT_EQ(other.numa_node, 1U);
  EXPECT_TRUE(other.host_page_tables);
}

TEST(CudaDevices, AreThereThoughOneAnswersNothing) {
  const FakeCudaLibrary library("devices=3");
  static Driver honest;
  honest = **driver();
  Driver scripted = honest;
  scripted.cuDeviceTotalMem_v2 = [](std::size_t* bytes, CUdevice device) {
    return device == 1 ? CUDA_ERROR_UNKNOWN : honest.cuDeviceTotalMem_v2(bytes, device);
  };
  const auto devices = find_devices(scripted);
  ASSERT_TRUE(devices) << devices.error().message;
  ASSERT_EQ(devices->size(), 2U);
  EXPECT_EQ(devices->back().ordinal, 2);
  scripted.cuDeviceTotalMem_v2 = [](std::size_t*, CUdevice) { return CUDA_ERROR_UNKNOWN; };
  EXPECT_EQ(find_devices(scripted).error().code, ErrorCode::io);
}

TEST(CudaDevices, AreFoundByUuidElseByPciAddress) {
  for (const char* version : {"", "11.0"}) {
    const FakeCudaLibrary library("devices=2", version);
    const Driver& used = **driver();
    const Device second = find_devices(used)->back();
    EXPECT_EQ(second.uuid.empty(), used.cuDeviceGetUuid_v2 == nullptr);
    EXPECT_EQ(find_device(used, second.uuid, second.pci, "gpu")->ordinal, 1);
    EXPECT_EQ(find_device(used, "", second.pci, "gpu")->ordinal, 1);
  }
  const FakeCudaLibrary library("devices=2");
  const auto none = find_device(**driver(), "00", find_devices(**driver())->back().pci, "H200");
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, ErrorCode::absent);
  EXPECT_TRUE(none.error().message.starts_with("H200 is not among the 2 GPUs"))
      << none.error().message;
}

// Instances of a GPU (MIG) have one PCI address.
TEST(CudaDevices, OfOneGpuAreDistinguishedByTheirUuid) {
  const FakeCudaLibrary library("devices=2,mig=1");
  const auto devices = *find_devices(**driver());
  const Device& second = devices.back();
  EXPECT_EQ(devices.front().pci, second.pci);
  EXPECT_EQ(find_device(**driver(), second.uuid, second.pci, "it")->ordinal, 1);
  EXPECT_FALSE(second.is(devices.front().uuid, second.pci));
  EXPECT_TRUE(second.is("", second.pci)) << "written down without a uuid";
}

}  // namespace
}  // namespace headrace::cuda
