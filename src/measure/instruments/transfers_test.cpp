// SPDX-License-Identifier: Apache-2.0
#include "measure/instruments/transfers.h"

#include <gtest/gtest.h>

#include "headrace/object.h"

namespace headrace::instruments {
namespace {

// Refuses everything, or fails every second piece.
class Broken final : public Backend {
 public:
  explicit Broken(bool refuses) : refuses_(refuses) {}
  const Capabilities& capabilities() const override { return capabilities_; }
  Result<std::size_t> submit(std::span<const Piece> pieces, Completion& completion) override {
    if (refuses_) return Unexpected(Error{ErrorCode::unsupported, "not mine"});
    const Status failed = Unexpected(Error{ErrorCode::io, "broken"});
    completion.complete(pieces[0].tag, pieces[0].tag % 2 == 0 ? Status{} : failed);
    return 1;
  }

 private:
  const bool refuses_;
  const Capabilities capabilities_{.name = "broken"};
};

TEST(Transfers, HandUpRefusalsAndFailures) {
  std::byte bytes[64] = {};
  const MemoryRange range(bytes, NodeId{0});
  std::vector<Piece> pieces;
  for (std::uint64_t i = 0; i < 4; ++i) {
    pieces.push_back({.from = {&range, i * 8, 8_B}, .to = {&range, 32 + i * 8, 8_B}, .tag = i});
  }
  Histogram each_ns;
  const auto run = [&](Backend& backend, std::size_t count) {
    return transfer_within(backend, std::span(pieces).first(count), 2, std::chrono::seconds{10},
                           each_ns);
  };
  Broken refuses(true);
  Broken fails(false);
  EXPECT_EQ(run(refuses, 4).error().code, ErrorCode::unsupported);
  EXPECT_EQ(run(fails, 4).error().code, ErrorCode::io);
  const auto one = run(fails, 1);
  ASSERT_TRUE(one) << one.error().message;
  EXPECT_EQ(one->pieces, 1U);
  EXPECT_EQ(each_ns.count(), 5U) << "each that was accepted, the failed ones too";
}

}  // namespace
}  // namespace headrace::instruments
