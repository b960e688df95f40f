// SPDX-License-Identifier: Apache-2.0
// Arenas over the memory of this machine.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory_resource>
#include <thread>
#include <utility>

#include "core/sanitizers.h"
#include "headrace/buffer.h"
#include "headrace/tier/arena.h"
#include "support/child.h"
#include "tests/support/expect.h"

namespace headrace {
namespace {

using std::chrono::milliseconds;
using test::expect_refused;

const Machine& here() {
  static const Machine machine = Machine::discover().value();
  return machine;
}

TEST(Arenas, GiveTheSameHeapForTheSameName) {
  const auto arenas = Arenas::open(here()).value();
  Heap* const heap = arenas->heap("index").value();
  EXPECT_EQ(arenas->heap("index").value(), heap);
  EXPECT_NE(arenas->heap("values").value(), heap);
  void* const object = heap->allocate_bytes(100);
  EXPECT_EQ(Heap::owner(object), heap);
  heap->free(object);
}

TEST(Arenas, AllocateWhereThePlanSays) {
  const NodeId node = here().nodes.front().id;
  const ArenaPlan plan{{{"planned", std::to_string(std::to_underlying(node)), {}, 0}}};
  const auto arenas =
      Arenas::open(here(), {.plan = plan, .otherwise = Placement::on(Property::largest)}).value();
  const auto& placement = arenas->heap("planned").value()->placement();
  ASSERT_EQ(placement.nodes.size(), 1u);
  EXPECT_EQ(placement.nodes.front().node, node);
}

TEST(Arenas, ArenaThatThePlanDoesNotPlace_UsesTheDefault) {
  const ArenaPlan plan{{{"unseen", "-", {}, {}}}};
  const auto arenas = Arenas::open(here(), {.plan = plan}).value();
  EXPECT_EQ(arenas->heap("unseen").value()->placement().nodes,
            arenas->heap("other").value()->placement().nodes);
}

TEST(Arenas, RefuseAPlanThatThisMachineCannotFollow) {
  expect_refused(Arenas::open(here(), {.plan = {{{"index", "4095", {}, 0}}}}), ErrorCode::absent,
                 "index");
  expect_refused(Arenas::open(here(), {.plan = {{{"index", "hmb", {}, 0}}}}), ErrorCode::invalid,
                 "index");
}

TEST(Arenas, InvalidNamesAndIntervals_AreRefused) {
  const auto arenas = Arenas::open(here()).value();
  expect_refused(Arenas::open(here(), {.look_every = milliseconds{99}}), ErrorCode::invalid,
                 "100 ms");
  expect_refused(arenas->heap(""), ErrorCode::invalid, "64 letters");
  expect_refused(arenas->heap("a b\n"), ErrorCode::invalid, "a b?");
}

TEST(Arenas, PeakMemory_IsReported) {
  const auto arenas = Arenas::open(here()).value();
  Heap* const heap = arenas->heap("index").value();
  void* const first = heap->allocate_bytes((8_MiB).value);
  heap->free(first);
  void* const second = heap->allocate_bytes((4_MiB).value);
  const auto uses = arenas->uses();
  ASSERT_EQ(uses.size(), 1u);
  EXPECT_EQ(uses[0].name, "index");
  EXPECT_EQ(uses[0].most, 8_MiB);
  EXPECT_EQ(uses[0].looks, 0u);
  EXPECT_EQ(uses[0].why_unseen, "not watched");
  expect_refused(arenas->look(), ErrorCode::unsupported, "look_every");
  heap->free(second);
}

class WatchedArenas : public testing::Test {
 protected:
  void SetUp() override {
    auto opened = Arenas::open(here(), {.look_every = std::chrono::hours{1}});
    if (!opened) GTEST_SKIP() << opened.error().message;
    arenas_ = *std::move(opened);
  }
  std::span<std::byte> allocate(const char* arena, Bytes bytes) {
    auto* const object = static_cast<std::byte*>(heap(arena).allocate_bytes(bytes.value));
    std::memset(object, 1, bytes.value);
    return {object, bytes.value};
  }
  Heap& heap(const char* arena) { return *arenas_->heap(arena).value(); }
  ArenaUse use_of(std::string_view name) {
    for (ArenaUse& use : arenas_->uses()) {
      if (use.name == name) return use;
    }
    return {};
  }
  static void touch(std::span<std::byte> memory) {
    for (std::size_t at = 0; at < memory.size(); at += 4096) {
      const_cast<volatile std::byte&>(memory[at]) = std::byte{2};
    }
  }
  std::unique_ptr<Arenas> arenas_;
};

TEST_F(WatchedArenas, TellTheHotFromTheCold) {
  const auto hot = allocate("hot", 8_MiB);
  const auto half = allocate("half", 8_MiB);
  const auto cold = allocate("cold", 8_MiB);
  ASSERT_TRUE(arenas_->look());
  for (int look = 0; look < 3; ++look) {
    touch(hot);
    touch(half.first(half.size() / 2));
    ASSERT_TRUE(arenas_->look());
  }
  EXPECT_EQ(use_of("hot").looks, 3u);
  EXPECT_GT(use_of("hot").heat, 0.9);
  EXPECT_NEAR(use_of("half").heat, 0.5, 0.2);
  EXPECT_LT(use_of("cold").heat, 0.1);
  EXPECT_EQ(use_of("hot").why_unseen, "");
  const std::vector<ArenaTier> tiers{{"dram", 8_MiB}, {"largest", {}}};
  const auto plan = plan_arenas(arenas_->uses(), tiers).value();
  EXPECT_EQ(plan.arenas[0], (ArenaPlace{"hot", "dram", 8_MiB, use_of("hot").heat}));
  EXPECT_EQ(plan.arenas[1].place, "largest");
  EXPECT_EQ(cold[0], std::byte{1});
}

TEST_F(WatchedArenas, CountSmallObjectsAndMemoryThatCameLater) {
  std::pmr::vector<std::uint64_t> numbers(1 << 17, &heap("numbers"));
  ASSERT_TRUE(arenas_->look());
  const auto later = allocate("later", 4_MiB);
  ASSERT_TRUE(arenas_->look());
  touch(later);
  for (std::uint64_t& number : numbers) ++number;
  ASSERT_TRUE(arenas_->look());
  EXPECT_GT(use_of("later").heat, 0.9);
  EXPECT_GT(use_of("numbers").heat, 0.1);
}

TEST_F(WatchedArenas, GoOnWhenMemoryGoesAway) {
  for (int round = 0; round < 3; ++round) {
    const auto memory = allocate("values", 4_MiB);
    ASSERT_TRUE(arenas_->look());
    touch(memory);
    ASSERT_TRUE(arenas_->look());
    heap("values").free(memory.data());
    // New memory of another owner, perhaps at the same addresses.
    const auto other = headrace::allocate(here(), 4_MiB, Placement::on(NodeKind::dram)).value();
    ASSERT_TRUE(arenas_->look());
    EXPECT_EQ(other->bytes()[0], std::byte{0});
  }
  EXPECT_EQ(use_of("values").looks, 3u);
  EXPECT_EQ(use_of("values").most, 4_MiB);
}

TEST_F(WatchedArenas, SayWhyAnArenaWasNeverSeen) {
  heap("empty");
  heap("short").free(allocate("short", 2_MiB).data());
  ASSERT_TRUE(arenas_->look());
  EXPECT_EQ(use_of("empty").why_unseen, "it had no memory");
  EXPECT_NE(use_of("short").why_unseen.find("two looks"), std::string::npos);
  allocate("long", 2_MiB);
  ASSERT_TRUE(arenas_->look());
  ASSERT_TRUE(arenas_->look());
  EXPECT_EQ(use_of("long").why_unseen, "");
}

TEST_F(WatchedArenas, MemoryThatReplacedFreedMemory_IsNotCounted) {
  const auto before = allocate("first", 2_MiB);
  ASSERT_TRUE(arenas_->look());
  heap("first").free(before.data());
  const auto after = allocate("second", 2_MiB);
  touch(after);
  ASSERT_TRUE(arenas_->look());
  EXPECT_EQ(use_of("first").heat, 0);
  EXPECT_EQ(use_of("second").looks, 0u);
  touch(after);
  ASSERT_TRUE(arenas_->look());
  EXPECT_GT(use_of("second").heat, 0.9);
}

TEST_F(WatchedArenas, AreUsedAndWatchedByManyThreads) {
  std::atomic<bool> done = false;
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      const std::string name = "arena" + std::to_string(t % 2);
      for (int i = 0; i < 60; ++i) {
        Heap* const heap = arenas_->heap(name).value();
        auto* const object = static_cast<std::byte*>(heap->allocate_bytes((2_MiB).value));
        std::memset(object, t, (2_MiB).value);
        for (std::size_t at = 0; at < (2_MiB).value; at += 4096) {
          ASSERT_EQ(object[at], std::byte(t));
        }
        heap->free(object);
      }
    });
  }
  std::thread looks([&] {
    while (!done) {
      EXPECT_TRUE(arenas_->look());
      (void)arenas_->uses();
    }
  });
  for (std::thread& thread : threads) thread.join();
  done = true;
  looks.join();
}

