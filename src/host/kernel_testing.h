// SPDX-License-Identifier: Apache-2.0
// A kernel that refuses calls, for tests.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "host/kernel.h"

namespace headrace {

// Refuses the call that the test selects.
struct Refusing final : Kernel {
  int open_error = 0;
  int faults_error = 0;
  int first_ioctl_error = 0;
  int open(const char* path, int flags) override {
    return open_error != 0 ? open_error : Kernel::open(path, flags);
  }
  int userfaultfd(int flags) override {
    return faults_error != 0 ? faults_error : Kernel::userfaultfd(flags);
  }
  int ioctl(int descriptor, unsigned long request, void* argument) override {
    return first_ioctl_error != 0 ? first_ioctl_error
                                  : Kernel::ioctl(descriptor, request, argument);
  }
};

inline void expect_reason(const auto& result, ErrorCode code, const char* word) {
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, code) << result.error().message;
  EXPECT_NE(result.error().message.find(word), std::string::npos) << result.error().message;
}

}  // namespace headrace
