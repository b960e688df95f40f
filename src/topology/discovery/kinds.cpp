// SPDX-License-Identifier: Apache-2.0
#include "topology/discovery/kinds.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>

namespace headrace {
namespace {

// The ratio of bandwidths from which hwloc distinguishes HBM and DRAM. IT4I's Xeon Max measures
// 3.05 (STREAM copy, 1128 against 370 GB/s).
constexpr double kHbmRatio = 2.0;
// Between two published ratios: 1.34 for memory behind the other socket (130 against 97 ns), and
// 1.7 for a small CXL pool (70 ns more). Tang et al., EuroSys'24; Li et al., ASPLOS'23.
constexpr double kFarLatencyRatio = 1.5;

using Decision = std::optional<KindDecision>;

Decision by_override(const KindEvidence& e) {
  if (!e.override_kind) return std::nullopt;
  return KindDecision{*e.override_kind, fmt::format("{} says so", e.override_source)};
}

Decision by_device(const KindEvidence& e) {
  if (!e.cxl_region.empty()) {
    return KindDecision{NodeKind::cxl,
                        fmt::format("memory of {} in CXL {}", e.dax_device, e.cxl_region)};
  }
  if (!e.pmem_bus.empty()) {
    return KindDecision{
        NodeKind::cxl,
        fmt::format("persistent memory ({} on {}) used as memory: treated as cxl, which is as slow",
                    e.dax_device, e.pmem_bus)};
  }
  return std::nullopt;
}

// A package without DIMMs: HBM is its only memory, and the node of its CPUs. A guest may have a
// part of its host's DIMMs, and any number of packages.
Decision by_package(const KindEvidence& e) {
  if (!e.has_cpus || e.hbm_cpu_model.empty() || e.side_cached) return std::nullopt;
  if (e.hbm_alone) {
    return KindDecision{NodeKind::hbm,
                        fmt::format("{} carries HBM and takes no DIMMs", e.hbm_cpu_model)};
  }
  if (e.is_guest || e.cpu_less_nodes > 0) return std::nullopt;
  if (!e.package_memory || *e.package_memory > e.package_hbm) return std::nullopt;
  return KindDecision{
      NodeKind::hbm,
      fmt::format("{} carries {} of HBM, and its package has no more memory ({})", e.hbm_cpu_model,
                  to_string(e.package_hbm), to_string(*e.package_memory))};
}

Decision by_hwloc(const KindEvidence& e) {
  const std::string_view subtype = e.hwloc_subtype;
  const auto decided = [&](NodeKind kind) {
    return KindDecision{kind, fmt::format("hwloc calls it {}", subtype)};
  };
  if (subtype.starts_with("CXL")) return decided(NodeKind::cxl);
  // Since 2.10 hwloc guesses by bandwidth, which is the cache's if the node has one.
  if (e.side_cached) return std::nullopt;
  if (subtype == "HBM" || subtype == "MCDRAM") return decided(NodeKind::hbm);
  if (subtype == "DRAM") return decided(NodeKind::dram);
  if (subtype == "GPUMemory") return decided(NodeKind::gpu);
  if (subtype == "NVM") {
    return KindDecision{NodeKind::cxl, "hwloc calls it NVM: treated as cxl, which is as slow"};
  }
  return std::nullopt;  // SPM: reserved by firmware; may be HBM or CXL
}

Decision by_bandwidth(const KindEvidence& e) {
  if (!e.rated || !e.rated->bandwidth || !e.rated->local_bandwidth) return std::nullopt;
  const KindEvidence::Rated& rated = *e.rated;
  if (rated.local_bandwidth->value <= 0) return std::nullopt;
  const double ratio = rated.bandwidth->value / rated.local_bandwidth->value;
  const std::string figures = fmt::format(
      "rated {} from node {}, {:.1f} x its own memory's {} ({})", to_string(*rated.bandwidth),
      raw(rated.initiator), ratio, to_string(*rated.local_bandwidth), rated.source);
  if (ratio > kHbmRatio) return KindDecision{NodeKind::hbm, figures};
  if (!e.has_cpus && ratio < 1 / kHbmRatio)
    return KindDecision{NodeKind::cxl, "no CPUs; " + figures};
  return std::nullopt;
}

Decision by_latency(const KindEvidence& e) {
  if (e.has_cpus || !e.rated || !e.rated->latency || !e.rated->local_latency) return std::nullopt;
  const KindEvidence::Rated& rated = *e.rated;
  if (rated.local_latency->count() <= 0) return std::nullopt;
  const double ratio = seconds(*rated.latency) / seconds(*rated.local_latency);
  if (ratio < kFarLatencyRatio) return std::nullopt;
  return KindDecision{
      NodeKind::cxl,
      fmt::format("no CPUs; rated {} ns from node {}, {:.1f} x its own memory's {} ns"
                  " ({})",
                  rated.latency->count(), raw(rated.initiator), ratio, rated.local_latency->count(),
                  rated.source)};
}

Decision by_tier(const KindEvidence& e) {
  if (e.has_cpus || e.tier != KindEvidence::Tier::faster) return std::nullopt;
  return KindDecision{NodeKind::hbm, "no CPUs; the kernel ranks it in a faster tier than theirs"};
}

Decision by_cpu_model(const KindEvidence& e) {
  if (e.has_cpus || e.hbm_cpu_model.empty() || e.is_guest) return std::nullopt;
  if (e.cpu_less_nodes != e.cpu_nodes) return std::nullopt;
  return KindDecision{
      NodeKind::hbm,
      fmt::format("no CPUs, one such node for each node with CPUs, and {} carries HBM",
                  e.hbm_cpu_model)};
}

// The remaining nodes without CPUs. Neither distance nor number distinguishes HBM from CXL. Taking
// HBM for CXL only loses a gain. Taking CXL for HBM makes programs slower. So the kind is cxl.
Decision by_exclusion(const KindEvidence& e) {
  if (e.has_cpus || e.cpu_nodes == 0) return std::nullopt;
  std::string far;
  if (e.nearest && e.distance) {
    far = fmt::format(", distance {} from node {}", *e.distance, raw(*e.nearest));
  }
  if (e.tier == KindEvidence::Tier::slower) far += ", in a slower tier of the kernel";
  if (!e.dax_device.empty()) far += fmt::format(", behind {}", e.dax_device);
  return KindDecision{NodeKind::cxl,
                      fmt::format("a guess: no CPUs{}, nothing says it is faster; if it is HBM set "
                                  "HEADRACE_NODES={}=hbm",
                                  far, raw(e.node))};
}

KindDecision by_default(const KindEvidence& e) {
  if (e.has_cpus && e.is_guest && !e.hbm_cpu_model.empty()) {
    return {NodeKind::dram,
            fmt::format("a guess: has CPUs, and a guest on {} may have its HBM or DIMMs; if it is "
                        "HBM set HEADRACE_NODES={}=hbm",
                        e.hbm_cpu_model, raw(e.node))};
  }
  if (e.has_cpus) return {NodeKind::dram, "has CPUs; assumed: no evidence of HBM or CXL"};
  return {NodeKind::dram, "no node of this machine shows CPUs, so none can be told apart"};
}

}  // namespace

KindDecision decide_kind(const KindEvidence& evidence) {
  using Rule = Decision (*)(const KindEvidence&);
  constexpr std::array<Rule, 9> kRules = {by_override, by_device,    by_package,
                                          by_hwloc,    by_bandwidth, by_latency,
                                          by_tier,     by_cpu_model, by_exclusion};
  for (const Rule rule : kRules) {
    if (auto decision = rule(evidence)) return *std::move(decision);
  }
  return by_default(evidence);
}

}  // namespace headrace
