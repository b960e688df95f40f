#include "headrace/mover.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "backend/fake/fake.h"
#include "support/machines.h"

namespace headrace {
namespace {

TEST(Mover, CopiesAndTells) {
  const Machine machine = test::small_machine();
  Backends backends;
  backends.add(std::make_unique<FakeBackend>(
      FakeOptions{.engines = {test::kCpuA, test::kCpuB}, .own_thread = true}));
  std::vector<std::byte> source(5'000'000, std::byte{7});
  std::vector<std::byte> destination(5'000'000);
  MemoryRange from(source, test::kDram);
  MemoryRange to(destination, test::kHbm);
  Mover mover(machine, backends);
  const auto outcome = mover.copy(whole(to), whole(from)).wait();
  ASSERT_TRUE(outcome) << outcome.error().message;
  EXPECT_EQ(outcome->bytes, 5'000'000_B);
  EXPECT_EQ(source, destination);
}

}  // namespace
}  // namespace headrace
