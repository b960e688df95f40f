// SPDX-License-Identifier: Apache-2.0
#include "measure/instruments/counters/bus_counter.h"

#include <gtest/gtest.h>

#include "measure/instruments/counters/counters_testing.h"

namespace headrace::instruments {
namespace {

// Returns these numbers in order; below 0: no number now.
class Told final : public BusCounter {
 public:
  explicit Told(std::vector<double> numbers) : numbers_(std::move(numbers)) {}
  Result<double> bytes() override {
    const double next = numbers_.at(at_++);
    if (next < 0) return fail(ErrorCode::absent, "Unavailable");
    return next;
  }
  const std::string& words() const override { return words_; }
  bool counts(const Node& node) const override { return node.kind == NodeKind::dram; }

 private:
  const std::vector<double> numbers_;
  const std::string words_ = "told";
  std::size_t at_ = 0;
};

std::vector<std::optional<double>> windows(std::vector<double> numbers) {
  const std::size_t count = numbers.size() / 2;
  BusMeter meter(std::make_unique<Told>(std::move(numbers)));
  std::vector<std::optional<double>> all;
  for (std::size_t i = 0; i < count; ++i) all.push_back(BusMeter::Window(meter).bytes());
  return all;
}

TEST(BusMeter, IsTheDifferenceOfTwoReadingsAfterTheFirstWindow) {
  const std::vector<std::optional<double>> expected = {std::nullopt, 30, 4};
  EXPECT_EQ(windows({5, 1000, 1000, 1030, 2000, 2004}), expected);
}

TEST(BusMeter, NoNumberOrLessThanBeforeIsNothing) {
  EXPECT_EQ(windows({0, 1, 10, 5})[1], std::nullopt);
  BusMeter meter(std::make_unique<Told>(std::vector<double>{0, 1, -1, 10, -1, 20, 25}));
  (void)BusMeter::Window(meter).bytes();
  EXPECT_EQ(BusMeter::Window(meter).bytes(), std::nullopt) << "before";
  EXPECT_EQ(BusMeter::Window(meter).bytes(), std::nullopt) << "after";
  EXPECT_EQ(BusMeter::Window(meter).bytes(), std::optional<double>(5));
}

TEST(BusMeter, WithoutACounterThereIsNothingAndNoWords) {
  BusMeter meter;
  EXPECT_EQ(BusMeter::Window(meter).bytes(), std::nullopt);
  EXPECT_EQ(meter.words(), "");
  EXPECT_FALSE(meter.counts({.kind = NodeKind::dram}));
}

TEST(FindBusCounter, TakesControllersThenCachesThenSaysWhyNot) {
  test::FakeHost host;
  test::FakePerf perf;
  const CounterHost there{host.at("sys"), &perf};
  const FoundCounter none = find_bus_counter(there);
  EXPECT_EQ(none.counter, nullptr);
  EXPECT_TRUE(none.words.starts_with("none: no PMU of a memory controller")) << none.words;
  EXPECT_NE(none.words.find("no resctrl"), std::string::npos) << none.words;
  EXPECT_EQ(none.words.find('\n'), std::string::npos);

  host.write("sys/fs/resctrl/info/L3_MON/mon_features", "mbm_total_bytes");
  host.write("sys/fs/resctrl/mon_data/mon_L3_00/mbm_total_bytes", "1");
  const FoundCounter caches = find_bus_counter(there);
  ASSERT_NE(caches.counter, nullptr);
  EXPECT_EQ(caches.words, caches.counter->words());
  EXPECT_TRUE(caches.words.starts_with("resctrl")) << caches.words;

  test::add_imc(host, 0, 14);
  EXPECT_TRUE(find_bus_counter(there).words.starts_with("DDR controllers (uncore_imc_0"));
  perf.denied = true;
  EXPECT_TRUE(find_bus_counter(there).words.starts_with("resctrl")) << "better than none";
}

}  // namespace
}  // namespace headrace::instruments
