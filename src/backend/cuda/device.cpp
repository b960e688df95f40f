// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/device.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "core/fail.h"

namespace headrace::cuda {
namespace {

// Empty if the driver does not know the attribute, or answers below 0 (the device has none).
std::optional<unsigned> attribute(const Driver& driver, CUdevice_attribute what, CUdevice device) {
  int value = -1;
  if (driver.cuDeviceGetAttribute(&value, what, device) != CUDA_SUCCESS || value < 0) {
    return std::nullopt;
  }
  return static_cast<unsigned>(value);
}

bool flag(const Driver& driver, CUdevice_attribute what, CUdevice device) {
  return attribute(driver, what, device).value_or(0) != 0;
}

std::string uuid_of(const Driver& driver, CUdevice device) {
  CUuuid uuid{};
  if (driver.cuDeviceGetUuid_v2 == nullptr ||
      driver.cuDeviceGetUuid_v2(&uuid, device) != CUDA_SUCCESS) {
    return {};
  }
  std::string text;
  for (const char byte : uuid.bytes) {
    text += fmt::format("{:02x}", static_cast<unsigned>(static_cast<unsigned char>(byte)));
  }
  return text;
}

// The driver writes hexadecimal digits in upper case, sysfs in lower case.
std::string pci_of(const Driver& driver, CUdevice device) {
  std::array<char, 32> text{};
  if (driver.cuDeviceGetPCIBusId(text.data(), static_cast<int>(text.size()), device) !=
      CUDA_SUCCESS) {
    return {};
  }
  std::string pci(text.data());
  std::ranges::transform(pci, pci.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return pci;
}

Result<Device> describe(const Driver& driver, int ordinal) {
  Device device;
  CUdevice handle = 0;
  std::array<char, 256> name{};
  std::size_t bytes = 0;
  CUresult result = driver.cuDeviceGet(&handle, ordinal);
  if (result == CUDA_SUCCESS) {
    result = driver.cuDeviceGetName(name.data(), static_cast<int>(name.size()) - 1, handle);
  }
  if (result == CUDA_SUCCESS) result = driver.cuDeviceTotalMem_v2(&bytes, handle);
  if (result != CUDA_SUCCESS) {
    return fail_cuda(driver, result, fmt::format("cannot ask about GPU {}", ordinal));
  }
  device.ordinal = handle;
  device.name = name.data();
  device.pci = pci_of(driver, handle);
  device.uuid = uuid_of(driver, handle);
  device.capacity = Bytes{bytes};
  device.copy_engines =
      attribute(driver, CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT, handle).value_or(0);
  device.host_node = attribute(driver, CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, handle);
  if (attribute(driver, CU_DEVICE_ATTRIBUTE_NUMA_CONFIG, handle) ==
      CU_DEVICE_NUMA_CONFIG_NUMA_NODE) {
    device.numa_node = attribute(driver, CU_DEVICE_ATTRIBUTE_NUMA_ID, handle);
  }
  device.pageable_access = flag(driver, CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS, handle);
  device.host_page_tables =
      flag(driver, CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES, handle);
  device.registered_as_is =
      flag(driver, CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM, handle);
  device.concurrent_managed = flag(driver, CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, handle);
  device.emulated = device.name.starts_with(kEmulatedName);
  return device;
}

}  // namespace

Result<std::vector<Device>> find_devices(const Driver& driver) {
  int count = 0;
  if (const CUresult result = driver.cuDeviceGetCount(&count); result != CUDA_SUCCESS) {
    return fail_cuda(driver, result, "cannot count the GPUs");
  }
  std::vector<Device> devices;
  std::optional<Error> first;
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    auto device = describe(driver, ordinal);
    if (device) {
      devices.push_back(*std::move(device));
    } else if (!first) {
      first = std::move(device).error();
    }
  }
  if (devices.empty() && first) return Unexpected(*std::move(first));
  return devices;
}

Result<Device> find_device(const Driver& driver, std::string_view uuid, std::string_view pci,
                           std::string_view name) {
  HEADRACE_TRY(const auto devices, find_devices(driver));
  const auto found =
      std::ranges::find_if(devices, [&](const Device& device) { return device.is(uuid, pci); });
  if (found != devices.end()) return *found;
  return fail(ErrorCode::absent,
              "{} is not among the {} GPUs that this process sees; compare headrace topo (is "
              "CUDA_VISIBLE_DEVICES set?)",
              name, devices.size());
}

}  // namespace headrace::cuda
