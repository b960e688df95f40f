// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstring>
#include <set>
#include <span>
#include <vector>

#include "measure/experiments/experiments.h"
#include "measure/instruments/worker_pool.h"
#include "measure/session/probe_testing.h"
#include "tests/support/machines.h"

namespace headrace::experiment_copy {

using namespace session;

namespace {

// The two sides of a copy within a node, as the points have them in the pool.
struct Sides {
  std::span<std::byte> to;
  std::span<std::byte> from;
};

// Each source line differs; the target is empty.
Sides sides_of(BufferPool& buffers, const Point& point, Bytes bytes) {
  Sides sides{.to = buffers.get(point.memory, 0, bytes).value(),
              .from = buffers.get(point.memory, 1, bytes).value()};
  std::memset(sides.to.data(), 0, sides.to.size());
  std::memset(sides.from.data(), 0xA5, sides.from.size());
  for (std::size_t at = 0; at < sides.from.size(); at += 64) {
    std::memcpy(&sides.from[at + 24], &at, sizeof at);
  }
  return sides;
}

// Number of pieces of `bytes` that were copied; the others are empty.
std::size_t copied_pieces(const Sides& sides, std::size_t bytes) {
  const std::vector<std::byte> nothing(bytes);
  std::size_t copied = 0;
  std::size_t wrong = 0;
  for (std::size_t at = 0; at + bytes <= sides.to.size(); at += bytes) {
    const bool all = std::memcmp(&sides.to[at], &sides.from[at], bytes) == 0;
    copied += all;
    wrong += !all && std::memcmp(&sides.to[at], nothing.data(), bytes) != 0;
  }
  EXPECT_EQ(wrong, 0U);
  return copied;
}

TEST(CopyPointsTest, EveryEngineSizeAndStateCanBeMeasured) {
  const Machine machine = test::small_host();
  BufferPool buffers(machine);
  Random random(1);
  std::size_t measured = 0;
  for (const Point& point : kExperiment.points({machine})) {
    const auto bytes = std::get<std::uint64_t>(*point.row.parameter("bytes"));
    const auto threads = std::get<std::uint64_t>(*point.row.parameter("threads"));
    if (threads != 1 || (bytes != 64 && bytes != (256_KiB).value)) continue;
    const bool cold = point.row.word("state") == "cold";
    if (*point.row.number("from") != *point.row.number("to")) continue;
    const auto probe = point.prepare(buffers, random);
    ASSERT_TRUE(probe.has_value()) << probe.error().message;
    const Sides sides = sides_of(buffers, point, cold ? 1_MiB : Bytes{bytes});
    const auto sample = (*probe)->sample();
    ASSERT_TRUE(sample.has_value());
    // Large cold pieces may all be beyond these.
    const std::size_t least = !cold ? 1 : bytes == 64 ? 2 : 0;
    EXPECT_GE(copied_pieces(sides, bytes), least) << point.row.key();
    EXPECT_GT(sample->value, 0) << point.row.key();
    EXPECT_DOUBLE_EQ(sample->details.at("read_write"), 2 * sample->value);
    EXPECT_NEAR(sample->details.at("cpu_s_per_gb"), 1e9 / sample->value, 1e-3) << "one thread";
    ++measured;
  }
  EXPECT_GE(measured, 8u) << "two engines at least, two sizes, cold and hot";
}

TEST(CopyPointsTest, OneCopyIsDividedAmongThreads) {
  const Machine machine = test::small_host();
  BufferPool buffers(machine);
  Random random(1);
  std::size_t measured = 0;
  const ParameterChoices only = {
      {"work", "divided"}, {"engine", "memcpy"}, {"bytes", (1_MiB).value}};
  for (const Point& point : kExperiment.points({machine, only})) {
    if (point.row.word("work") != "divided") continue;
    EXPECT_EQ(point.row.word("state"), "cold");
    const auto sample = sample_of(point, buffers, random);
    ASSERT_TRUE(sample) << sample.error().message;
    EXPECT_GT(sample->value, 0);
    const auto threads = static_cast<double>(*point.row.number("threads"));
    // At least as many CPU seconds per second as there are threads; more if their times differ.
    EXPECT_GE(sample->details.at("cpu_s_per_gb") * sample->value / 1e9, threads * (1 - 1e-9));
    ++measured;
  }
  EXPECT_GE(measured, 1U);
  std::set<std::uint64_t> sizes;  // by default
  for (const Point& point : kExperiment.points({machine})) {
    if (point.row.parameter("work") == nullptr) continue;
    EXPECT_EQ(point.row.word("engine"), "cpu");
    EXPECT_GT(*point.row.number("threads"), 1U);
    sizes.insert(*point.row.number("bytes"));
  }
  EXPECT_TRUE(usable_cpus().size() < 2 || sizes == std::set({(1_MiB).value, (64_MiB).value}));
}

TEST(CopyPointsTest, ASmallNodeIsAReasonForLargeCopies) {
  Machine machine = Machine::discover().value();
  for (Node& node : machine.nodes) {
    if (node.byte_addressable()) node.capacity = 128_MiB;
  }
  for (const Point& point : kExperiment.points({machine})) {
    const auto bytes = std::get<std::uint64_t>(*point.row.parameter("bytes"));
    if (bytes == (64_MiB).value) {
      EXPECT_EQ(point.row.reason, "a node is too small for copies of this size");
    }
    if (bytes == (4_KiB).value) {
      EXPECT_EQ(point.row.reason, "");
    }
  }
}

}  // namespace
}  // namespace headrace::experiment_copy
