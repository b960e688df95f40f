// SPDX-License-Identifier: Apache-2.0
// One move of pages and what stands beside it: a copy of as many bytes to pages that are there
// already, and an observer.
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
  Bytes bytes;      // that are moved: whole pages
  CpuSet movers;    // one thread on each moves its part
  CpuSet observer;  // one CPU, or none where none is left
  CpuSet fillers;   // what they write last is in no cache but theirs

  // The nodes to bind pages to; nothing where there is only one memory node: no binding is needed
  // there, and containers may forbid it.
  std::optional<NodeId> source() const { return from == to ? std::nullopt : std::optional(from); }
  std::optional<NodeId> target() const { return from == to ? std::nullopt : std::optional(to); }
};

// What a move of `asked` came to.
struct Move {
  Bytes asked;
  Bytes moved;  // that are on the target now
  Bytes page;
  Nanoseconds time{0};
  Nanoseconds copying{0};  // what copying `asked` to pages that are there takes
  double cpu_seconds = 0;  // of all movers
};

// The rate of what moved, and its details; exhausted where nothing did.
Result<session::Sample> sample_of(const Move& move, NodeId to);

// `swept`: what the fillers read between filling and moving, so that what is moved is in no cache.
Result<std::unique_ptr<session::Probe>> prepare_migration(const MigrateSetting& setting,
                                                          std::span<const std::byte> swept);

}  // namespace headrace::experiment_migrate
