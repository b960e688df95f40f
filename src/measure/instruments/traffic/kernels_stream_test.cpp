// SPDX-License-Identifier: Apache-2.0
#include "measure/instruments/traffic/kernels_stream.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "core/sanitizers.h"
#include "measure/instruments/traffic/kernels_traffic.h"
#include "tests/support/disassembly.h"

namespace headrace::instruments {
namespace {

double wanted(StreamOperation operation, double from, double other) {
  switch (operation) {
    case StreamOperation::copy: return from;
    case StreamOperation::scale: return kStreamScalar * from;
    case StreamOperation::add: return from + other;
    case StreamOperation::triad: return from + kStreamScalar * other;
  }
  return 0;
}

constexpr StreamOperation kOperations[] = {StreamOperation::copy, StreamOperation::scale,
                                           StreamOperation::add, StreamOperation::triad};

// For any begin and end of the parts.
TEST(StreamLoops, WriteWhatTheyShouldAndNothingElse) {
  constexpr std::size_t kMost = 100;
  constexpr std::size_t kRoom = kMost + 20;
  std::vector<double> from(kRoom);
  std::vector<double> other(kRoom);
  for (std::size_t i = 0; i < kRoom; ++i) {
    from[i] = static_cast<double>(i) + 1;
    other[i] = 1000 + static_cast<double>(7 * i);
  }
  for (const unsigned bits : vector_widths()) {
    for (const StreamOperation operation : kOperations) {
      for (const bool around : {false, true}) {
        const StreamLoop loop = stream_loop(operation, around, bits);
        for (std::size_t first = 0; first < 9; ++first) {
          for (const std::size_t count : {0, 1, 7, 8, 31, 32, 33, 64, 71, 100}) {
            std::vector<double> to(kRoom, -1);
            loop(to.data() + first, from.data() + 1, other.data() + 2, count);
            for (std::size_t i = 0; i < kRoom; ++i) {
              const bool inside = i >= first && i < first + count;
              const double right =
                  inside ? wanted(operation, from[i - first + 1], other[i - first + 2]) : -1;
              ASSERT_EQ(to[i], right) << bits << " bits, " << static_cast<int>(operation) << ", "
                                      << around << ", " << first << ", " << count << ": " << i;
            }
          }
        }
      }
    }
  }
}

// Results do not show which stores were used; instructions do. A copy compiled into a call of
// memcpy would not fetch the lines that it overwrites.
TEST(StreamLoops, StoreAroundTheCachesOrNotAtAll) {
#if defined(HEADRACE_ASAN) || defined(HEADRACE_TSAN)
  GTEST_SKIP() << "sanitizers add instructions of their own";
#endif
#if defined(__x86_64__)
  const std::map<std::string, int> targets{{"N_SSSE3", 16}, {"N_AVX2", 8}, {"N_AVX3", 4}};
  const char* const around = "movnt";
#else
  const std::map<std::string, int> targets{{"N_NEON", 8}};  // pairs
  const char* const around = "stnp";
#endif
  std::map<std::string, int> found;
  test::for_each_instruction(
      "::stream<", [&](const std::string& function, const std::string& line) {
        const auto name = function.find("N_");
        found[function.substr(name, function.find(">(", name) - name)] +=
            line.find(around) != std::string::npos ? 1 : 0;
        EXPECT_EQ(line.find("memcpy"), std::string::npos) << function << line;
        EXPECT_EQ(line.find("memmove"), std::string::npos) << function << line;
      });
  if (found.empty()) GTEST_SKIP() << "no objdump";
  int seen = 0;
  for (const auto& [name, count] : found) {
    const auto target = targets.find(name.substr(0, name.find(':')));
    if (target == targets.end()) continue;
    ++seen;
    EXPECT_EQ(count, name.find("true") != std::string::npos ? target->second : 0) << name;
  }
  EXPECT_EQ(seen, static_cast<int>(8 * targets.size()));
}

}  // namespace
}  // namespace headrace::instruments
