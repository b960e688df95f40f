// Memory that runs out: each allocation of a scenario fails in turn, alone or with all after it. It
// costs blocks and errors;
// nothing hangs, ends the program, stays held or is served wrong.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <new>

#include "core/sanitizers.h"
#include "kv/kv_testing.h"

// ThreadSanitizer of clang has the operators new and delete itself.
#if !defined(HEADRACE_TSAN)

namespace {

// What operator new of this program does in the thread of a scenario: the allocation that counts
// `until_failure` down to 0 fails, and with `and_after` all that follow.
constinit thread_local bool armed = false;
constinit thread_local bool and_after = false;
constinit thread_local bool has_failed = false;
constinit thread_local std::ptrdiff_t until_failure = 0;

void* allocate_or_fail(std::size_t size) {
  if (armed) {
    --until_failure;
    if (until_failure == 0 || (until_failure < 0 && and_after)) {
      has_failed = true;
      throw std::bad_alloc();
    }
  }
  void* const memory = std::malloc(size == 0 ? 1 : size);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

void* operator new(std::size_t size) { return allocate_or_fail(size); }
void* operator new[](std::size_t size) { return allocate_or_fail(size); }
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  try {
    return allocate_or_fail(size);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }

namespace headrace {
namespace {

using namespace test;

// Copies inside submit(); allocates nothing.
class PlainBackend final : public Backend {
 public:
  const Capabilities& capabilities() const override { return capabilities_; }
  Result<std::size_t> submit(std::span<const Piece> pieces, Completion& completion) override {
    for (const Piece& piece : pieces) {
      std::memcpy(piece.to.memory(), piece.from.memory(), piece.to.length.value);
      completion.complete(piece.tag, {});
    }
    return pieces.size();
  }

 private:
  const Capabilities capabilities_{.name = "plain",
                                   .engines = {kCpuA, kCpuB},
                                   .max_piece = 64_MiB,
                                   .max_in_flight = 64,
                                   .note = "for tests"};
};

class KvMemory : public testing::Test {
 protected:
  KvMemory() {
    backends_.add(std::make_unique<PlainBackend>());
    backends_.add(std::make_unique<FileBackend>());
    mover_ = std::make_unique<Mover>(rig_.machine, backends_,
                                     MoverOptions{.route = place::one, .poller = false});
    auto made = kv::Store::open(*mover_, rig_.options({3, 2}, 8));
    CHECK(made.has_value());
    store_ = std::move(*made);
  }

  // Stores, moves down, writes and loads; whatever of it finds memory.
  void scenario(std::size_t first) {
    const auto keys = std::span(keys_).subspan(first, 4);
    const auto attempt = [](const auto& what) {
      try {
        what();
      } catch (const std::bad_alloc&) {  // of what the caller asked for
      }
    };
    attempt([&] { (void)store_->store(keys, whole(memory_)); });
    attempt([&] { (void)store_->flush(std::chrono::seconds{1}); });
    for (const bool promote : {true, false}) {
      attempt([&] {
        const kv::Match match = store_->match(keys);
        loads_.reserve(loads_.size() + 1);
        auto load = store_->load(match.keys(), whole(into_), {.promote = promote});
        if (load) loads_.push_back(*load);
        if (load) (void)load->wait(std::chrono::seconds{1});
      });
      attempt([&] { store_->poll(); });
    }
  }
  // What is there is right, and nothing is held.
  void check() {
    for (const kv::Load& load : loads_) (void)load.wait();
    loads_.clear();
    for (int i = 0; i < 10; ++i) store_->poll();
    const kv::StoreStats stats = store_->stats();
    EXPECT_EQ(stats.pinned, 0_B);
    EXPECT_EQ(stats.in_flight, 0_B);
    EXPECT_EQ(stats.damaged, 0u);
    const std::size_t block = rig_.geometry.block().value;
    for (std::size_t i = 0; i < keys_.size(); ++i) {
      const kv::Match match = store_->match({&keys_[i], 1});
      if (match.size() == 0) continue;
      std::vector<std::byte> bytes(block);
      const MemoryRange target(bytes, kDram);
      const auto load = store_->load(match.keys(), whole(target));
      ASSERT_TRUE(load.has_value());
      const Status outcome = load->wait();
      ASSERT_TRUE(outcome.has_value()) << outcome.error().message;
      const std::byte* const right = source_.data() + i % 4 * block;
      EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), right));
    }
  }

  KvRig rig_;
  Backends backends_;
  std::unique_ptr<Mover> mover_;
  const std::vector<kv::Key> keys_ = kv::keys(rig_.geometry, tokens(4 * 16));
  std::vector<std::byte> source_ = rig_.blocks_of(std::span(keys_).first(4));
  const MemoryRange memory_{source_, kDram};
  std::vector<std::byte> target_ = std::vector<std::byte>(source_.size());
  const MemoryRange into_{target_, kDram};
  std::vector<kv::Load> loads_;
  std::unique_ptr<kv::Store> store_;
};

TEST_F(KvMemory, ThatRunsOutCostsBlocksOnly) {
  for (const bool all : {false, true}) {
    and_after = all;
    std::size_t failures = 0;
    has_failed = true;
    for (std::ptrdiff_t n = 1; has_failed; ++n) {
      has_failed = false;
      until_failure = n;
      armed = true;
      scenario(static_cast<std::size_t>(n) % 4 * 4);
      armed = false;
      failures += has_failed ? 1 : 0;
      check();
      if (HasFailure()) FAIL() << "allocation " << n << (all ? " and all after" : "");
    }
    EXPECT_GT(failures, 20u);
  }
}

}  // namespace
}  // namespace headrace

#endif  // HEADRACE_TSAN
