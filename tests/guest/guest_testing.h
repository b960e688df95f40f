// SPDX-License-Identifier: Apache-2.0
// What the tests in guests share: the machine there, and where pages are.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "headrace/headrace.h"
#include "tests/support/numa_maps.h"

namespace headrace::test {

inline constexpr Bytes kPage = 4_KiB;

inline const Machine& machine() {
  static const Machine found = [] {
    auto discovered = Machine::discover({.storage = {}});
    if (!discovered) {
      ADD_FAILURE() << discovered.error().message;
      return Machine{};
    }
    return *std::move(discovered);
  }();
  return found;
}

// Whether every test runs, and at every point: `run_tests.sh --all`. Otherwise a few points prove
// the mechanism, for `make test`.
inline bool everything() { return std::getenv("HEADRACE_GUEST_ALL") != nullptr; }

inline Placement base_pages(Placement placement) {
  placement.pages = PageSize::base;
  return placement;
}

// The node of every page, one question each; or of one page in `every`.
inline std::vector<NodeId> node_of_each_page(const Buffer& buffer, std::uint64_t every = 1) {
  std::vector<NodeId> nodes;
  for (std::uint64_t at = 0; at < buffer.size().value; at += every * kPage.value) {
    const auto residency = where(buffer.bytes().subspan(at, 1)).value();
    nodes.push_back(residency.pages.empty() ? NodeId{~0U} : residency.pages.begin()->first);
  }
  return nodes;
}

// Free pages of a node, by its meminfo.
inline std::uint64_t free_pages_on(NodeId node) {
  std::ifstream file("/sys/devices/system/node/node" + std::to_string(raw(node)) + "/meminfo");
  for (std::string word; file >> word;) {
    std::uint64_t kib = 0;
    if (word == "MemFree:" && file >> kib) return kib / (kPage / 1_KiB);
  }
  ADD_FAILURE() << "no meminfo of node " << raw(node);
  return 0;
}

// Ends a session after `count` measurements: seconds mean nothing in a guest.
inline ExperimentContext measuring_times(std::size_t count) {
  const auto done = std::make_shared<std::atomic<std::size_t>>(0);
  return {.stop = [done, count] { return *done >= count; },
          .progress = [done](std::size_t, std::size_t) { ++*done; }};
}

using PagesOn = std::map<NodeId, std::uint64_t>;

// Allocates, compares where() with the kernel's other account, and returns it.
inline PagesOn pages_of(Bytes bytes, const Placement& placement) {
  const auto buffer = allocate(machine(), bytes, placement);
  if (!buffer) {
    ADD_FAILURE() << buffer.error().message;
    return {};
  }
  const Residency residency = where((*buffer)->bytes()).value();
  EXPECT_EQ(residency.absent, 0U);
  EXPECT_EQ(residency.pages, numa_maps((*buffer)->bytes()).value());
  return residency.pages;
}

}  // namespace headrace::test