TEST_F(WatchedArenas, GoOnUnwatchedInAChild) {
  const auto before = allocate("index", 2_MiB);
  Heap& index = heap("index");
  ASSERT_TRUE(arenas_->look());
  EXPECT_EQ(test::status_of_child([&] {
              index.free(before.data());
              index.free(index.allocate_bytes((2_MiB).value));
              const bool refused =
                  !arenas_->look() && !arenas_->heap("index") && arenas_->uses().empty();
              arenas_.reset();
              return refused;
            }),
            0);
  touch(before);
  EXPECT_TRUE(arenas_->look());
}

TEST_F(WatchedArenas, AreTheOnlyOnesOfAProcess) {
  expect_refused(Arenas::open(here(), {.look_every = milliseconds{100}}), ErrorCode::exhausted,
                 "referenced");
  arenas_.reset();
  EXPECT_TRUE(Arenas::open(here(), {.look_every = milliseconds{100}}));
}

// Uses most of the mappings that a process may have, until the end of the scope.
class UsedMappings {
 public:
  explicit UsedMappings(std::uint64_t count)
      : bytes_(static_cast<std::size_t>(count) * 4096),
        memory_(static_cast<std::byte*>(
            mmap(nullptr, bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0))) {
    for (std::size_t at = 0; at < bytes_; at += 8192) mprotect(memory_ + at, 4096, PROT_READ);
  }
  ~UsedMappings() { munmap(memory_, bytes_); }
  UsedMappings(const UsedMappings&) = delete;
  UsedMappings& operator=(const UsedMappings&) = delete;

