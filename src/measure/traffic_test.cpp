#include "measure/traffic.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "measure/chase.h"
#include "measure/disassembly_testing.h"

namespace headrace {
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
    for (const unsigned bits : {64u, 128u, 256u, 512u}) {
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

#if defined(__x86_64__)

struct Instructions {
  int loads = 0;
  int stores = 0;
  int streams = 0;
};

// The loops by their names.
std::map<std::string, Instructions> disassemble() {
  std::map<std::string, Instructions> found;
  for_each_instruction("::loop_", [&](const std::string& function, const std::string& line) {
    const auto name = function.find("::loop_") + 2;
    Instructions& loop = found[function.substr(name, function.find('(', name) - name)];
    const auto open = line.find('(');
    // The pattern itself is read relative to the program counter.
    if (line.find("mm") == std::string::npos || open == std::string::npos ||
        line.find("(%rip)") != std::string::npos) {
      return;
    }
    // AT&T: the destination is last.
    const bool to_memory = line.find(',', line.find(')', open)) == std::string::npos;
    if (line.find("movnt") != std::string::npos) {
      ++loop.streams;
    } else {
      ++(to_memory ? loop.stores : loop.loads);
    }
  });
  return found;
}

TEST(TrafficTest, TheCompilerKeptEveryLoadAndStore) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers add instructions of their own";
#endif
  const auto found = disassemble();
  if (found.empty()) GTEST_SKIP() << "no objdump";
  struct Vectors {
    const char* name;
    int per_line;
  };
  for (const auto& [name, per_line] : {Vectors{"sse2", 4}, {"avx2", 2}, {"avx512", 1}}) {
    const auto at = [&](unsigned reads, unsigned writes, bool stream, bool copy) {
      const auto word = [](bool b) { return b ? "true" : "false"; };
      const unsigned n = std::max(reads, writes) == 1 ? 4 : 1;
      const std::string key = "loop_" + std::string(name) + "<" + std::to_string(n * reads) +
                              "u, " + std::to_string(n * writes) + "u, " + word(stream) + ", " +
                              word(copy) + ">";
      const auto loop = found.find(key);
      EXPECT_NE(loop, found.end()) << key;
      return loop == found.end() ? Instructions{} : loop->second;
    };
    const int group = 4 * per_line;
    EXPECT_EQ(at(1, 0, false, false).loads, group) << name;
    EXPECT_EQ(at(1, 0, false, false).stores, 0);
    EXPECT_EQ(at(0, 1, false, false).stores, group) << name;
    EXPECT_EQ(at(0, 1, true, false).streams, group) << name;
    EXPECT_EQ(at(0, 1, true, false).stores, 0);
    EXPECT_EQ(at(2, 1, true, false).loads, 2 * per_line) << name;
    EXPECT_EQ(at(2, 1, true, false).streams, per_line);
    EXPECT_EQ(at(3, 1, false, false).loads, 3 * per_line) << name;
    EXPECT_EQ(at(3, 1, false, false).stores, per_line);
    EXPECT_EQ(at(1, 1, false, true).loads, group) << name;
    EXPECT_EQ(at(1, 1, false, true).stores, group);
    EXPECT_EQ(at(1, 1, true, true).streams, group) << name;
  }
}

#endif

}  // namespace
}  // namespace headrace
