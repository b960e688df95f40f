// SPDX-License-Identifier: Apache-2.0
#include "measure/instruments/traffic/traffic.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "measure/instruments/chase.h"
#include "tests/support/bytes.h"

namespace headrace::instruments {
namespace {

struct alignas(4096) Page {
  std::array<std::byte, 4096> bytes;
};

class Memory {
 public:
  explicit Memory(std::size_t pages) : pages_(pages) {
    std::memset(pages_.data(), 1, pages * sizeof(Page));
  }
  std::span<std::byte> all() { return {pages_[0].bytes.data(), pages_.size() * sizeof(Page)}; }

 private:
  std::vector<Page> pages_;
};

// Mixes with their own loops, and one of each other kind.
std::vector<const Mix*> all_mixes() {
  std::vector<const Mix*> all;
  for (const Mix& mix : mixes()) all.push_back(&mix);
  for (const Mix* mix : mixes_by_share()) all.push_back(mix);
  return all;
}
// Divisible into whole pages to read and to write for each mix.
constexpr std::size_t kPages = 60;

std::vector<Shape> all_shapes() {
  std::vector<Shape> shapes;
  for (const unsigned bits : {128U, 256U, 512U}) {
    for (const unsigned streams : {1U, 2U, 3U, 4U, 8U}) {
      for (const unsigned ahead : {0U, 512U}) {
        shapes.push_back({.bits = bits, .streams = streams, .ahead = ahead});
      }
    }
  }
  return shapes;
}

// Checks the writes of `rounds` rounds after the first, stream by stream; all else is unchanged.
TEST(TrafficTest, WritesEveryByteOfItsPartAndNoOther) {
  for (const Mix* const each_mix : all_mixes()) {
    const Mix& mix = *each_mix;
    for (const Shape& shape : all_shapes()) {
      const TrafficKernel kernel(mix, shape);
      SCOPED_TRACE(std::string(mix.name) + " " + kernel.shape().name());
      EXPECT_LE(kernel.shape().bits, shape.bits);
      Memory memory(kPages);
      const TrafficArea area = divide(mix, memory.all());
      EXPECT_EQ(area.from.size() + area.to.size(), memory.all().size());
      const std::size_t rounds = kernel.rounds(area);
      ASSERT_GT(rounds, 2u);
      // All of the memory, except less than two groups per stream: streams are not a power of two
      // apart.
      const std::size_t covered = rounds * kernel.lines_per_round() * kLine;
      EXPECT_LE(covered, memory.all().size());
      EXPECT_GT(covered + 2 * kernel.lines_per_round() * kLine + 4096 * mix.lines(),
                memory.all().size());
      const std::size_t lines = kernel.run(area, 1, rounds - 2);
      kernel.finish();
      EXPECT_EQ(lines, (rounds - 2) * kernel.lines_per_round());
      // Bytes that a stream writes per round.
      const std::size_t each =
          kernel.lines_per_round() / shape.streams / mix.lines() * kLine * mix.writes;
      const std::byte written = mix.copies ? std::byte{1} : std::byte{0x5a};
      std::vector<std::byte> expected(area.to.size(), std::byte{1});
      const std::vector<std::byte> as_it_was(area.from.size(), std::byte{1});
      for (std::size_t i = 0; i < shape.streams; ++i) {
        if (each == 0) continue;  // it only reads
        std::memset(&expected[(i * rounds + 1) * each], std::to_integer<int>(written),
                    (rounds - 2) * each);
      }
      EXPECT_TRUE(test::same(area.to, expected));
      EXPECT_TRUE(test::same(area.from, as_it_was));
    }
  }
}

TEST(TrafficTest, CopiesCopy) {
  for (const char* name : {"copy", "nt_copy"}) {
    const Mix& mix = *find_mix(name);
    Memory memory(8);
    test::fill_random(memory.all(), 1);
    const TrafficArea area = divide(mix, memory.all());
    for (const Shape& shape : all_shapes()) {
      std::ranges::fill(area.to, std::byte{0});
      const TrafficKernel kernel(mix, shape);
      const std::size_t lines = kernel.run(area, 0, kernel.rounds(area));
      kernel.finish();
      const std::size_t stream = lines / 2 * kLine / shape.streams;
      for (std::size_t i = 0; i < shape.streams; ++i) {
        const auto part = [&](auto all) { return all.subspan(i * stream, stream); };
        EXPECT_TRUE(test::same(part(area.from), part(area.to))) << name << " " << shape.name();
      }
    }
  }
}

TEST(TrafficTest, AShapeHasAName) {
  const std::string widest = TrafficKernel(*find_mix("read")).shape().name();
  EXPECT_NE(widest.find(" x 1 stream"), std::string::npos) << widest;
  const Shape two{.bits = 128, .streams = 2, .ahead = 512};
  const std::string name = two.name();
  EXPECT_EQ(name.substr(name.find(" x ")), " x 2 streams, prefetch 512");
}

TEST(TrafficTest, CountsAsItSays) {
  const auto factors = [](const char* name) {
    const Mix& mix = *find_mix(name);
    return std::pair(mix.payload_factor(), mix.bus_factor());
  };
  EXPECT_EQ(factors("read"), std::pair(1.0, 1.0));
  EXPECT_EQ(factors("write"), std::pair(1.0, 2.0));
  EXPECT_EQ(factors("nt_write"), std::pair(1.0, 1.0));
  EXPECT_EQ(factors("copy"), std::pair(0.5, 1.5));
  EXPECT_EQ(factors("nt_copy"), std::pair(0.5, 1.0));
  EXPECT_EQ(factors("3:1"), std::pair(1.0, 1.25));
  EXPECT_EQ(factors("nt_3:7"), std::pair(1.0, 1.0));
  EXPECT_EQ(factors("1:4"), std::pair(1.0, 1.8));
}

TEST(TrafficTest, AMixIsAnyRatioOfTwentyLinesInLowestTerms) {
  const Mix* const mix = find_mix("nt_7:13");
  ASSERT_NE(mix, nullptr);
  EXPECT_EQ(mix, find_mix(std::string("nt_7:") + "13")) << "it stays";
  EXPECT_EQ(std::tuple(mix->name, mix->reads, mix->writes, mix->non_temporal, mix->copies),
            std::tuple("nt_7:13", 7U, 13U, true, false));
  EXPECT_EQ(find_mix("2:1"), &mixes()[2]) << "its own loop";
  for (const char* none : {"4:2", "7:14", "0:1", "1:0", "1", "nt_read", "1:1:1", "-1:2", ""}) {
    EXPECT_EQ(find_mix(none), nullptr) << none;
  }
}

TEST(TrafficTest, SharesGoFromReadsToWritesByTenthsWithBothKindsOfStores) {
  std::vector<double> plain;
  std::vector<double> around;
  for (const Mix* const mix : mixes_by_share()) {
    ASSERT_NE(mix, nullptr);
    (mix->non_temporal ? around : plain).push_back(10.0 * mix->reads / mix->lines());
  }
  ASSERT_EQ(plain.size(), 11U);
  ASSERT_EQ(around.size(), 10U);
  for (std::size_t i = 0; i < plain.size(); ++i) {
    EXPECT_NEAR(plain[i], 10.0 - static_cast<double>(i), 1e-9);
    if (i > 0) {
      EXPECT_NEAR(around[i - 1], plain[i], 1e-9);
    }
  }
}

}  // namespace
}  // namespace headrace::instruments
