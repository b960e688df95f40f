// SPDX-License-Identifier: Apache-2.0
// Opens the backends that drive a machine's engines in this process.

#include <fmt/core.h>

#include <algorithm>

#include "backend/cpu/cpu.h"
#include "backend/cuda/engines/engines.h"
#include "backend/dsa/dsa.h"
#include "backend/storage/storage.h"
#include "core/fail.h"
#include "headrace/backend.h"

namespace headrace {
namespace {

// The backend of the machine's files, which GPU backends use; nullptr if none is open.
Backend* storage_of(const Machine& machine, const Backends& open) {
  for (const Engine& engine : machine.engines) {
    if (engine.kind == EngineKind::ssd) return open.find(engine.id);
  }
  return nullptr;
}

Result<std::unique_ptr<Backend>> open_kind(EngineKind kind, const Machine& machine,
                                           std::vector<EngineId> engines, const Backends& open) {
  switch (kind) {
    case EngineKind::cpu: return open_cpu(machine, std::move(engines));
    case EngineKind::ssd: return open_storage(machine, std::move(engines));
    case EngineKind::dsa: return open_dsa(machine, std::move(engines));
    case EngineKind::gpu:
      return open_cuda(machine, std::move(engines), {.storage = storage_of(machine, open)});
    case EngineKind::migrate: break;
  }
  return fail(ErrorCode::unsupported,
              "this version has no backend for its kind; others copy in its place");
}

}  // namespace

Result<Backends> Backends::open(const Machine& machine) {
  Backends backends;
  std::vector<EngineKind> kinds;
  for (const Engine& engine : machine.engines) {
    if (std::ranges::find(kinds, engine.kind) == kinds.end()) kinds.push_back(engine.kind);
  }
  // After storage, which GPU backends use.
  std::ranges::stable_partition(kinds, [](EngineKind kind) { return kind != EngineKind::gpu; });
  for (const EngineKind kind : kinds) {
    std::vector<EngineId> engines;
    for (const Engine& engine : machine.engines) {
      if (engine.kind == kind) engines.push_back(engine.id);
    }
    auto backend = open_kind(kind, machine, engines, backends);
    if (backend) {
      backends.add(*std::move(backend));
      continue;
    }
    for (const EngineId id : engines) {
      backends.skipped_.push_back(fmt::format("{} ({}): {}", machine.find(id)->name,
                                              to_string(kind), backend.error().message));
    }
  }
  return backends;
}

}  // namespace headrace
