// What tests of the DSA experiments share: the machine that is modelled, and this host with
// software DSA devices in the place of real ones, in real time.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "backend/dsa_device/dsa_device.h"
#include "measure/dsa_host.h"

namespace headrace::test {

inline Machine xeon_max() { return *Machine::load("xeon-max"); }

class SoftwareDsaHost {
 public:
  explicit SoftwareDsaHost(std::vector<dsa::DeviceOptions> devices,
                           dsa::DevicePortalOptions portals = {}) {
    const std::size_t count = devices.size();
    auto started = dsa::Emulation::start(std::move(devices), portals);
    EXPECT_TRUE(started) << started.error().message;
    emulation_ = *std::move(started);
    machine_ = *Machine::discover();
    for (std::size_t i = 0; i < count; ++i) {
      machine_.engines.push_back({.id = static_cast<EngineId>(machine_.engines.size()),
                                  .kind = EngineKind::dsa,
                                  .name = emulation_->devices()[i].name,
                                  .home = machine_.nodes.front().id});
    }
    first_ = machine_.engines[machine_.engines.size() - count].id;
  }

  DsaHost host() const {
    return DsaHost(machine_, {.devices = emulation_->devices(),
                              .open = [this](const dsa::WorkQueue& queue, bool) {
                                return emulation_->opener()(queue);
                              }});
  }
  const Machine& machine() const { return machine_; }
  // A copy within the first node by the first device.
  DsaThread copy_of(Bytes bytes) const {
    const NodeId node = machine_.nodes.front().id;
    return {.engine = first_, .from = node, .to = node, .bytes = bytes};
  }
  dsa::SoftwareDevice& device(std::size_t index) const { return emulation_->device(index); }

 private:
  std::unique_ptr<dsa::Emulation> emulation_;
  Machine machine_;
  EngineId first_{};
};

}  // namespace headrace::test
