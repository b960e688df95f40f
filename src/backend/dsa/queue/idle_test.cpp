// SPDX-License-Identifier: Apache-2.0
#include "backend/dsa/queue/idle.h"

#include <gtest/gtest.h>

namespace headrace::dsa {
namespace {

// Whichever instruction this CPU has for it.
TEST(Idle, ComesBack) {
  for (int i = 0; i < 1000; ++i) idle_briefly();
}

}  // namespace
}  // namespace headrace::dsa
