// SPDX-License-Identifier: Apache-2.0
// A backend whose pieces are flows of bytes in virtual time (flows.h). No byte is copied: what a
// piece would have written stays as it was.
//
// An engine has the queue, the largest piece and the way of completion of its production backend:
// - cpu: `workers` cores of its node, one piece each, which share the ceilings with all other
//   threads there; pieces below 16 KiB are copied by the thread that submits them.
// - dsa: one flow with its rate and its bytes in flight, shared by all its pieces in progress;
//   reports nothing by itself, as the device: poll() looks. The submitting thread is busy for
//   263 ns for each piece: an ENQCMD (docs/design/dsa-rates.md).
// - ssd, gpu: as dsa, but with a thread that reports.
// A piece ends the latency of its copy rate (CopyRate) after its last byte.
//
// Left out: faults and retries, the cost of submissions to other engines, lists of copies of a GPU,
// and page migration.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "headrace/backend.h"
#include "headrace/machine.h"
#include "headrace/result.h"
#include "sim/host.h"

namespace headrace::sim {

struct EngineOptions {
  // Cores that copy, per engine of kind cpu. As CpuOptions::workers.
  unsigned workers = 4;
  // Pieces accepted and not yet reported, per engine. 0: of the production backend: cpu 64; dsa
  // 128, the entries of a device's work queues (Intel DSA User Guide); ssd and gpu 128.
  std::size_t max_in_flight = 0;
};

// Opens `engines` of the host's machine, all of one kind. Borrows `host`.
// Errors: absent: no such engine; invalid: engines of several kinds, or none; unsupported: page
// migration.
Result<std::unique_ptr<Backend>> open(Host& host, std::vector<EngineId> engines,
                                      const EngineOptions& options = {});

// Backends for all engines of these kinds.
Result<Backends> open_kinds(Host& host, std::span<const EngineKind> kinds,
                            const EngineOptions& options = {});

}  // namespace headrace::sim
