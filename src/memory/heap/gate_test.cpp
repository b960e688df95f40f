// SPDX-License-Identifier: Apache-2.0
#include "memory/heap/gate.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <thread>

#include "support/child.h"

namespace headrace {
namespace {

// Data that threads change inside the gate is never half changed in a child.
TEST(HeapGate, NoThreadIsInsideAtAFork) {
  std::array<std::atomic<int>, 3> inside{};
  std::atomic<bool> stop{false};
  std::array<std::thread, 3> threads;
  for (std::size_t i = 0; i < threads.size(); ++i) {
    threads[i] = std::thread([&, i] {
      while (!stop) {
        const HeapGate gate;
        ++inside[i];
        std::this_thread::yield();
        --inside[i];
      }
    });
  }
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(test::status_of_child([&] {
                const HeapGate gate;
                return inside[0] == 0 && inside[1] == 0 && inside[2] == 0;
              }),
              0);
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
}

TEST(HeapGate, MayBeEnteredAgainInside) {
  const HeapGate outer;
  const HeapGate inner;
  const HeapGate innermost;
}

}  // namespace
}  // namespace headrace