 private:
  std::size_t bytes_;
  std::byte* memory_;
};

TEST_F(WatchedArenas, SeeMemoryAgainForWhichMappingsWereShort) {
  std::uint64_t most = 0;
  std::ifstream("/proc/sys/vm/max_map_count") >> most;
  if (most < 1 || most > 100'000) GTEST_SKIP() << "a process may have " << most << " mappings";
  const auto memory = allocate("index", 2_MiB);
  {
    const UsedMappings used(most - most / 16);
    ASSERT_TRUE(arenas_->look());
  }
  EXPECT_NE(use_of("index").why_unseen.find("max_map_count"), std::string::npos);
  ASSERT_TRUE(arenas_->look());
  touch(memory);
  ASSERT_TRUE(arenas_->look());
  EXPECT_GT(use_of("index").heat, 0.9);
  EXPECT_EQ(use_of("index").why_unseen, "");
}

// Uses up all memory that malloc has left, except small pieces.
void use_up_memory() {
  for (std::size_t size = 1 << 20; size >= 32 << 10; size /= 2) {
    while (void* const block = std::malloc(size)) *static_cast<void* volatile*>(block) = block;
  }
}

TEST(ArenasOfAThread, GoOnWhenMemoryRunsOut) {
#if defined(HEADRACE_ASAN) || defined(HEADRACE_TSAN)
  GTEST_SKIP() << "the allocator of a sanitizer ends the program at such a limit";
#endif
  if (const auto there = Arenas::open(here(), {.look_every = milliseconds{100}}); !there) {
    GTEST_SKIP() << there.error().message;
  }
  EXPECT_EQ(test::status_of_child([&] {
              auto arenas = Arenas::open(here(), {.look_every = milliseconds{150}}).value();
              Heap* const heap = arenas->heap("index").value();
              void* const object = heap->allocate_bytes((2_MiB).value);
              rlimit limit{};
              getrlimit(RLIMIT_AS, &limit);
              const rlimit none{1 << 20, limit.rlim_max};
              setrlimit(RLIMIT_AS, &none);
              use_up_memory();
              const Status looked = arenas->look();  // the first look, which begins to track
              std::this_thread::sleep_for(milliseconds{250});  // the thread looks too
              heap->free(object);
              setrlimit(RLIMIT_AS, &limit);
              return !looked && looked.error().code == ErrorCode::exhausted && arenas->look();
            }),
            0);
}

TEST(ArenasOfAThread, LookByThemselves) {
  auto arenas = Arenas::open(here(), {.look_every = milliseconds{100}});
  if (!arenas) GTEST_SKIP() << arenas.error().message;
  Heap* const heap = (*arenas)->heap("index").value();
  auto* const object = static_cast<std::byte*>(heap->allocate_bytes((2_MiB).value));
  for (int wait = 0; wait < 600 && (*arenas)->uses()[0].looks < 2; ++wait) {
    std::memset(object, wait, (2_MiB).value);
    std::this_thread::sleep_for(milliseconds{20});
  }
  EXPECT_GE((*arenas)->uses()[0].looks, 2u);
  EXPECT_GT((*arenas)->uses()[0].heat, 0.5);
}

}  // namespace
}  // namespace headrace
