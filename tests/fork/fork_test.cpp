// SPDX-License-Identifier: Apache-2.0
// The rule of docs/design/fork.md: objects belong to the process that made them. Most forks here
// are made while threads of the objects are at work and hold their locks.

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <fstream>
#include <memory>
#include <thread>

#include "core/sanitizers.h"
#include "headrace/headrace.h"
#include "support/child.h"

namespace headrace {
namespace {

using test::status_of_child;

#if defined(HEADRACE_TSAN)
constexpr bool kChildrenMayHaveThreads = false;  // ThreadSanitizer ends such a child
#else
constexpr bool kChildrenMayHaveThreads = true;
#endif

constexpr Bytes kSize = 1_MiB;

// Short, so that a test that would hang fails.
constexpr Nanoseconds kBound = std::chrono::seconds{5};

bool made_before(const auto& result) {
  return !result && result.error().code == ErrorCode::unsupported &&
         result.error().message.find("before a fork()") != std::string::npos;
}

// Whether the page of `address` was free, and is now this process's.
bool map_at(void* address) {
  const auto page = reinterpret_cast<std::uintptr_t>(address) / 4096 * 4096;
  return mmap(reinterpret_cast<void*>(page), 4096, PROT_READ | PROT_WRITE,
              MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) != MAP_FAILED;
}

class Fork : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "fork-test-XXXXXX";
    const int descriptor = mkstemp(name);
    ASSERT_GE(descriptor, 0);
    const std::string bytes(8 * kSize.value, 'f');
    ASSERT_EQ(write(descriptor, bytes.data(), bytes.size()), std::ssize(bytes));
    close(descriptor);
    machine_ = *Machine::discover({.storage = {{"."}}});
    file_ = *File::open(machine_, name);
    unlink(name);
    source_ = *allocate(machine_, kSize * 16, Placement::on(NodeKind::dram));
    target_ = *allocate(machine_, kSize * 16, Placement::on(NodeKind::dram));
    std::memset(source_->memory(), 's', source_->size().value);
    open();
  }
  void open() {
    backends_ = std::make_unique<Backends>(*Backends::open(machine_));
    mover_ = std::make_unique<Mover>(machine_, *backends_);
    cache_ = *Cache::create(*mover_, {.budgets = {{target_->node(), kSize * 8}},
                                      .placement = place::always(target_->node()),
                                      .slab = kSize});
  }
  Extent memory(std::uint64_t i) const { return {source_.get(), i * kSize.value, kSize}; }
  Extent on_disk(std::uint64_t i) const { return {file_.get(), i * kSize.value, kSize}; }

  // Threads of the user that keep every lock busy until the end of the scope.
  class Busy {
   public:
    explicit Busy(Fork& fork) {
      for (unsigned worker = 0; worker < 2; ++worker) {
        threads_.emplace_back([this, &fork, worker] {
          for (unsigned i = 0; !stop_; ++i) {
            const Block block = fork.cache_->access(fork.on_disk(i % 8));
            (void)block.wait(kBound);
            const Extent to{fork.target_.get(), (8 + worker) * kSize.value, kSize};
            (void)fork.mover_->copy(to, fork.memory(i % 4)).wait(kBound);
            if (i % 8 == 0) fork.cache_->flush();
          }
        });
      }
    }
    ~Busy() {
      stop_ = true;
      for (std::thread& thread : threads_) thread.join();
    }
    Busy(const Busy&) = delete;
    Busy& operator=(const Busy&) = delete;

   private:
    std::atomic<bool> stop_{false};
    std::vector<std::thread> threads_;
  };

  void drop_all() {
    cache_.reset();
    mover_.reset();
    backends_.reset();
    file_.reset();
    source_.reset();
    target_.reset();
  }
  bool works() {
    const Transfer copied = mover_->copy({target_.get(), 0, kSize}, memory(0));
    const Transfer read = mover_->copy({target_.get(), kSize.value, kSize}, on_disk(0));
    const Block block = cache_->access(on_disk(1));
    const auto bytes = block.wait();
    return copied.wait() && read.wait() && bytes && (*bytes)[0] == std::byte{'f'} &&
           target_->bytes()[0] == std::byte{'s'} && target_->bytes()[kSize.value] == std::byte{'f'};
  }

