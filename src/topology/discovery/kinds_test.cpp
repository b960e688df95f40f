// SPDX-License-Identifier: Apache-2.0
#include "topology/discovery/kinds.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

namespace headrace {
namespace {

using Rated = KindEvidence::Rated;
using Tier = KindEvidence::Tier;

Rated rated(double bandwidth, double local_bandwidth, int latency, int local_latency) {
  return {.initiator = NodeId{0},
          .bandwidth = BytesPerSecond{bandwidth * 1e9},
          .local_bandwidth = BytesPerSecond{local_bandwidth * 1e9},
          .latency = Nanoseconds{latency},
          .local_latency = Nanoseconds{local_latency},
          .source = "HMAT"};
}

// A node without CPUs and without further evidence.
KindEvidence bare() { return {.node = NodeId{8}, .cpu_nodes = 8, .cpu_less_nodes = 8}; }

struct Case {
  const char* name;
  KindEvidence evidence;
  NodeKind kind;
  const char* reason;  // a part of it
};

KindEvidence make(const std::function<void(KindEvidence&)>& change) {
  KindEvidence evidence = bare();
  change(evidence);
  return evidence;
}

// A node with CPUs that contain 64 GiB, on a package with 62 GiB.
void only_hbm(KindEvidence& evidence) {
  evidence = {.node = NodeId{0},
              .has_cpus = true,
              .cpu_nodes = 8,
              .hbm_cpu_model = "x",
              .package_hbm = 64_GiB,
              .package_memory = 62_GiB};
}

const std::vector<Case>& cases() {
  static const std::vector<Case> kCases = {
      {"a node with CPUs", make([](auto& e) { e.has_cpus = true; }), NodeKind::dram, "has CPUs"},
      {"override",
       make([](auto& e) { e.override_kind = NodeKind::hbm, e.override_source = "HEADRACE_NODES"; }),
       NodeKind::hbm, "HEADRACE_NODES says so"},
      {"CXL region", make([](auto& e) { e.dax_device = "dax0.0", e.cxl_region = "region0"; }),
       NodeKind::cxl, "memory of dax0.0 in CXL region0"},
      {"persistent memory", make([](auto& e) { e.dax_device = "dax0.0", e.pmem_bus = "ndbus0"; }),
       NodeKind::cxl, "persistent memory"},
      {"dax alone", make([](auto& e) { e.dax_device = "dax0.0"; }), NodeKind::cxl, "behind dax0.0"},
      {"hwloc HBM", make([](auto& e) { e.hwloc_subtype = "HBM"; }), NodeKind::hbm, "hwloc"},
      {"hwloc MCDRAM", make([](auto& e) { e.hwloc_subtype = "MCDRAM"; }), NodeKind::hbm, "hwloc"},
      {"hwloc CXL-DRAM", make([](auto& e) { e.hwloc_subtype = "CXL-DRAM"; }), NodeKind::cxl,
       "hwloc calls it CXL-DRAM"},
      {"hwloc CXL-HBM", make([](auto& e) { e.hwloc_subtype = "CXL-HBM"; }), NodeKind::cxl, "hwloc"},
      {"hwloc DRAM", make([](auto& e) { e.hwloc_subtype = "DRAM"; }), NodeKind::dram, "hwloc"},
      {"hwloc NVM", make([](auto& e) { e.hwloc_subtype = "NVM"; }), NodeKind::cxl, "NVM"},
      {"hwloc GPUMemory", make([](auto& e) { e.hwloc_subtype = "GPUMemory"; }), NodeKind::gpu,
       "hwloc"},
      {"hwloc SPM decides nothing", make([](auto& e) { e.hwloc_subtype = "SPM"; }), NodeKind::cxl,
       "a guess"},
      {"HMAT 2.7 x", make([](auto& e) { e.rated = rated(130, 48, 120, 100); }), NodeKind::hbm,
       "rated 130 GB/s from node 0, 2.7 x its own memory's 48 GB/s (HMAT)"},
      {"HMAT exactly 2 x is not enough", make([](auto& e) { e.rated = rated(96, 48, 120, 100); }),
       NodeKind::cxl, "a guess"},
      {"HMAT below half", make([](auto& e) { e.rated = rated(20, 48, 120, 100); }), NodeKind::cxl,
       "rated 20 GB/s"},
      {"HMAT slow by latency", make([](auto& e) { e.rated = rated(30, 48, 251, 97); }),
       NodeKind::cxl, "rated 251 ns from node 0, 2.6 x its own memory's 97 ns"},
      {"HMAT without local figures", make([](auto& e) {
         e.rated = Rated{.initiator = NodeId{0}, .bandwidth = BytesPerSecond{1e12}};
       }),
       NodeKind::cxl, "a guess"},
      {"HMAT with zeros", make([](auto& e) { e.rated = rated(130, 0, 120, 0); }), NodeKind::cxl,
       "a guess"},
      {"a node with CPUs is not cxl by latency",
       make([](auto& e) { e.has_cpus = true, e.rated = rated(10, 48, 251, 97); }), NodeKind::dram,
       "has CPUs"},
      {"a faster tier", make([](auto& e) { e.tier = Tier::faster; }), NodeKind::hbm, "faster tier"},
      {"a slower tier", make([](auto& e) { e.tier = Tier::slower; }), NodeKind::cxl, "slower tier"},
      {"Xeon Max without HMAT", make([](auto& e) { e.hbm_cpu_model = "Xeon(R) CPU Max 9468"; }),
       NodeKind::hbm,
       "one such node for each node with CPUs, and Xeon(R) CPU Max 9468 carries HBM"},
      {"Xeon Max with one more node",
       make([](auto& e) { e.hbm_cpu_model = "Xeon(R) CPU Max 9468", e.cpu_less_nodes = 9; }),
       NodeKind::cxl, "a guess"},
      {"Xeon Max without DIMMs, though hwloc calls the memory of CPUs DRAM",
       make([](auto& e) { only_hbm(e), e.hwloc_subtype = "DRAM"; }), NodeKind::hbm,
       "x carries 64 GiB of HBM, and its package has no more memory (62 GiB)"},
      {"Xeon Max with DIMMs", make([](auto& e) { only_hbm(e), e.package_memory = 65_GiB; }),
       NodeKind::dram, "has CPUs"},
      {"Xeon Max with memory of unknown size",
       make([](auto& e) { only_hbm(e), e.package_memory.reset(); }), NodeKind::dram, "has CPUs"},
      {"Xeon Max in cache mode, which hwloc takes for HBM",
       make([](auto& e) { only_hbm(e), e.side_cached = true, e.hwloc_subtype = "HBM"; }),
       NodeKind::dram, "has CPUs"},
      {"Xeon Max in flat mode, with few DIMMs",
       make([](auto& e) { only_hbm(e), e.cpu_less_nodes = 1; }), NodeKind::dram, "has CPUs"},
      {"any CPU with little memory",
       make([](auto& e) { only_hbm(e), e.hbm_cpu_model.clear(), e.package_hbm = {}; }),
       NodeKind::dram, "has CPUs"},
      {"half the nodes without CPUs, unknown CPU",
       make([](auto& e) { e.nearest = NodeId{0}, e.distance = 13; }), NodeKind::cxl,
       "a guess: no CPUs, distance 13 from node 0, nothing says it is faster; if it is HBM set "
       "HEADRACE_NODES=8=hbm"},
      {"no node has CPUs", make([](auto& e) { e.cpu_nodes = 0; }), NodeKind::dram,
       "no node of this machine shows CPUs"},
  };
  return kCases;
}

TEST(KindsTest, TheTable) {
  for (const Case& each : cases()) {
    const KindDecision decision = decide_kind(each.evidence);
    EXPECT_EQ(decision.kind, each.kind) << each.name << ": " << decision.reason;
    EXPECT_NE(decision.reason.find(each.reason), std::string::npos)
        << each.name << ": " << decision.reason;
  }
}

// A hypervisor invents packages, and gives a guest any part of its host's memory.
TEST(KindsTest, NameOfCpusInAGuest_SaysHbmOnlyIfTheyTakeNoDimms) {
  const auto guest = [](const std::function<void(KindEvidence&)>& change) {
    return decide_kind(make([&](auto& e) { change(e), e.is_guest = true; }));
  };
  const KindDecision max = guest(only_hbm);
  EXPECT_EQ(max.kind, NodeKind::dram);
  EXPECT_EQ(max.reason,
            "a guess: has CPUs, and a guest on x may have its HBM or DIMMs; if it is HBM set "
            "HEADRACE_NODES=0=hbm");
  const KindDecision beside = guest([](auto& e) { e.hbm_cpu_model = "Xeon(R) CPU Max 9468"; });
  EXPECT_EQ(beside.kind, NodeKind::cxl) << "as many nodes without CPUs as with";
  const KindDecision alone =
      guest([](auto& e) { only_hbm(e), e.hbm_alone = true, e.package_memory = 512_GiB; });
  EXPECT_EQ(alone.kind, NodeKind::hbm);
  EXPECT_EQ(alone.reason, "x carries HBM and takes no DIMMs");
}

// Each pair contradicts itself; the first wins.
TEST(KindsTest, StrongerEvidenceWins) {
  const std::vector<std::function<void(KindEvidence&)>> hbm = {
      [](auto& e) { e.override_kind = NodeKind::hbm; },
      [](auto& e) { e.hwloc_subtype = "HBM"; },
      [](auto& e) { e.rated = rated(130, 48, 500, 100); },
      [](auto& e) { e.tier = Tier::faster; },
      [](auto& e) { e.hbm_cpu_model = "x"; },
  };
  const std::vector<std::function<void(KindEvidence&)>> cxl = {
      [](auto& e) { e.cxl_region = "region0"; },  // outranks all but the override
      [](auto& e) { e.hwloc_subtype = "CXL-DRAM"; },
      [](auto& e) { e.rated = rated(20, 48, 100, 100); },
  };
  const auto both = [&](std::size_t h, std::size_t c) {
    KindEvidence evidence = bare();
    hbm[h](evidence);
    cxl[c](evidence);
    return decide_kind(evidence).kind;
  };
  EXPECT_EQ(both(0, 0), NodeKind::hbm);
  EXPECT_EQ(both(0, 1), NodeKind::hbm);
  EXPECT_EQ(both(1, 0), NodeKind::cxl);
  EXPECT_EQ(both(1, 2), NodeKind::hbm);
  EXPECT_EQ(both(2, 0), NodeKind::cxl);
  EXPECT_EQ(both(2, 1), NodeKind::cxl);
  EXPECT_EQ(both(3, 2), NodeKind::cxl);
  EXPECT_EQ(both(4, 2), NodeKind::cxl);
}

TEST(KindsTest, EveryDecisionHasAReason) {
  EXPECT_TRUE(rc::check([] {
    KindEvidence e = bare();
    e.has_cpus = *rc::gen::arbitrary<bool>();
    e.hwloc_subtype = *rc::gen::element<std::string>("", "SPM", "HBM", "CXL-DRAM", "strange");
    e.tier = *rc::gen::element(Tier::unknown, Tier::same, Tier::faster, Tier::slower);
    e.cpu_nodes = *rc::gen::inRange(0u, 3u);
    e.cpu_less_nodes = *rc::gen::inRange(1u, 3u);
    e.hbm_cpu_model = *rc::gen::element<std::string>("", "x");
    if (*rc::gen::arbitrary<bool>()) {
      e.rated = rated(*rc::gen::inRange(0, 300), *rc::gen::inRange(0, 300),
                      *rc::gen::inRange(0, 500), *rc::gen::inRange(0, 500));
    }
    const KindDecision decision = decide_kind(e);
    RC_ASSERT(!decision.reason.empty());
    RC_ASSERT(decision.kind != NodeKind::storage);
    // A node with CPUs is other than dram only by a rating, a subtype, the user's word, or a
    // package without DIMMs.
    if (e.has_cpus && !e.rated && e.hwloc_subtype.empty()) {
      RC_ASSERT(decision.kind == NodeKind::dram);
    }
  }));
}

}  // namespace
}  // namespace headrace
