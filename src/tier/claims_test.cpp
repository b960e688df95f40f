// SPDX-License-Identifier: Apache-2.0
#include "tier/claims.h"

#include <gtest/gtest.h>

#include "support/child.h"
#include "tests/support/expect.h"

namespace headrace {
namespace {

using test::expect_refused;

TEST(Claims, OverlappingClaim_IsRefusedWithItsOwner) {
  ASSERT_TRUE(claim(0x1000, 0x3000, HotnessKind::written));
  for (const auto& [begin, end] :
       {std::pair{0x1000, 0x3000}, {0x2000, 0x2001}, {0, 0x1001}, {0x2fff, 0x5000}, {0, 0x9000}}) {
    expect_refused(claim(static_cast<std::uintptr_t>(begin), static_cast<std::uintptr_t>(end),
                         HotnessKind::referenced),
                   ErrorCode::invalid, "by written");
  }
  EXPECT_TRUE(claim(0, 0x1000, HotnessKind::memfd));
  EXPECT_TRUE(claim(0x3000, 0x4000, HotnessKind::memfd));
  release_claim(0x1000);
  EXPECT_TRUE(claim(0x1000, 0x3000, HotnessKind::memfd));
  for (const std::uintptr_t begin : {0, 0x1000, 0x3000}) release_claim(begin);
}

TEST(Claims, OfAChildAreItsOwn) {
  ASSERT_TRUE(claim(0x1000, 0x3000, HotnessKind::written));
  ASSERT_TRUE(claim_accessed_bits());
  EXPECT_FALSE(claim_accessed_bits());
  EXPECT_EQ(test::status_of_child([] {
              return claim(0x1000, 0x3000, HotnessKind::memfd).has_value() && claim_accessed_bits();
            }),
            0);
  EXPECT_FALSE(claim(0x1000, 0x3000, HotnessKind::memfd));
  release_claim(0x1000);
  release_accessed_bits();
  EXPECT_TRUE(claim_accessed_bits());
  release_accessed_bits();
}

}  // namespace
}  // namespace headrace