  Machine machine_;
  std::unique_ptr<File> file_;
  std::unique_ptr<Buffer> source_;
  std::unique_ptr<Buffer> target_;
  std::unique_ptr<Backends> backends_;
  std::unique_ptr<Mover> mover_;
  std::unique_ptr<Cache> cache_;
};

TEST_F(Fork, AMoverOfTheParentsFailsAtOnce) {
  const Busy busy(*this);
  for (int i = 0; i < 20; ++i) {
    const Transfer pending = mover_->copy({target_.get(), 0, kSize}, on_disk(2));
    EXPECT_EQ(
        status_of_child([&] {
          const Transfer refused = mover_->copy({target_.get(), 0, kSize}, memory(0));
          bool told = false;
          refused.on_done([&](const Result<MoveStats>& outcome) { told = made_before(outcome); });
          pending.cancel();
          pending.promote(Priority::demand);
          const bool ended = pending.done();
          bool told_too = false;
          pending.on_done(
              [&](const Result<MoveStats>& outcome) { told_too = ended || made_before(outcome); });
          return refused.done() && made_before(refused.wait(kBound)) && told && told_too &&
                 (ended || made_before(pending.wait(kBound))) && made_before(pending.event_fd()) &&
                 mover_->poll() == 0 && mover_->stats().transfers == 0;
        }),
        0);
    EXPECT_TRUE(pending.wait());
  }
}

TEST_F(Fork, ACacheOfTheParentsGivesSourcesAndWhatWasReady) {
  const Block ready = cache_->access(on_disk(7));
  ASSERT_TRUE(ready.wait());
  const Busy busy(*this);
  for (int i = 0; i < 20; ++i) {
    const Block filling = cache_->access(on_disk(static_cast<std::uint64_t>(i) % 6));
    const Prefetch plan = cache_->prefetch(std::array{on_disk(3), memory(3)}, {});
    EXPECT_EQ(status_of_child([&] {
                const auto kept = ready.clone().wait(kBound);
                const Block of_file = cache_->access(on_disk(0));
                const Block of_memory = cache_->access(memory(0));
                const auto source = of_memory.wait(kBound);
                const auto was_filling = filling.wait(kBound);
                cache_->invalidate(whole(*file_));
                cache_->flush();
                cache_->clear();
                const Prefetch own = cache_->prefetch(std::array{on_disk(3)}, {});
                return kept && (*kept)[0] == std::byte{'f'} && made_before(of_file.wait(kBound)) &&
                       source && source->data() == source_->memory() &&
                       (was_filling || made_before(was_filling)) && own.progress().cancelled &&
                       plan.progress().cancelled && cache_->stats().hits == 0 &&
                       cache_->reading().empty() && cache_->forget(*file_, kBound) &&
                       made_before(cache_->resize(target_->node(), kSize));
              }),
              0);
  }
}

TEST_F(Fork, AChildDropsTheParentsObjectsQuietly) {
  {
    const Busy busy(*this);
    for (int i = 0; i < 20; ++i) {
      auto pending =
          std::make_unique<Transfer>(mover_->copy({target_.get(), 0, kSize}, on_disk(2)));
      auto block = std::make_unique<Block>(cache_->access(on_disk(4)));
      auto plan = std::make_unique<Prefetch>(cache_->prefetch(std::array{on_disk(5)}, {}));
      EXPECT_EQ(status_of_child([&] {
                  pending.reset();
                  block.reset();
                  plan.reset();
                  drop_all();
                  return true;
                }),
                0);
      EXPECT_TRUE(pending->wait());
    }
  }
  EXPECT_TRUE(works());
}

