// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "support/fake_cuda/api_testing.h"

namespace headrace::cuda::fake {
namespace {

int attribute(const Fake& cuda, CUdevice_attribute what) {
  int value = -9;
  EXPECT_EQ(cuda.cuDeviceGetAttribute(&value, what, 0), CUDA_SUCCESS) << what;
  return value;
}

// Pageable access, host page tables, concurrent access: the attributes that distinguish the
// paradigms.
std::vector<int> paradigm(const std::string& name) {
  const Fake cuda("paradigm=" + name);
  return {attribute(cuda, CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS),
          attribute(cuda, CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES),
          attribute(cuda, CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS)};
}

TEST(FakeDevices, TheirAttributesTellTheParadigm) {
  EXPECT_EQ(paradigm("ats"), (std::vector{1, 1, 1}));
  EXPECT_EQ(paradigm("hmm"), (std::vector{1, 0, 1}));
  EXPECT_EQ(paradigm("managed"), (std::vector{0, 0, 1}));
  EXPECT_EQ(paradigm("limited"), (std::vector{0, 0, 0}));
}

TEST(FakeDevices, EveryAttributeThatTheLibraryAsksForIsKnown) {
  const Fake cuda("host_node=3,paradigm=ats,numa_node=5");
#define HEADRACE_FAKE_ASK(name, number) attribute(cuda, name);
  HEADRACE_CUDA_DEVICE_ATTRIBUTES(HEADRACE_FAKE_ASK)
#undef HEADRACE_FAKE_ASK
  EXPECT_EQ(attribute(cuda, CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID), 3);
  EXPECT_EQ(attribute(cuda, CU_DEVICE_ATTRIBUTE_NUMA_ID), 5);
  int value = 0;
  EXPECT_EQ(cuda.cuDeviceGetAttribute(&value, static_cast<CUdevice_attribute>(9999), 0),
            CUDA_ERROR_INVALID_VALUE);
}

TEST(FakeDevices, HaveNamesAndBuses) {
  const Fake cuda("devices=2");
  char bus[16];
  ASSERT_EQ(cuda.cuDeviceGetPCIBusId(bus, sizeof bus, 1), CUDA_SUCCESS);
  EXPECT_STREQ(bus, "0000:02:00.0");
  CUuuid first{};
  CUuuid second{};
  ASSERT_EQ(cuda.cuDeviceGetUuid_v2(&first, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuda.cuDeviceGetUuid_v2(&second, 1), CUDA_SUCCESS);
  EXPECT_NE(std::memcmp(&first, &second, sizeof first), 0);
  int can = 0;
  ASSERT_EQ(cuda.cuDeviceCanAccessPeer(&can, 0, 1), CUDA_SUCCESS);
  EXPECT_EQ(can, 1);
}

}  // namespace
}  // namespace headrace::cuda::fake
