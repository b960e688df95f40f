// What only a machine with several kinds of memory can show. Run inside guests by run_tests.sh,
// one topology at a time: XeonMax.* and Cxl.*, and Cpuset.* and Cgroup.* in restricted groups.

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <fstream>
#include <map>
#include <set>

#include "headrace/headrace.h"
#include "tests/support/numa_maps.h"

namespace headrace {
namespace {

constexpr Bytes kPage = 4_KiB;

const Machine& machine() {
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

Placement base_pages(Placement placement) {
  placement.pages = PageSize::base;
  return placement;
}

// The node of every page, one question each.
std::vector<NodeId> node_of_each_page(const Buffer& buffer) {
  std::vector<NodeId> nodes;
  for (std::uint64_t at = 0; at < buffer.size().value; at += kPage.value) {
    const auto residency = where(buffer.bytes().subspan(at, 1)).value();
    nodes.push_back(residency.pages.empty() ? NodeId{~0U} : residency.pages.begin()->first);
  }
  return nodes;
}

// Free pages of a node, by its meminfo.
std::uint64_t free_pages_on(NodeId node) {
  std::ifstream file("/sys/devices/system/node/node" + std::to_string(raw(node)) + "/meminfo");
  for (std::string word; file >> word;) {
    std::uint64_t kib = 0;
    if (word == "MemFree:" && file >> kib) return kib / (kPage / 1_KiB);
  }
  ADD_FAILURE() << "no meminfo of node " << raw(node);
  return 0;
}

using PagesOn = std::map<NodeId, std::uint64_t>;

// Allocates, compares where() with the kernel's other account, and returns it.
PagesOn pages_of(Bytes bytes, const Placement& placement) {
  const auto buffer = allocate(machine(), bytes, placement);
  if (!buffer) {
    ADD_FAILURE() << buffer.error().message;
    return {};
  }
  const Residency residency = where((*buffer)->bytes()).value();
  EXPECT_EQ(residency.absent, 0U);
  EXPECT_EQ(residency.pages, test::numa_maps((*buffer)->bytes()).value());
  return residency.pages;
}

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
    EXPECT_NE(reason.find("HMAT"), std::string::npos) << node->reason;
  }
  EXPECT_EQ(machine().of_kind(NodeKind::hbm).size(), 8U);
}

TEST(XeonMax, BindsToEachNode) {
  for (std::uint32_t id = 0; id < 16; ++id) {
    const NodeId node{id};
    EXPECT_EQ(pages_of(1_MiB, base_pages(Placement::on(node))), (PagesOn{{node, 256}}));
  }
}

TEST(XeonMax, KindMeansItsNodesInTurn) {
  const PagesOn pages = pages_of(1_MiB, base_pages(Placement::on(NodeKind::hbm)));
  ASSERT_EQ(pages.size(), 8U);
  for (const auto& [id, count] : pages) EXPECT_EQ(count, 32U) << raw(id);
}

TEST(XeonMax, InterleavesPageByPage) {
  const PagesOn pages =
      pages_of(kPage * 300, base_pages(Placement::interleave({NodeId{0}, NodeId{9}, NodeId{12}})));
  EXPECT_EQ(pages, (PagesOn{{NodeId{0}, 100}, {NodeId{9}, 100}, {NodeId{12}, 100}}));
}

TEST(XeonMax, DealsThreeToOne) {
  const auto buffer = allocate(machine(), kPage * 10,
                               base_pages(Placement::weighted({{NodeId{0}, 3}, {NodeId{8}, 1}})));
  ASSERT_TRUE(buffer) << buffer.error().message;
  constexpr NodeId d{0}, h{8};
  EXPECT_EQ(node_of_each_page(**buffer), (std::vector{d, d, d, h, d, d, d, h, d, d}));
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
    ASSERT_FALSE(buffer);
    EXPECT_EQ(buffer.error().code, ErrorCode::exhausted);
    EXPECT_NE(buffer.error().message.find("do not fit on node 8; free now: node 0 "),
              std::string::npos)
        << buffer.error().message;
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

// What the numbers are means nothing under emulation; that every pair has one, on pages that stayed
// where they belong, does.
TEST(XeonMax, MeasuresTheLatencyOfEveryPair) {
  const auto profile = measure(
      machine(), {.experiments = {"latency"}, .budget = std::chrono::seconds{40}, .width = 1});
  ASSERT_TRUE(profile.has_value()) << profile.error().message;
  std::set<std::pair<std::uint64_t, std::uint64_t>> pairs;
  for (const Row& row : profile->rows) {
    if (!row.value) {
      EXPECT_TRUE(row.reason.starts_with("left out") || row.reason.starts_with("the budget"))
          << row.key() << ": " << row.reason;
      continue;
    }
    pairs.emplace(std::get<std::uint64_t>(*row.parameter("cpu_node")),
                  std::get<std::uint64_t>(*row.parameter("memory_node")));
  }
  EXPECT_EQ(pairs.size(), 8u * 16);
  for (const Node& node : profile->machine.nodes) {
    if (!node.byte_addressable()) continue;
    EXPECT_EQ(std::ranges::count(node.access, true, &AccessAttributes::measured), 8)
        << raw(node.id);
  }
}

// What a row may say instead of a number where nothing went wrong: for want of time, and for want
// of CPUs or a disk in this guest.
bool is_expected(const Row& row) {
  return row.value || row.reason.starts_with("left out") || row.reason.starts_with("the budget") ||
         row.reason.starts_with("one CPU cannot") || row.reason.starts_with("no disk") ||
         row.reason.find("too small") != std::string::npos;
}

// Each kernel's arrays are checked by the experiment after every timing.
TEST(XeonMax, StreamsOverArraysOnDramAndHbm) {
  const auto profile = measure(machine(), {.experiments = {"stream"},
                                           .only = {{"cpu_node", std::uint64_t{1}},
                                                    {"a", std::uint64_t{9}},
                                                    {"b", "dram"},
                                                    {"c", "hbm"}},
                                           .budget = std::chrono::seconds{8},
                                           .width = 1});
  ASSERT_TRUE(profile.has_value()) << profile.error().message;
  EXPECT_EQ(profile->rows.size(), 4u * 8 * 8);
  std::set<std::string_view> kernels;
  for (const Row& row : profile->rows) {
    EXPECT_TRUE(is_expected(row)) << row.key() << ": " << row.reason;
    if (row.value) kernels.insert(row.word("kernel"));
  }
  EXPECT_EQ(kernels.size(), 4u);
}

TEST(XeonMax, AWholeMeasurementHasNoErrors) {
  const auto profile = measure(machine(), {.budget = std::chrono::seconds{20}, .width = 1});
  ASSERT_TRUE(profile.has_value()) << profile.error().message;
  std::map<std::string, std::size_t> measured;
  for (const Row& row : profile->rows) {
    EXPECT_TRUE(is_expected(row)) << row.key() << ": " << row.reason;
    if (row.value) ++measured[row.experiment];
  }
  // In 20 s of an emulated machine: what is of rank 0.
  EXPECT_GT(measured["latency"], 0u);
  EXPECT_LT(profile->to_json().size(), std::size_t{32} << 20) << "a profile that can be read again";
}

// The experiment itself checks that no byte and no write of a concurrent thread is lost.
TEST(XeonMax, MigratesUnderAWriterByEveryMethod) {
  const auto profile = measure(
      machine(), {.experiments = {"migrate"}, .budget = std::chrono::seconds{20}, .width = 1});
  ASSERT_TRUE(profile.has_value()) << profile.error().message;
  std::set<std::string> methods;
  for (const Row& row : profile->rows) {
    if (!row.value) {
      EXPECT_TRUE(row.reason.starts_with("left out") || row.reason.starts_with("the budget"))
          << row.key() << ": " << row.reason;
      continue;
    }
    EXPECT_EQ(row.details.at("stayed"), 0) << row.key();
    methods.insert(std::get<std::string>(*row.parameter("method")));
  }
  EXPECT_EQ(methods, (std::set<std::string>{"copy", "mbind", "move_pages", "remap"}));
}

TEST(Cxl, TheDeviceIsANode) {
  const Node* node = machine().find(NodeId{1});
  ASSERT_NE(node, nullptr);
  EXPECT_EQ(node->kind, NodeKind::cxl) << node->reason;
  EXPECT_FALSE(node->reason.empty());
  EXPECT_TRUE(node->cpus.empty());
  EXPECT_EQ(node->capacity, 512_MiB);
  EXPECT_EQ(machine().find(NodeId{0})->kind, NodeKind::dram);
}

TEST(Cxl, TakesMemory) {
  EXPECT_EQ(pages_of(1_MiB, base_pages(Placement::on(NodeKind::cxl))), (PagesOn{{NodeId{1}, 256}}));
  EXPECT_EQ(pages_of(1_MiB, base_pages(Placement::weighted({{NodeId{0}, 3}, {NodeId{1}, 1}}))),
            (PagesOn{{NodeId{0}, 192}, {NodeId{1}, 64}}));
}

// In a group with cpuset.mems = 0-7.
TEST(Cpuset, DeniesNodesOutsideIt) {
  const auto buffer = allocate(machine(), 1_MiB, Placement::interleave({NodeId{0}, NodeId{8}}));
  ASSERT_FALSE(buffer);
  EXPECT_EQ(buffer.error().code, ErrorCode::denied) << buffer.error().message;
  EXPECT_NE(buffer.error().message.find("node 8 is outside the cpuset of this process (0-7)"),
            std::string::npos)
      << buffer.error().message;
  EXPECT_EQ(pages_of(1_MiB, Placement::on(NodeId{7})), (PagesOn{{NodeId{7}, 256}}));
}

// In a group with memory.max = 64 MiB.
TEST(Cgroup, RefusesMoreThanItsLimit) {
  const auto buffer = allocate(machine(), 96_MiB, Placement::on(NodeId{0}));
  ASSERT_FALSE(buffer);
  EXPECT_EQ(buffer.error().code, ErrorCode::exhausted);
  EXPECT_NE(buffer.error().message.find("memory cgroup"), std::string::npos)
      << buffer.error().message;
  EXPECT_EQ(pages_of(8_MiB, Placement::on(NodeId{0})), (PagesOn{{NodeId{0}, 2048}}));
}

}  // namespace
}  // namespace headrace