TEST_F(Fork, AChildMakesItsOwn) {
  if (!kChildrenMayHaveThreads) GTEST_SKIP() << "the thread sanitizer ends such a child";
  {
    const Busy busy(*this);
    for (int i = 0; i < 5; ++i) {
      EXPECT_EQ(status_of_child([&] {
                  cache_.reset();
                  mover_.reset();
                  backends_.reset();
                  open();
                  const bool good = works();
                  drop_all();
                  return good;
                }),
                0);
    }
  }
  EXPECT_TRUE(works());
}

TEST_F(Fork, AGrandchildIsElsewhereToo) {
  if (!kChildrenMayHaveThreads) GTEST_SKIP() << "the thread sanitizer ends such a child";
  EXPECT_EQ(status_of_child([&] {
              cache_.reset();
              mover_.reset();
              backends_.reset();
              open();
              return works() &&
                     status_of_child([&] {
                       const bool refused =
                           made_before(mover_->copy({target_.get(), 0, kSize}, memory(0)).wait());
                       drop_all();
                       return refused;
                     }) == 0 &&
                     works();
            }),
            0);
}

TEST_F(Fork, BytesOfBuffersAreCopiedOnWrite) {
  EXPECT_EQ(status_of_child([&] {
              const bool good = source_->bytes()[0] == std::byte{'s'};
              std::memset(source_->memory(), 'c', source_->size().value);
              return good;
            }),
            0);
  EXPECT_EQ(source_->bytes()[0], std::byte{'s'});
}

TEST_F(Fork, HeapsGoOnInAChildWhateverOtherThreadsDo) {
  const auto heap = *Heap::open(machine_, Placement::on(NodeKind::dram));
  void* const before = heap->allocate_bytes(1000);
  std::memset(before, 'h', 1000);
  std::atomic<bool> stop{false};
  std::array<std::thread, 2> others;
  for (std::thread& other : others) {
    other = std::thread([&] {
      for (std::size_t i = 0; !stop; ++i) {
        const std::size_t size = std::size_t{16} << i % 18;
        heap->free(heap->allocate_bytes(size));
      }
    });
  }
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(status_of_child([&] {
                bool good = static_cast<char*>(before)[999] == 'h';
                heap->free(before);
                for (std::size_t size = 1; size < std::size_t{4} << 20; size = size * 3 / 2 + 1) {
                  void* const own = heap->allocate_bytes(size);
                  good = good && own != nullptr && heap->owns(own);
                  std::memset(own, 1, size);
                  if (size % 2 == 0) heap->free(own);
                }
                const auto fresh = Heap::open(machine_, Placement::on(NodeKind::dram));
                void* const object = (*fresh)->allocate_bytes(100);
                (*fresh)->free(object);
                return good && object != nullptr && heap->stats().buffers > 0;
              }),
              0);
  }
  stop = true;
  for (std::thread& other : others) other.join();
  heap->free(before);
}

// Something of the child's comes to lie where the heap was: no heap may take it for its own.
TEST_F(Fork, AHeapOnStorageOwnsNothingInAChild) {
  const auto heap = *Heap::open(machine_, Placement::on(NodeKind::storage));
  const auto freed = *Heap::open(machine_, Placement::on(NodeKind::storage));
  const std::array objects = {heap->allocate_bytes(100), heap->allocate_bytes((2_MiB).value)};
  freed->free(freed->allocate_bytes((2_MiB).value));
  EXPECT_EQ(status_of_child([&] {
              bool good = true;
              for (void* const object : objects) {
                good =
                    good && map_at(object) && Heap::owner(object) == nullptr && !heap->owns(object);
              }
              // A grandchild takes out what its parent has, and nothing else.
              const auto own = *Heap::open(machine_, Placement::on(NodeKind::dram));
              void* const object = own->allocate_bytes(100);
              return good && status_of_child([&] { return own->owns(object); }) == 0;
            }),
            0);
  for (void* const object : objects) {
    EXPECT_EQ(Heap::owner(object), heap.get()) << "the parent goes on";
    heap->free(object);
  }
}

}  // namespace
}  // namespace headrace
