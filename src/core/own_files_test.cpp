// SPDX-License-Identifier: Apache-2.0
#include "core/own_files.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "support/child.h"

namespace headrace {
namespace {

bool is_open(int descriptor) { return fcntl(descriptor, F_GETFD) >= 0; }

using test::status_of_child;

TEST(OwnFiles, AreClosedInAChildAndOnlyThere) {
  const int opened = own_files::open("/dev/zero");
  const int added = eventfd(0, EFD_CLOEXEC);
  own_files::add(added);
  ASSERT_GE(opened, 0);
  EXPECT_EQ(status_of_child([&] { return !is_open(opened) && !is_open(added); }), 0);
  EXPECT_TRUE(is_open(opened) && is_open(added));
  own_files::close(opened);
  own_files::close(added);
  EXPECT_FALSE(is_open(opened) || is_open(added));
}

TEST(OwnFiles, RemovedDescriptor_StaysOpenInAChild) {
  const int descriptor = own_files::open("/dev/zero");
  own_files::remove(descriptor);
  EXPECT_EQ(status_of_child([&] { return is_open(descriptor); }), 0);
  close(descriptor);
}

TEST(OwnFiles, FileOfAChild_IsClosedInAGrandchild) {
  EXPECT_EQ(status_of_child([] {
              const int own = own_files::open("/dev/zero");
              return status_of_child([&] { return !is_open(own); }) == 0 && is_open(own);
            }),
            0);
}

TEST(OwnDescriptor, IsClosedOnceAndInAChild) {
  const int number = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  {
    OwnDescriptor first(number);
    OwnDescriptor second;
    second = std::move(first);
    const OwnDescriptor third(std::move(second));
    EXPECT_EQ(third.get(), number);
    EXPECT_EQ(test::status_of_child([&] { return ::fcntl(number, F_GETFD) < 0; }), 0);
    EXPECT_GE(::fcntl(number, F_GETFD), 0);
  }
  EXPECT_LT(::fcntl(number, F_GETFD), 0);
}

}  // namespace
}  // namespace headrace
