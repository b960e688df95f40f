#include "backend/dsa_sim/chances.h"

#include <gtest/gtest.h>

#include <vector>

#include "backend/dsa_sim/client_memory.h"

namespace headrace::dsa {
namespace {

std::vector<Mishap::Kind> draw(Chances& chances, int times) {
  Descriptor descriptor;
  descriptor.set(Opcode::memmove, 0);
  descriptor.size = 100;
  std::vector<Mishap::Kind> kinds;
  for (int i = 0; i < times; ++i) kinds.push_back(chances.draw(descriptor, 0).kind);
  return kinds;
}

TEST(Chances, AreNoneUntilSet) {
  Chances chances(1);
  EXPECT_EQ(draw(chances, 100), std::vector<Mishap::Kind>(100, Mishap::Kind::none));
  EXPECT_FALSE(chances.set("rain", 1));
}

TEST(Chances, OfEachKind) {
  using Kind = Mishap::Kind;
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
  const auto failed = std::count(kinds.begin(), kinds.end(), Mishap::Kind::status);
  EXPECT_GT(failed, 50);
  EXPECT_LT(failed, 200);
}

TEST(Chances, SpareTheDriversOwnDrains) {
  Chances chances(1);
  EXPECT_TRUE(chances.set("lose-records", 1));
  Descriptor drain;
  drain.set(Opcode::drain, 0);
  drain.record = ClientMemory::record_of(1);
  EXPECT_EQ(chances.draw(drain, 0).kind, Mishap::Kind::none);
}

}  // namespace
}  // namespace headrace::dsa
