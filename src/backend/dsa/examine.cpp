// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>
#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "backend/dsa/queue/character_device.h"
#include "backend/dsa/queue/devices.h"
#include "core/text/files.h"
#include "headrace/dsa.h"

namespace headrace {
namespace {

namespace fs = std::filesystem;

// Intel's device IDs, from the idxd driver's table: Sapphire Rapids and its successors, Granite
// Rapids-D, Diamond Rapids.
constexpr std::array kPciDevices = {"0x0b25", "0x11fb", "0x1212"};

DsaFinding examine_host(const fs::path& pci) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(pci, error)) {
    if (first_line(entry.path() / "vendor") != "0x8086") continue;
    const std::string device = first_line(entry.path() / "device");
    if (std::ranges::find(kPciDevices, device) == kPciDevices.end()) continue;
    return {
        .state = DsaState::off,
        .why = fmt::format("a device at {} without its driver", entry.path().filename().string()),
        .remedy = "sudo modprobe idxd   (with tc_override=1 if dmesg reports traffic classes)"};
  }
  return {.state = DsaState::absent, .why = "no such device"};
}

bool has_capability(int capability) {
  __user_cap_header_struct header{.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
  std::array<__user_cap_data_struct, _LINUX_CAPABILITY_U32S_3> data{};
  if (syscall(SYS_capget, &header, data.data()) != 0) return false;
  return (data[static_cast<std::size_t>(CAP_TO_INDEX(capability))].effective &
          CAP_TO_MASK(capability)) != 0;
}

// The command that gives this process the capability to map a portal; "" if it may not gain any.
std::string remedy_for_mapping() {
  if (prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1) return "";
  if (prctl(PR_CAPBSET_READ, CAP_SYS_RAWIO) != 1) {
    return "in a container: docker run --cap-add SYS_RAWIO ...";
  }
  return "sudo setcap cap_sys_rawio+ep PROGRAM, for batches and fewer system calls";
}

// The reason why a writable queue was not mapped, and the remedy.
struct MappingObstacle {
  std::string why;
  std::string remedy;
};

MappingObstacle mapping_obstacle(const dsa::WorkQueue& queue) {
  const dsa::CpuInstructions cpu = dsa::cpu_instructions();
  if (!dsa::is_character_device(queue)) {
    return {"its file is no character device, so software stands in for the device", ""};
  }
  if (!(queue.shared ? cpu.enqcmd : cpu.movdir64b)) {
    return {fmt::format("this CPU has no {}", queue.shared ? "ENQCMD" : "MOVDIR64B"), ""};
  }
  if (has_capability(CAP_SYS_RAWIO)) return {"the kernel refuses to map its portal", ""};
  return {"its portal may not be mapped", remedy_for_mapping()};
}

// Examines a queue by opening it.
DsaFinding examine_queue(const dsa::WorkQueue& queue) {
  if (!queue.unusable.empty()) {
    return {.state = DsaState::off,
            .why = fmt::format("{}: {}", queue.name, queue.unusable),
            .remedy = queue.remedy};
  }
  const auto portal = dsa::open_character_device(queue);
  if (!portal) {
    const bool denied = portal.error().code == ErrorCode::denied;
    return {.state = DsaState::off,
            .why = portal.error().message,
            .remedy = denied ? fmt::format("sudo chown $USER {}", queue.file.string()) : ""};
  }
  const std::string kind = queue.shared ? "shared" : "dedicated";
  if ((*portal)->mapped()) {
    return {.state = DsaState::ready,
            .why = fmt::format("{} queue {} by {}", kind, queue.name, (*portal)->name())};
  }
  const MappingObstacle obstacle = mapping_obstacle(queue);
  return {.state = DsaState::limited,
          .why = fmt::format("{} queue {} by write(): {}", kind, queue.name, obstacle.why),
          .remedy = obstacle.remedy};
}

DsaFinding examine_device(const dsa::Device& device) {
  DsaFinding best{.name = device.name, .state = DsaState::off};
  if (!device.unusable.empty()) {
    best.why = device.unusable;
    best.remedy = device.remedy;
    return best;
  }
  best.why = "no work queue";
  best.remedy = "headrace dsa setup --show";
  bool first = true;
  for (const dsa::WorkQueue& queue : device.queues) {
    DsaFinding found = examine_queue(queue);
    found.name = device.name;
    if (first || found.state < best.state) best = std::move(found);
    first = false;
  }
  return best;
}

}  // namespace

std::string_view to_string(DsaState state) {
  switch (state) {
    case DsaState::ready: return "ready";
    case DsaState::limited: return "limited";
    case DsaState::off: return "off";
    case DsaState::absent: return "absent";
  }
  return "absent";
}

std::vector<DsaFinding> examine_dsa(const DsaPaths& paths) {
  dsa::Roots roots = dsa::Roots::from_environment();
  if (!paths.sysfs.empty()) roots.sysfs = paths.sysfs;
  if (!paths.dev.empty()) roots.dev = paths.dev;
  std::vector<DsaFinding> findings;
  for (const dsa::Device& device : dsa::find_devices(roots)) {
    findings.push_back(examine_device(device));
  }
  if (findings.empty()) findings.push_back(examine_host(paths.pci));
  return findings;
}

}  // namespace headrace
