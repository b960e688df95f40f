// SPDX-License-Identifier: Apache-2.0
// One move of pages, with its references: a copy of the same bytes to existing pages, and an
// observer.
#pragma once

#include <optional>
#include <string_view>

#include "measure/experiments/migrate/region.h"
#include "measure/session/experiment.h"

namespace headrace::experiment_migrate {

struct Method {
  std::string_view name;
  std::uint64_t batch = 0;  // pages per call; 0: all at once
  bool by_kernel = false;
};

struct MigrateSetting {
  Method method;
  NodeId from{0};
  NodeId to{0};
  Bytes page;
  Bytes bytes;      // moved bytes: whole pages
  CpuSet movers;    // one thread on each moves its part
  CpuSet observer;  // one CPU; empty: none is left
  CpuSet fillers;   // lines that they write last are only in their caches

  // The nodes to bind pages to; nullopt on a host with one memory node, which needs no binding and
  // whose containers may forbid it.
  std::optional<NodeId> source() const { return from == to ? std::nullopt : std::optional(from); }
  std::optional<NodeId> target() const { return from == to ? std::nullopt : std::optional(to); }
};

// Result of a move of `asked` bytes.
struct Move {
  Bytes asked;
  Bytes moved;  // now on the target
  Bytes page;
  Nanoseconds time{0};
  Nanoseconds copying{0};  // time to copy `asked` to existing pages
  double cpu_seconds = 0;  // of all movers
};

// The rate of moved bytes, and its details. Errors: exhausted: nothing moved.
Result<session::Sample> sample_of(const Move& move, NodeId to);

// `swept`: memory that the fillers read between filling and moving, so that no moved line is
// cached.
Result<std::unique_ptr<session::Probe>> prepare_migration(const MigrateSetting& setting,
                                                          std::span<const std::byte> swept);

}  // namespace headrace::experiment_migrate
