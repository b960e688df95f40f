// SPDX-License-Identifier: Apache-2.0
#include "measure/experiments/gpu/backend_copies.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "measure/experiments/gpu/testing.h"

namespace headrace::experiment_gpu {
namespace {

TEST(GpuBackendCopies, GoBothWaysPinnedAndNot) {
  const test::FakeGpu fake("memory=32M");
  Random random(1);
  for (const std::string_view direction : {kToGpu, kFromGpu}) {
    for (const std::string_view memory : {kPinned, kPageable}) {
      const GpuSetting setting = on_fake(
          fake, {.direction = direction, .by = kHeadrace, .memory = memory, .bytes = 256_KiB});
      const auto sample = sample_of(prepare_backend(setting, random));
      EXPECT_GT(sample.details.at("cpu_s_per_gb"), 0);
    }
  }
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
  Random random(1);
  for (const std::string_view direction : {kToGpu, kFromGpu}) {
    sample_of(prepare_backend(
        {.gpu = GpuTarget::find(fake.machine, *fake.machine.find(test::kHbm)).value(),
         .node = test::kDram,
         .direction = direction,
         .by = kHeadrace,
         .memory = kPinned,
         .bytes = 256_KiB},
        random));
  }
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
  const auto verified = [&](std::uint64_t done) {
    std::ranges::fill(device, std::byte{0});
    Idle idle(done);
    return verify_both_ways(idle, there, back, 2, host, random);
  };
  EXPECT_TRUE(verified(8));
  EXPECT_EQ(host, device);
  EXPECT_NE(device, std::vector<std::byte>(1 << 12)) << "what is timed is no zeros";
  for (const std::uint64_t done : {0, 3, 4, 7}) {
    const auto wrong = verified(done);
    ASSERT_FALSE(wrong) << done;
    EXPECT_NE(wrong.error().message.find("not what was sent"), std::string::npos);
  }
}

TEST(GpuBackendCopies, NeedAnEngine) {
  test::FakeGpu fake("memory=32M");
  std::erase_if(fake.machine.engines,
                [](const Engine& each) { return each.kind == EngineKind::gpu; });
  Random random(1);
  const GpuSetting setting =
      on_fake(fake, {.direction = kToGpu, .by = kHeadrace, .memory = kPinned, .bytes = 4_KiB});
  const auto refused = prepare_backend(setting, random);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::absent);
}

}  // namespace
}  // namespace headrace::experiment_gpu
