// SPDX-License-Identifier: Apache-2.0
#include "dsa_sim/driver/chances.h"

#include <gtest/gtest.h>

#include <vector>

namespace headrace::emulator {
namespace {

std::vector<InjectedFault::Kind> draw(Chances& chances, int times) {
  Descriptor descriptor;
  descriptor.set(Opcode::memmove, 0);
  descriptor.size = 100;
  std::vector<InjectedFault::Kind> kinds;
  for (int i = 0; i < times; ++i) kinds.push_back(chances.draw(descriptor, 0).kind);
  return kinds;
}

TEST(Chances, AreNoneUntilSet) {
  Chances chances(1);
  EXPECT_EQ(draw(chances, 100), std::vector<InjectedFault::Kind>(100, InjectedFault::Kind::none));
  EXPECT_FALSE(chances.set("rain", 1));
}

TEST(Chances, OfEachKind) {
  using Kind = InjectedFault::Kind;
  for (const auto& [what, kind] : {std::pair{"fail", Kind::status},
                                   {"unknown-statuses", Kind::status},
                                   {"fault-pages", Kind::page_fault},
                                   {"lose-records", Kind::lost_record}}) {
    Chances chances(1);
    EXPECT_TRUE(chances.set(what, 1));
    EXPECT_EQ(draw(chances, 1)[0], kind) << what;
    EXPECT_TRUE(chances.set(what, 0));
    EXPECT_EQ(draw(chances, 1)[0], Kind::none) << what;
  }
}

TEST(Chances, TheSameSeedFailsTheSame) {
  Chances one(7);
  Chances other(7);
  EXPECT_TRUE(one.set("fail", 0.1) && other.set("fail", 0.1));
  const auto kinds = draw(one, 1000);
  EXPECT_EQ(kinds, draw(other, 1000));
  const auto failed = std::count(kinds.begin(), kinds.end(), InjectedFault::Kind::status);
  EXPECT_GT(failed, 50);
  EXPECT_LT(failed, 200);
}

}  // namespace
}  // namespace headrace::emulator
