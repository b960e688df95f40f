// SPDX-License-Identifier: Apache-2.0
// What only a machine with several kinds of memory can show. Run inside guests by run_tests.sh,
// one topology at a time: XeonMax.* and Cxl.*, and Cpuset.* and Cgroup.* in restricted groups.

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <sys/mman.h>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <thread>

#include "guest/guest_testing.h"
#include "headrace/headrace.h"
#include "tests/support/expect.h"

namespace headrace {
namespace {

using namespace test;

TEST(XeonMax, HasEightDramAndEightHbmNodes) {
  for (std::uint32_t id = 0; id < 16; ++id) {
    const Node* node = machine().find(NodeId{id});
    ASSERT_NE(node, nullptr) << id;
    EXPECT_EQ(node->kind, id < 8 ? NodeKind::dram : NodeKind::hbm) << id << ": " << node->reason;
    EXPECT_EQ(node->cpus, id < 8 ? CpuSet{id} : CpuSet{}) << id;
    ASSERT_TRUE(node->capacity) << id;
    EXPECT_GT(*node->capacity, id < 8 ? 160_MiB : 80_MiB) << id;
    EXPECT_FALSE(node->access.empty()) << id;
    if (id < 8) continue;
    std::string reason = node->reason;
    std::ranges::transform(reason, reason.begin(),
                           [](char c) { return static_cast<char>(std::toupper(c)); });
    // From 2.12 on hwloc knows HBM itself, by the same table.
    EXPECT_TRUE(reason.contains("HMAT") || reason.contains("HWLOC CALLS IT HBM")) << node->reason;
  }
  EXPECT_EQ(machine().of_kind(NodeKind::hbm).size(), 8U);
}

TEST(XeonMax, DealsFiveToTwoToOneExactlyAtEverySize) {
  const Placement placement =
      base_pages(Placement::weighted({{NodeId{0}, 5}, {NodeId{8}, 2}, {NodeId{9}, 1}}));
  for (const std::uint64_t turns : {1U, 100U, 1024U}) {
    EXPECT_EQ(pages_of(kPage * 8 * turns, placement),
              (PagesOn{{NodeId{0}, 5 * turns}, {NodeId{8}, 2 * turns}, {NodeId{9}, turns}}));
  }
}

TEST(XeonMax, DealsHugePagesByWeight) {
  const auto buffer =
      allocate(machine(), 16_MiB, Placement::weighted({{NodeId{1}, 3}, {NodeId{10}, 1}}));
  ASSERT_TRUE(buffer) << buffer.error().message;
  EXPECT_EQ((*buffer)->page_size(), PageSize::transparent) << (*buffer)->fallback();
  EXPECT_EQ(where((*buffer)->bytes()).value().pages,
            (PagesOn{{NodeId{1}, 3072}, {NodeId{10}, 1024}}));
}

TEST(XeonMax, PlacesWhateverIsAskedFor) {
  EXPECT_TRUE(rc::check("any weights on any nodes, exactly", [] {
    const auto ids = *rc::gen::container<std::set<std::uint32_t>>(rc::gen::inRange(0U, 16U));
    RC_PRE(!ids.empty());
    Placement placement;
    for (const auto id : ids) {
      placement.nodes.push_back({NodeId{id}, *rc::gen::inRange(1U, 6U)});
    }
    placement.pages = PageSize::base;
    const auto pages = *rc::gen::inRange<std::uint64_t>(1, 300);
    const auto buffer = allocate(machine(), kPage * pages, placement);
    RC_ASSERT(buffer.has_value());
    // The kernel deals pages itself when all weights are 1.
    const bool kernel_deals =
        std::ranges::all_of(placement.nodes, [](auto& each) { return each.weight == 1; });
    std::vector<NodeId> expected;
    while (expected.size() < pages) {
      for (const auto& each : placement.nodes) {
        expected.insert(expected.end(), each.weight, each.node);
      }
    }
    expected.resize(pages);
    auto got = node_of_each_page(**buffer);
    // The kernel's own interleaving may begin with any of the nodes.
    if (kernel_deals) {
      const auto begin = std::ranges::find(placement.nodes, got.front(), &NodeWeight::node);
      RC_ASSERT(begin != placement.nodes.end());
      std::ranges::rotate(placement.nodes, begin);
      for (std::uint64_t i = 0; i < pages; ++i) {
        expected[i] = placement.nodes[i % placement.nodes.size()].node;
      }
    }
    RC_ASSERT(got == expected);
  }));
}

TEST(XeonMax, PreferredSpillsWhenItsNodeIsFull) {
  Placement placement = base_pages(Placement::on(NodeId{15}));
  placement.strict = false;
  const std::uint64_t free = free_pages_on(NodeId{15});
  const PagesOn pages = pages_of(160_MiB, placement);
  EXPECT_GT(pages.at(NodeId{15}), free / 2) << "first its own node";
  EXPECT_GT(pages.size(), 1U) << "160 MiB do not fit on 128";
}

TEST(XeonMax, StrictRefusesMoreThanItsNodesHave) {
  for (const auto& nodes : std::vector<std::vector<NodeId>>{{NodeId{8}}, {NodeId{8}, NodeId{9}}}) {
    const auto buffer = allocate(machine(), 130_MiB * nodes.size(), Placement::interleave(nodes));
    expect_refused(buffer, ErrorCode::exhausted, "do not fit on node 8; free now: node 0 ");
  }
  const std::uint64_t most = free_pages_on(NodeId{8}) / 4 * 3;
  EXPECT_EQ(pages_of(kPage * most, Placement::on(NodeId{8})), (PagesOn{{NodeId{8}, most}}));
}

TEST(XeonMax, TouchesInParallelOnTheRightNodes) {
  EXPECT_EQ(
      pages_of(128_MiB, Placement::weighted({{NodeId{2}, 1}, {NodeId{10}, 2}, {NodeId{3}, 1}})),
      (PagesOn{{NodeId{2}, 8192}, {NodeId{3}, 8192}, {NodeId{10}, 16384}}));
}

TEST(XeonMax, TakesReservedHugePagesOfItsNodeOnly) {
  const std::string pool = "/sys/devices/system/node/node11/hugepages/hugepages-2048kB/";
  std::ofstream(pool + "nr_hugepages") << 4 << std::flush;
  const auto free = [&] {
    int pages = -1;
    std::ifstream(pool + "free_hugepages") >> pages;
    return pages;
  };
  ASSERT_EQ(free(), 4);
  Placement placement = Placement::on(NodeId{11});
  placement.pages = PageSize::huge_2m;
  {
    const auto buffer = allocate(machine(), 5_MiB, placement);
    ASSERT_TRUE(buffer) << buffer.error().message;
    EXPECT_EQ((*buffer)->page_size(), PageSize::huge_2m) << (*buffer)->fallback();
    EXPECT_EQ((*buffer)->size(), 5_MiB);
    EXPECT_EQ(where((*buffer)->bytes()).value().pages, (PagesOn{{NodeId{11}, 5_MiB / kPage}}));
    EXPECT_EQ(free(), 1);
    const auto second = allocate(machine(), 4_MiB, placement);
    ASSERT_TRUE(second) << second.error().message;
    EXPECT_EQ((*second)->page_size(), PageSize::transparent);
    EXPECT_NE((*second)->fallback().find("1 free pages of 2 MiB on node 11, 2 needed"),
              std::string::npos)
        << (*second)->fallback();
  }
  EXPECT_EQ(free(), 4) << "given back";
  placement.nodes = {{NodeId{12}, 1}};
  const auto elsewhere = allocate(machine(), 4_MiB, placement);
  ASSERT_TRUE(elsewhere) << elsewhere.error().message;
  EXPECT_EQ((*elsewhere)->page_size(), PageSize::transparent) << "node 12 has none";
  EXPECT_EQ(where((*elsewhere)->bytes()).value().pages, (PagesOn{{NodeId{12}, 1024}}));
  std::ofstream(pool + "nr_hugepages") << 0;
}

// Whether this kernel has the policy; where it has not, that is what the refusal says.
bool kernel_has(MemoryPolicy policy) {
  bool has = false;
  std::jthread([&] {
    const auto set = set_process_policy(policy, {NodeId{0}});
    has = set.has_value();
    if (!has) {
      EXPECT_EQ(set.error().code, ErrorCode::unsupported) << set.error().message;
    }
  }).join();
  return has;
}

// Pages per node of memory that a thread touches under a policy of its own.
PagesOn pages_under(MemoryPolicy policy, const std::vector<NodeId>& nodes, Bytes bytes) {
  PagesOn pages;
  std::jthread([&] {
    const auto set = set_process_policy(policy, nodes);
    if (!set) {
      ADD_FAILURE() << to_string(policy) << ": " << set.error().message;
      return;
    }
    auto* const memory = static_cast<std::byte*>(
        ::mmap(nullptr, bytes.value, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    ASSERT_NE(memory, MAP_FAILED);
    ::madvise(memory, bytes.value, MADV_NOHUGEPAGE);
    const std::span<std::byte> area(memory, bytes.value);
    std::ranges::fill(area, std::byte{1});
    pages = where(area).value().pages;
    EXPECT_EQ(pages, test::numa_maps(area).value());
    ::munmap(memory, bytes.value);
  }).join();
  return pages;
}

std::vector<NodeId> hbm_nodes() {
  std::vector<NodeId> nodes;
  for (const Node* node : machine().of_kind(NodeKind::hbm)) nodes.push_back(node->id);
  return nodes;
}

void expect_all_on_hbm(MemoryPolicy policy) {
  std::uint64_t sum = 0;
  for (const auto& [node, pages] : pages_under(policy, hbm_nodes(), 2_MiB)) {
    EXPECT_GE(raw(node), 8u);
    sum += pages;
  }
  EXPECT_EQ(sum, 512u);
}

TEST(XeonMax, AProcessIsBoundToAKindOrPrefersANode) {
  expect_all_on_hbm(MemoryPolicy::bind);
  EXPECT_EQ(pages_under(MemoryPolicy::preferred, {NodeId{13}, NodeId{8}}, 1_MiB),
            (PagesOn{{NodeId{13}, 256}}));
}

TEST(XeonMax, AProcessPrefersAKind) {
  if (!kernel_has(MemoryPolicy::preferred_many)) GTEST_SKIP() << "Linux before 5.15";
  expect_all_on_hbm(MemoryPolicy::preferred_many);
}

TEST(XeonMax, AProcessInterleavesEvenly) {
  const PagesOn even = pages_under(MemoryPolicy::interleave, {NodeId{0}, NodeId{8}}, 1_MiB);
  EXPECT_EQ(even, (PagesOn{{NodeId{0}, 128}, {NodeId{8}, 128}}));
}

TEST(XeonMax, AProcessInterleavesByTheKernelsTable) {
  if (!kernel_has(MemoryPolicy::weighted_interleave)) GTEST_SKIP() << "Linux before 6.9";
  const std::string table = "/sys/kernel/mm/mempolicy/weighted_interleave/node0";
  std::ofstream(table) << 3 << std::flush;
  const PagesOn three =
      pages_under(MemoryPolicy::weighted_interleave, {NodeId{0}, NodeId{8}}, kPage * 400);
  EXPECT_NEAR(static_cast<double>(three.at(NodeId{0})), 300, 3);
  std::ofstream(table) << 1 << std::flush;
}

// Bytes that differ everywhere.
void fill(std::span<std::byte> bytes) {
  Random random(1);
  for (std::size_t i = 0; i + 8 <= bytes.size(); i += 8) {
    const std::uint64_t word = random();
    std::memcpy(bytes.data() + i, &word, sizeof(word));
  }
}

TEST(XeonMax, CopiesBetweenDramAndHbm) {
  const auto backends = Backends::open(machine());
  ASSERT_TRUE(backends) << backends.error().message;
  Mover mover(machine(), *backends);
  const auto from = allocate(machine(), 8_MiB, Placement::on(NodeId{0}));
  const auto to = allocate(machine(), 8_MiB, Placement::on(NodeId{8}));
  ASSERT_TRUE(from && to);
  fill((*from)->bytes());
  const auto stats = mover.copy(whole(**to), whole(**from)).wait();
  ASSERT_TRUE(stats) << stats.error().message;
  EXPECT_EQ(stats->bytes, 8_MiB);
  EXPECT_FALSE(stats->engines.empty());
  EXPECT_TRUE(std::ranges::equal((*from)->bytes(), (*to)->bytes()));
  EXPECT_EQ(where((*to)->bytes()).value().pages, (PagesOn{{NodeId{8}, 2048}})) << "still there";
}

// Objects of all sizes in a heap of HBM, and malloc's for C, where they should be.
TEST(XeonMax, KeepsObjectsWhereTheirHeapIs) {
  const auto hbm = Heap::open(machine(), Placement::on(NodeKind::hbm)).value();
  const auto tile = Heap::open(machine(), Placement::on(NodeId{9})).value();
  for (const std::size_t size : {16U, 1000U, 9000U, 300'000U, 3'000'000U}) {
    const auto nodes_of = [&](void* object) {
      const Residency residency = where({static_cast<std::byte*>(object), size}).value();
      EXPECT_EQ(residency.absent, 0U);
      std::set<NodeId> nodes;
      for (const auto& [node, pages] : residency.pages) nodes.insert(node);
      return nodes;
    };
    for (const NodeId node : nodes_of(hbm->allocate_bytes(size))) EXPECT_GE(raw(node), 8U);
    EXPECT_EQ(nodes_of(tile->allocate_bytes(size)), std::set{NodeId{9}});
    for (const auto kind : {HEADRACE_HBM, HEADRACE_HBM_PREFERRED, HEADRACE_FASTEST}) {
      for (const NodeId node : nodes_of(headrace_malloc(kind, size))) EXPECT_GE(raw(node), 8U);
    }
    for (const NodeId node : nodes_of(headrace_malloc(HEADRACE_DRAM, size))) {
      EXPECT_LT(raw(node), 8U);
    }
  }
}

// A chain goes on in DRAM when its HBM node is full, and nothing is killed.
TEST(XeonMax, ObjectsSpillWhenTheirNodeIsFull) {
  const auto tile = Heap::open(machine(), Placement::on(NodeId{15})).value();
  const auto dram = Heap::open(machine(), Placement::on(NodeKind::dram)).value();
  SpillChain chain({tile.get(), dram.get()});
  std::vector<void*> objects;
  do {
    objects.push_back(chain.allocate_bytes(500'000));
    ASSERT_NE(objects.back(), nullptr) << dram->last_error().value_or(Error{}).message;
  } while (tile->owns(objects.back()));
  EXPECT_GT(objects.size(), 10U);
  EXPECT_TRUE(dram->owns(objects.back()));
  EXPECT_EQ(tile->last_error().value().code, ErrorCode::exhausted);
  for (void* const object : objects) chain.free(object);
  EXPECT_TRUE(tile->owns(chain.allocate_bytes(500'000)));
}

TEST(Cxl, TheDeviceIsANode) {
  const Node* node = machine().find(NodeId{1});
  ASSERT_NE(node, nullptr);
  EXPECT_EQ(node->kind, NodeKind::cxl) << node->reason;
  EXPECT_FALSE(node->reason.empty());
  EXPECT_TRUE(node->cpus.empty());
  EXPECT_EQ(node->capacity, 256_MiB);
  EXPECT_EQ(machine().find(NodeId{0})->kind, NodeKind::dram);
}

TEST(Cxl, TakesMemory) {
  EXPECT_EQ(pages_of(1_MiB, base_pages(Placement::on(NodeKind::cxl))), (PagesOn{{NodeId{1}, 256}}));
  EXPECT_EQ(pages_of(1_MiB, base_pages(Placement::weighted({{NodeId{0}, 3}, {NodeId{1}, 1}}))),
            (PagesOn{{NodeId{0}, 192}, {NodeId{1}, 64}}));
}

// The blocks of memory of a node that is online.
std::vector<std::filesystem::path> blocks_of(NodeId node) {
  std::vector<std::filesystem::path> blocks;
  const std::string path = "/sys/devices/system/node/node" + std::to_string(raw(node));
  for (const auto& entry : std::filesystem::directory_iterator(path)) {
    const std::string name = entry.path().filename();
    if (!name.starts_with("memory") || !std::isdigit(name[6])) continue;
    blocks.push_back(std::filesystem::path("/sys/devices/system/memory") / name / "state");
  }
  return blocks;
}

// Whether all of them are as asked for then. What is in use may keep one for a while.
bool switch_memory(const std::vector<std::filesystem::path>& blocks, const std::string& state) {
  for (int i = 0; i < 5; ++i) {
    bool all = true;
    for (const std::filesystem::path& block : blocks) {
      std::ofstream(block) << state << std::flush;
      std::string now;
      std::ifstream(block) >> now;
      all = all && state.starts_with(now);  // "online" after "online_movable"
    }
    if (all) return true;
  }
  return false;
}

// Runs last: the memory is taken away and given back.
TEST(Cxl, ANodeThatGoesOfflineMeanwhileIsSaidSo) {
  const ParameterChoice node = std::uint64_t{1};
  const MeasureOptions options{
      .selections = {{"latency", {{"memory_node", node}}}, {"bandwidth", {{"memory_node", node}}}},
      .budget = std::nullopt,
      .rounds = 1,
      .repetitions = 1,
      .noise_checks = false};
  const auto naming_it = [](const Profile& profile) {
    return std::ranges::count_if(profile.rows, [](const Row& row) {
      return row.reason.find("node 1") != std::string::npos;
    });
  };
  const auto blocks = blocks_of(NodeId{1});
  ASSERT_FALSE(blocks.empty());
  // Between two samples: a program that is filling memory bound to the node would be ended by the
  // kernel.
  bool gone = false;
  const auto during = measure(machine(), options, {.progress = [&](std::size_t, std::size_t) {
                                gone = gone || switch_memory(blocks, "offline");
                              }});
  ASSERT_TRUE(during.has_value()) << during.error().message;
  if (!gone && !switch_memory(blocks, "offline")) {
    switch_memory(blocks, "online_movable");
    GTEST_SKIP() << "the kernel does not let go of the node";
  }
  const auto after = measure(machine(), options);
  EXPECT_TRUE(switch_memory(blocks, "online_movable"));
  EXPECT_GT(naming_it(*during), 0);
  ASSERT_TRUE(after.has_value()) << after.error().message;
  for (const Row& row : after->rows) EXPECT_FALSE(row.value) << row.key();
  EXPECT_GT(naming_it(*after), 0) << after->rows.front().reason;
}

// In a group with cpuset.mems = 0-7.
TEST(Cpuset, DeniesNodesOutsideIt) {
  expect_refused(allocate(machine(), 1_MiB, Placement::interleave({NodeId{0}, NodeId{8}})),
                 ErrorCode::denied, "node 8 is outside the cpuset of this process (0-7)");
  EXPECT_EQ(pages_of(1_MiB, Placement::on(NodeId{7})), (PagesOn{{NodeId{7}, 256}}));
}

// A cpuset that shrinks later must not make a heap fail because of the nodes it first chose.
TEST(Cpuset, AHeapOfAKindGoesOnWithWhatIsStillAllowed) {
  Placement wish = base_pages(Placement::on(NodeKind::dram));
  wish.near = {0};
  const auto heap = Heap::open(machine(), wish).value();
  const Placement resolved = resolve(machine(), wish).value();
  const auto allow = [](const char* nodes) {
    std::ofstream file("/sys/fs/cgroup/restricted/cpuset.mems");
    file << nodes << std::flush;
    ASSERT_TRUE(file) << nodes;
  };
  for (const auto& [nodes, first] : {std::pair("0-3", NodeId{0}), {"1-3", NodeId{1}}}) {
    allow(nodes);
    EXPECT_EQ(pages_of(1_MiB, resolved), (PagesOn{{first, 256}})) << nodes;
    auto* const object = static_cast<std::byte*>(heap->allocate_bytes(1 << 20));
    ASSERT_NE(object, nullptr) << nodes << ": " << heap->last_error().value().message;
    EXPECT_EQ(where({object, 1 << 20})->pages, (PagesOn{{first, 256}})) << nodes;
    heap->free(object);
  }
  allow("0-7");
}

// In a group with memory.max = 64 MiB.
TEST(Cgroup, RefusesMoreThanItsLimit) {
  expect_refused(allocate(machine(), 96_MiB, Placement::on(NodeId{0})), ErrorCode::exhausted,
                 "memory cgroup");
  EXPECT_EQ(pages_of(8_MiB, Placement::on(NodeId{0})), (PagesOn{{NodeId{0}, 2048}}));
}

}  // namespace
}  // namespace headrace
