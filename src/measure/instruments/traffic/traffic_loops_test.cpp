#include "measure/instruments/traffic/traffic_loops.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "core/sanitizers.h"
#include "tests/support/disassembly.h"

namespace headrace::instruments {
namespace {

#if defined(__x86_64__)

struct Instructions {
  int loads = 0;
  int prefetches = 0;
  int stores = 0;
  int streams = 0;
};

// By "N_AVX2::loop<3ul, false>": the target, the mix, whether it prefetches.
std::map<std::string, Instructions> disassemble() {
  std::map<std::string, Instructions> found;
  test::for_each_instruction("::loop<", [&](const std::string& function, const std::string& line) {
    const auto name = function.find("N_");
    Instructions& loop = found[function.substr(name, function.find('(', name) - name)];
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
  });
  return found;
}

TEST(TrafficTest, TheCompilerKeptEveryLoadAndStore) {
#if defined(HEADRACE_ASAN) || defined(HEADRACE_TSAN)
  GTEST_SKIP() << "sanitizers add instructions of their own";
#endif
  const auto found = disassemble();
  if (found.empty()) GTEST_SKIP() << "no objdump";
  struct Vectors {
    const char* target;
    int per_line;
  };
  for (const auto& [target, per_line] : {Vectors{"N_SSSE3", 4}, {"N_AVX2", 2}, {"N_AVX3", 1}}) {
    for (std::size_t i = 0; i < mixes().size(); ++i) {
      const Mix& mix = mixes()[i];
      const int each = static_cast<int>(mixes_per_group(mix));
      const int reads = per_line * each * static_cast<int>(mix.reads);
      const int writes = per_line * each * static_cast<int>(mix.writes);
      for (const bool prefetches : {false, true}) {
        const std::string name = std::string(target) + "::loop<" + std::to_string(i) + "ul, " +
                                 (prefetches ? "true>" : "false>");
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

#endif

}  // namespace
}  // namespace headrace::instruments
