// SPDX-License-Identifier: Apache-2.0
#include "measure/instruments/traffic/kernels_traffic.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "core/sanitizers.h"
#include "tests/support/disassembly.h"

namespace headrace::instruments {
namespace {

struct Instructions {
  int loads = 0;
  int prefetches = 0;
  int stores = 0;
  int streams = 0;
};

struct Target {
  const char* name;
  int per_line;  // vectors
};

#if defined(__x86_64__)

constexpr Target kTargets[] = {{"N_SSSE3", 4}, {"N_AVX2", 2}, {"N_AVX3", 1}};

void count(const std::string& line, Instructions& loop) {
  if (line.find("prefetch") != std::string::npos) ++loop.prefetches;
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
}

#else

constexpr Target kTargets[] = {{"N_NEON", 4}};

// Counts vectors; an instruction may move a pair.
void count(const std::string& line, Instructions& loop) {
  const auto has = [&](const char* word) { return line.find(word) != std::string::npos; };
  if (has("prfm")) ++loop.prefetches;
  if (has("\tldr\tq")) ++loop.loads;
  if (has("\tldp\tq")) loop.loads += 2;
  if (has("\tstr\tq")) ++loop.stores;
  if (has("\tstp\tq")) loop.stores += 2;
  if (has("\tstnp\tq")) loop.streams += 2;
}

#endif

// Keys: "N_AVX2::loop<3ul, false>" is target, mix, whether it prefetches; "N_AVX2::block_loop<true,
// false>" is target, whether it stores around the caches, whether it prefetches.
std::map<std::string, Instructions> disassemble(const char* name_of_loop) {
  std::map<std::string, Instructions> found;
  test::for_each_instruction(
      name_of_loop, [&](const std::string& function, const std::string& line) {
        const auto name = function.find("N_");
        count(line, found[function.substr(name, function.find('(', name) - name)]);
      });
  return found;
}

class TrafficInstructions : public testing::Test {
 protected:
  void SetUp() override {
#if defined(HEADRACE_ASAN) || defined(HEADRACE_TSAN)
    GTEST_SKIP() << "sanitizers add instructions of their own";
#endif
  }
};

TEST_F(TrafficInstructions, TheCompilerKeptEveryLoadAndStore) {
  const auto found = disassemble("::loop<");
  if (found.empty()) GTEST_SKIP() << "no objdump";
  for (const auto& [target, per_line] : kTargets) {
    for (std::size_t i = 0; i < mixes().size(); ++i) {
      const Mix& mix = mixes()[i];
      const int each = static_cast<int>(mixes_per_group(mix));
      const int reads = per_line * each * static_cast<int>(mix.reads);
      const int writes = per_line * each * static_cast<int>(mix.writes);
      for (const bool prefetches : {false, true}) {
        const std::string name = fmt::format("{}::loop<{}ul, {}>", target, i, prefetches);
        SCOPED_TRACE(name);
        const auto loop = found.find(name);
        ASSERT_NE(loop, found.end());
        EXPECT_EQ(loop->second.loads, reads);
        EXPECT_EQ(loop->second.stores, mix.non_temporal ? 0 : writes);
        EXPECT_EQ(loop->second.streams, mix.non_temporal ? writes : 0);
        EXPECT_EQ(loop->second.prefetches, prefetches ? reads / per_line : 0);
      }
    }
  }
}

// The compiler may unroll some lines, but each line must be whole.
TEST_F(TrafficInstructions, LoopsOfBlocksLoadAndStoreWholeLines) {
  const auto found = disassemble("::block_loop<");
  if (found.empty()) GTEST_SKIP() << "no objdump";
  for (const auto& [target, per_line] : kTargets) {
    for (const bool around : {false, true}) {
      for (const bool prefetches : {false, true}) {
        const std::string name = fmt::format("{}::block_loop<{}, {}>", target, around, prefetches);
        SCOPED_TRACE(name);
        const auto loop = found.find(name);
        ASSERT_NE(loop, found.end());
        const auto whole = [&](int count) { return count > 0 && count % per_line == 0; };
        EXPECT_TRUE(whole(loop->second.loads)) << loop->second.loads;
        EXPECT_TRUE(whole(around ? loop->second.streams : loop->second.stores));
        EXPECT_EQ(around ? loop->second.stores : loop->second.streams, 0);
        EXPECT_EQ(loop->second.prefetches * per_line, prefetches ? loop->second.loads : 0);
      }
    }
  }
}

}  // namespace
}  // namespace headrace::instruments
