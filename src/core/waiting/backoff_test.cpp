// SPDX-License-Identifier: Apache-2.0
#include "core/waiting/backoff.h"

#include <gtest/gtest.h>

namespace headrace {
namespace {

using namespace std::chrono_literals;

TEST(Backoff, DoublesUpToTheLongestAndBeginsAgain) {
  Backoff pauses(10us, 70us);
  for (const Nanoseconds expected : {10us, 20us, 40us, 70us, 70us}) {
    EXPECT_EQ(pauses.next(), expected);
  }
  pauses.reset();
  EXPECT_EQ(pauses.next(), 10us);
  EXPECT_EQ(pauses.next(), 20us);
}

}  // namespace
}  // namespace headrace
