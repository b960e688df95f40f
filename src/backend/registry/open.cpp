// SPDX-License-Identifier: Apache-2.0
// Opens the backends that drive a machine's engines in this process.

#include <fmt/core.h>

#include <algorithm>

#include "backend/cpu/cpu.h"
#include "backend/cuda/engines/engines.h"
#include "backend/dsa/dsa.h"
#include "backend/storage/storage.h"
#include "headrace/backend.h"

namespace headrace {
namespace {

// The last argument: the backends that are already open.
using Open = Result<std::unique_ptr<Backend>> (*)(const Machine&, std::vector<EngineId>,
                                                  const Backends&);

// The backend of the machine's files, which GPU backends use; nullptr if none is open.
Backend* storage_of(const Machine& machine, const Backends& open) {
  for (const Engine& engine : machine.engines) {
    if (engine.kind == EngineKind::ssd) return open.find(engine.id);
  }
  return nullptr;
}

// Returns the function that opens engines of a kind; nullptr if this build has no backend for it.
Open opener(EngineKind kind) {
  switch (kind) {
    case EngineKind::cpu:
      return [](const Machine& machine, std::vector<EngineId> engines, const Backends&) {
        return open_cpu(machine, std::move(engines));
      };
    case EngineKind::ssd:
      return [](const Machine& machine, std::vector<EngineId> engines, const Backends&) {
        return open_storage(machine, std::move(engines));
      };
    case EngineKind::dsa:
      return [](const Machine& machine, std::vector<EngineId> engines, const Backends&) {
        return open_dsa(machine, std::move(engines));
      };
    case EngineKind::gpu:
      return [](const Machine& machine, std::vector<EngineId> engines, const Backends& open) {
        return open_cuda(machine, std::move(engines), {.storage = storage_of(machine, open)});
      };
    case EngineKind::migrate: return nullptr;
  }
  return nullptr;
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
    const Open open = opener(kind);
    std::string why = "this version has no backend for its kind; others copy in its place";
    if (open != nullptr) {
      auto backend = open(machine, engines, backends);
      if (backend) {
        backends.add(*std::move(backend));
        continue;
      }
      why = backend.error().message;
    }
    for (const EngineId id : engines) {
      backends.skipped_.push_back(
          fmt::format("{} ({}): {}", machine.find(id)->name, to_string(kind), why));
    }
  }
  return backends;
}

}  // namespace headrace
