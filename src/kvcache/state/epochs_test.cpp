// SPDX-License-Identifier: Apache-2.0
#include "kvcache/state/epochs.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <vector>

namespace headrace::kvcache {
namespace {

TEST(KvEpochs, WithoutOperations_EachMarkHasPassed) {
  Epochs epochs;
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(epochs.passed(epochs.mark()));
}

// Each operation ends only after the next has begun.
TEST(KvEpochs, OperationsThatOverlapForever_DelayNoMarkForever) {
  Epochs epochs;
  std::uint8_t running = epochs.begin();
  const std::uint64_t mark = epochs.mark();
  EXPECT_FALSE(epochs.passed(mark));
  int steps = 0;
  while (!epochs.passed(mark)) {
    ASSERT_LT(++steps, 3);
    const std::uint8_t next = epochs.begin();
    epochs.end(running);
    running = next;
  }
}

RC_GTEST_PROP(KvEpochs, RandomCalls_AgreeWithAListOfOperations, ()) {
  struct Operation {
    std::uint8_t side;
    std::size_t began;
  };
  struct Mark {
    std::uint64_t mark;
    std::size_t at;
  };
  Epochs epochs;
  std::vector<Operation> running;
  std::vector<Mark> marks;
  const auto ended = [&](const Mark& mark) {
    return std::ranges::none_of(running, [&](const Operation& o) { return o.began < mark.at; });
  };
  const auto steps = *rc::gen::inRange<std::size_t>(1, 80);
  for (std::size_t now = 1; now <= steps; ++now) {
    switch (*rc::gen::inRange(0, 4)) {
      case 0: running.push_back({epochs.begin(), now}); break;
      case 1: marks.push_back({epochs.mark(), now}); break;
      default:
        if (running.empty()) break;
        const auto at = *rc::gen::inRange<std::size_t>(0, running.size());
        epochs.end(running[at].side);
        running.erase(running.begin() + static_cast<std::ptrdiff_t>(at));
    }
    for (const Mark& mark : marks) {
      if (epochs.passed(mark.mark)) RC_ASSERT(ended(mark));
    }
  }
  for (const Operation& operation : running) epochs.end(operation.side);
  for (const Mark& mark : marks) RC_ASSERT(epochs.passed(mark.mark));
}

}  // namespace
}  // namespace headrace::kvcache
