// Memory that runs out while two GPUs meet: each allocation of the first copy between them fails in
// turn. It costs that copy at most; the next one shows them to each other, and nothing stays held.
#include <gtest/gtest.h>

#include <cstdlib>
#include <new>

#include "backend/cuda/engines/lane_testing.h"
#include "core/sanitizers.h"
#include "tests/support/fake_cuda/spared_driver.h"

// ThreadSanitizer of clang has the operators new and delete itself.
#if !defined(HEADRACE_TSAN)

namespace {

constinit thread_local std::ptrdiff_t until_failure = 0;  // of this thread; 0: none fails

void* allocate_or_fail(std::size_t size) {
  if (until_failure > 0 && !headrace::test::in_driver && --until_failure == 0) {
    throw std::bad_alloc();
  }
  void* const memory = std::malloc(size == 0 ? 1 : size);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

// A compiler that sees both ends of it inlined takes them for a mismatch.
[[gnu::noinline]] void give_back(void* memory) noexcept { std::free(memory); }

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
void operator delete(void* memory) noexcept { give_back(memory); }
void operator delete[](void* memory) noexcept { give_back(memory); }
void operator delete(void* memory, std::size_t) noexcept { give_back(memory); }
void operator delete[](void* memory, std::size_t) noexcept { give_back(memory); }

namespace headrace::cuda {
namespace {

class CudaLaneMemory : public LaneFixture {
 protected:
  // Whether all of it came before the n-th allocation.
  bool copies(const Piece& piece, std::ptrdiff_t n) {
    Outcomes outcomes;
    std::size_t accepted = 0;
    until_failure = n;
    try {
      accepted = lane_->accept(std::span(&piece, 1), outcomes).value_or(0);
    } catch (const std::bad_alloc&) {
    }
    const bool failed = n > 0 && until_failure == 0;
    until_failure = 0;
    EXPECT_TRUE(accepted == 1 || failed);
    if (accepted == 1) {
      EXPECT_TRUE(outcomes.await(1));
    }
    for (const auto tag : outcomes.failed()) {
      EXPECT_TRUE(failed) << tag;
      EXPECT_EQ(outcomes.last().code, ErrorCode::exhausted);
    }
    return !failed;
  }
  static void expect_met() {
    const Driver& used = **driver();
    const auto one = *Context::of(used, 0);
    const auto two = *Context::of(used, 1);
    for (const auto& [from, to] : {std::pair(one, two), {two, one}}) {
      const CurrentContext current(*from);
      EXPECT_EQ(used.cuCtxEnablePeerAccess(to->handle(), 0),
                CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
    }
  }
};

TEST_F(CudaLaneMemory, ThatRunsOutWhileTwoGpusMeetCostsOneCopyAtMost) {
  const std::vector<std::byte> bytes(64 << 10, std::byte{7});
  bool over = false;
  std::ptrdiff_t n = 1;
  for (; !over; ++n) {
    open("devices=2", {}, test::spare_all);
    EXPECT_TRUE(copies(pieces(1)[0], 0));  // so that it has begun
    auto other = *allocate(gpu_->machine, 64_KiB, Placement::on(test::kOtherGpu));
    const Piece piece{
        .from = whole(*memory_).part(0, 64_KiB), .to = whole(*other), .engine = test::kGpuEngine};
    test::write_gpu(*memory_, 0, bytes);
    over = copies(piece, n);
    EXPECT_TRUE(copies(piece, 0));
    EXPECT_EQ(test::read_gpu(*other, 0, bytes.size()), bytes);
    expect_met();
    lane_.reset();
    memory_.reset();
    pinned_.reset();
    other.reset();
    EXPECT_FALSE(Context::made(**driver(), 0) || Context::made(**driver(), 1));
    if (HasFailure()) FAIL() << "allocation " << n;
  }
  EXPECT_GT(n, 5);
}

}  // namespace
}  // namespace headrace::cuda

#endif  // HEADRACE_TSAN
