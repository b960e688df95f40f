// SPDX-License-Identifier: Apache-2.0
// What tests of the DSA experiments share: the machine that is modelled, and this host with
// software DSA devices in the place of real ones, in real time.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <utility>
#include <vector>

#include "measure/experiments/dsa/host.h"
#include "tests/support/dsa/dsa.h"

namespace headrace::test {

using namespace experiment_dsa;

inline Machine xeon_max() { return *Machine::load("xeon-max"); }

class SoftwareDsaHost {
 public:
  explicit SoftwareDsaHost(std::vector<emulator::DeviceOptions> devices,
                           emulator::PortalOptions portals = {}) {
    const std::size_t count = devices.size();
    auto started = emulator::DeviceSet::start(std::move(devices), portals);
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
                                ++opened_;
                                return emulation_->opener()(queue);
                              }});
  }
  const Machine& machine() const { return machine_; }
  // A copy within the first node by the first device.
  DsaThread copy_of(Bytes bytes) const {
    const NodeId node = machine_.nodes.front().id;
    return {.engine = first_, .from = node, .to = node, .bytes = bytes};
  }
  emulator::Device& device(std::size_t index) const { return emulation_->device(index); }
  // How often a portal was opened.
  std::size_t opened() const { return opened_; }

 private:
  std::unique_ptr<emulator::DeviceSet> emulation_;
  Machine machine_;
  EngineId first_{};
  mutable std::atomic<std::size_t> opened_{0};  // also by the threads of a run
};

}  // namespace headrace::test
