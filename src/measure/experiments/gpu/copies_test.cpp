// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "measure/experiments/gpu/testing.h"

namespace headrace::experiment_gpu {
namespace {

// As on an H200, whose cache keeps 32 MiB, and as much of another area.
TEST(GpuCopies, WalkThroughMoreThanCachesKeep) {
  const test::FakeGpu fake("memory=4G,l2=50M,sms=2");
  static std::size_t most;
  static cuda::Driver whole;
  whole = **cuda::driver();
  most = 0;
  cuda::Driver noting = whole;
  noting.cuMemAlloc_v2 = [](cuda::CUdeviceptr* address, std::size_t bytes) {
    most = std::max(most, bytes);
    return whole.cuMemAlloc_v2(address, bytes);
  };
  GpuSetting setting = by_driver(on_fake(fake, small(kInside, kDevice)), noting);
  setting.bytes = 1_MiB;
  const auto found = sample_of(prepare_copies, setting);
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_GE(Bytes{most}, 200_MiB);
  EXPECT_EQ(found->details.at("l2_bytes"), 50 << 20);
}

// As on a GH200, whose memory the kernel counts as node 8. Nothing is allocated by the kernel, so
// this host needs no such node.
TEST(GpuBackendCopies, TakeMemoryOfTheDriverWhereTheGpuIsANumaNode) {
  test::FakeGpu fake("memory=32M,paradigm=ats,numa_node=8");
  std::erase_if(fake.machine.nodes, [](const Node& each) { return each.id == test::kHbm; });
  for (Node& node : fake.machine.nodes) {
    if (node.id == test::kGpu) node.id = test::kHbm;
  }
  for (Engine& engine : fake.machine.engines) {
    if (engine.home == test::kGpu) engine.home = test::kHbm;
  }
  ASSERT_TRUE(fake.machine.find(test::kHbm)->byte_addressable());
  for (const std::string_view direction : {kToGpu, kFromGpu}) {
    GpuSetting setting = on_fake(fake, small(direction), test::kHbm);
    setting.by = kHeadrace;
    expect_sample(prepare_backend, setting);
  }
}

TEST(GpuBackendCopies, NeedAnEngine) {
  test::FakeGpu fake("memory=32M");
  std::erase_if(fake.machine.engines,
                [](const Engine& each) { return each.kind == EngineKind::gpu; });
  const auto refused = sample_of(prepare_backend, on_fake(fake, kSmall));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::absent);
}

// Reports all pieces as done, and copies only the first ones.
class Idle final : public Backend {
 public:
  explicit Idle(std::uint64_t done) : done_(done) {}
  const Capabilities& capabilities() const override { return capabilities_; }
  Result<std::size_t> submit(std::span<const Piece> pieces, Completion& completion) override {
    for (const Piece& piece : pieces) {
      if (submitted_++ < done_) {
        std::memcpy(piece.to.object->memory() + piece.to.offset,
                    piece.from.object->memory() + piece.from.offset, piece.from.length.value);
      }
      completion.complete(piece.tag, {});
    }
    return pieces.size();
  }

 private:
  const Capabilities capabilities_{};
  const std::uint64_t done_;
  std::uint64_t submitted_ = 0;
};

TEST(GpuBackendCopies, AreTimedOnlyWhenBothWaysAreRight) {
  std::vector<std::byte> host(1 << 12), device(1 << 12);
  const MemoryRange here(host, test::kDram), other(device, test::kHbm);
  std::vector<Piece> there, back;
  for (std::uint64_t tag = 0; tag < 4; ++tag) {
    const Extent mine{&here, tag << 10, 1_KiB}, theirs{&other, tag << 10, 1_KiB};
    there.push_back({.from = mine, .to = theirs, .tag = tag});
    back.push_back({.from = theirs, .to = mine, .tag = tag});
  }
  Random random(1);
  for (const std::uint64_t done : {8, 0, 3, 4, 7}) {
    std::ranges::fill(device, std::byte{0});
    Idle idle(done);
    const Status verified = verify_both_ways(idle, there, back, 2, host, random);
    EXPECT_EQ(verified.has_value(), done == 8) << done;
    if (!verified) {
      EXPECT_NE(verified.error().message.find("not what was sent"), std::string::npos);
      continue;
    }
    EXPECT_EQ(host, device);
    EXPECT_NE(device, std::vector<std::byte>(1 << 12)) << "what is timed is no zeros";
  }
}

}  // namespace
}  // namespace headrace::experiment_gpu
