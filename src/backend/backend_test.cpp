// SPDX-License-Identifier: Apache-2.0
#include "headrace/backend.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <array>
#include <string>

namespace headrace {
namespace {

constexpr EngineId kOne{1}, kFour{4};

Capabilities capabilities() {
  return {.name = "test", .engines = {kOne, kFour}, .max_piece = 64_B, .max_in_flight = 1};
}

// A backend that only names the engines it drives.
class Named final : public Backend {
 public:
  explicit Named(std::vector<EngineId> engines) {
    capabilities_.name = "named";
    capabilities_.engines = std::move(engines);
  }
  const Capabilities& capabilities() const override { return capabilities_; }
  Result<std::size_t> submit(std::span<const Piece> pieces, Completion&) override {
    return pieces.size();
  }

 private:
  Capabilities capabilities_;
};

class CheckPiece : public testing::Test {
 protected:
  Piece piece(std::uint64_t from, std::uint64_t to, Bytes length) {
    return {.from = {&source, from, length}, .to = {&target, to, length}, .engine = kOne};
  }
  // The code of the refusal; empty if it is accepted. Every refusal has a message.
  std::optional<ErrorCode> refusal(const Piece& piece) {
    const Status status = check_piece(capabilities(), piece);
    if (status) return std::nullopt;
    EXPECT_FALSE(status.error().message.empty());
    EXPECT_EQ(status.error().message.find('\n'), std::string::npos);
    return status.error().code;
  }

  std::array<std::byte, 200> bytes{};
  MemoryRange source{std::span(bytes).first(100), NodeId{0}};
  MemoryRange target{std::span(bytes).last(100), NodeId{0}};
};

TEST_F(CheckPiece, AcceptsWhatTheContractAllows) {
  EXPECT_EQ(refusal(piece(0, 0, 64_B)), std::nullopt);
  EXPECT_EQ(refusal(piece(36, 36, 64_B)), std::nullopt);
  EXPECT_EQ(refusal(piece(100, 100, 0_B)), std::nullopt) << "an empty piece is fine";
  Piece other = piece(0, 0, 1_B);
  other.engine = kFour;
  EXPECT_EQ(refusal(other), std::nullopt);
}

TEST_F(CheckPiece, RefusesExactlyTheOverlaps) {
  const MemoryRange all{bytes, NodeId{0}};
  const MemoryRange same{bytes, NodeId{0}};  // another object on the same bytes
  const bool held = rc::check("overlap by address, whatever the objects", [&] {
    const auto length = *rc::gen::inRange<std::uint64_t>(0, 64);
    const auto from = *rc::gen::inRange<std::uint64_t>(0, 201 - length);
    const auto to = *rc::gen::inRange<std::uint64_t>(0, 201 - length);
    const bool twice = *rc::gen::arbitrary<bool>();
    bool shared = false;
    for (std::uint64_t i = from; i < from + length; ++i) {
      shared = shared || (to <= i && i < to + length);
    }
    const Piece piece{.from = {&all, from, Bytes{length}},
                      .to = {twice ? &same : &all, to, Bytes{length}},
                      .engine = kOne};
    RC_ASSERT(check_piece(capabilities(), piece).has_value() == !shared);
  });
  EXPECT_TRUE(held);
}

TEST(Backends, FindTheLastBackendOfAnEngine_AlsoWhenMoved) {
  Backends backends;
  EXPECT_EQ(backends.find(EngineId{0}), nullptr);
  auto first = std::make_unique<Named>(std::vector{EngineId{2}, EngineId{0}});
  auto second = std::make_unique<Named>(std::vector{EngineId{5}, EngineId{0}});
  Backend* const a = first.get();
  Backend* const b = second.get();
  backends.add(std::move(first));
  backends.add(std::move(second));
  const Backends moved = std::move(backends);
  const std::vector<Backend*> expected = {b, nullptr, a, nullptr, nullptr, b, nullptr};
  for (std::uint32_t id = 0; id < expected.size(); ++id) {
    EXPECT_EQ(moved.find(EngineId{id}), expected[id]) << id;
  }
  EXPECT_EQ(moved.all().size(), 2U);
}

}  // namespace
}  // namespace headrace
