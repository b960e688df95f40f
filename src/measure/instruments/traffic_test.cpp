#include "measure/instruments/traffic.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "measure/instruments/chase.h"

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

TEST(TrafficTest, WritesEveryByteOfItsPartAndNoOther) {
  for (const Mix& mix : mixes()) {
    for (const unsigned bits : {128u, 256u, 512u}) {
      const TrafficKernel kernel(mix, bits);
      EXPECT_LE(kernel.vector_bits(), bits);
      Memory memory(24);
      const TrafficArea area = divide(mix, memory.all());
      EXPECT_EQ(area.from.size() + area.to.size(), memory.all().size()) << mix.name;
      const std::size_t groups = kernel.groups(area);
      ASSERT_GT(groups, 2u);
      const std::size_t lines = kernel.run(area, 1, groups - 2);
      kernel.finish();
      EXPECT_EQ(lines, (groups - 2) * kernel.lines_per_group());
      // Bytes written per group.
      const std::size_t each = kernel.lines_per_group() / mix.lines() * kLine * mix.writes;
      const std::byte written = mix.copies ? std::byte{1} : std::byte{0x5a};
      const auto is = [&](std::byte value) { return [value](std::byte b) { return b == value; }; };
      const auto inside = area.to.subspan(each, (groups - 2) * each);
      EXPECT_TRUE(std::ranges::all_of(inside, is(written))) << mix.name << " " << bits;
      EXPECT_TRUE(std::ranges::all_of(area.from, is(std::byte{1})));
      EXPECT_TRUE(std::ranges::all_of(area.to.first(each), is(std::byte{1})));
      EXPECT_TRUE(std::ranges::all_of(area.to.last(each), is(std::byte{1})));
    }
  }
}

TEST(TrafficTest, CopiesCopy) {
  for (const char* name : {"copy", "nt_copy"}) {
    const Mix& mix = *find_mix(name);
    Memory memory(8);
    for (std::size_t i = 0; i < memory.all().size(); ++i) {
      memory.all()[i] = static_cast<std::byte>(i * 7 + i / 4096);
    }
    const TrafficArea area = divide(mix, memory.all());
    const TrafficKernel kernel(mix);
    kernel.run(area, 0, kernel.groups(area));
    kernel.finish();
    EXPECT_TRUE(std::ranges::equal(area.from, area.to)) << name;
  }
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
  EXPECT_EQ(find_mix("4:1"), nullptr);
}

}  // namespace
}  // namespace headrace::instruments
