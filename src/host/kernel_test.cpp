// SPDX-License-Identifier: Apache-2.0
#include "host/kernel.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <cerrno>

#include "host/kernel_testing.h"

namespace headrace {
namespace {

TEST(Kernel, WithoutListsOfPagesSaysWhatItTakes) {
  Refusing kernel;
  kernel.open_error = -EACCES;
  expect_reason(open_pagemap(kernel), ErrorCode::denied, "/proc/self/pagemap");
  kernel.open_error = 0;
  kernel.first_ioctl_error = -ENOTTY;
  expect_reason(open_pagemap(kernel), ErrorCode::unsupported, "Linux 6.7");
  kernel.first_ioctl_error = -EPERM;
  expect_reason(open_pagemap(kernel), ErrorCode::denied, "PAGEMAP_SCAN");
}

TEST(Kernel, WithoutWriteProtectionSaysWhatItTakes) {
  Refusing kernel;
  kernel.faults_error = -ENOSYS;
  expect_reason(open_write_protection(kernel), ErrorCode::unsupported, "CONFIG_USERFAULTFD");
  kernel.faults_error = -EINVAL;
  expect_reason(open_write_protection(kernel), ErrorCode::unsupported, "Linux 6.7");
  kernel.faults_error = -EPERM;
  expect_reason(open_write_protection(kernel), ErrorCode::denied, "seccomp");
  kernel.faults_error =
      ::open("/dev/null", O_RDONLY | O_CLOEXEC);  // as a kernel with fewer features
  kernel.first_ioctl_error = -EINVAL;
  expect_reason(open_write_protection(kernel), ErrorCode::unsupported, "UFFD_FEATURE_WP_ASYNC");
}

}  // namespace
}  // namespace headrace
