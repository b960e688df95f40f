// SPDX-License-Identifier: Apache-2.0
// Expectations on failures.
#pragma once

#include <gtest/gtest.h>

#include <string_view>

#include "headrace/result.h"

namespace headrace::test {

// Expects a failure with this code, and with this text in its one-line message.
void expect_refused(const auto& result, ErrorCode code, std::string_view text) {
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, code) << result.error().message;
  EXPECT_TRUE(result.error().message.contains(text)) << result.error().message;
  EXPECT_FALSE(result.error().message.contains('\n')) << result.error().message;
}

}  // namespace headrace::test
