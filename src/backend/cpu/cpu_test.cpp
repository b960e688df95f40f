// SPDX-License-Identifier: Apache-2.0
// The conformance suite tests the copies; this file has what is special about cores.
#include "backend/cpu/cpu.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <vector>

#include "tests/support/machines.h"
#include "tests/support/outcomes.h"

namespace headrace {
namespace {

using test::kCpuA;
using test::kCpuB;

class CpuBackend : public testing::Test {
 protected:
  void open(const Machine& machine, const CpuOptions& options = {}) {
    auto backend = open_cpu(machine, {kCpuA, kCpuB}, options);
    ASSERT_TRUE(backend) << backend.error().message;
    backend_ = *std::move(backend);
  }
  Piece piece(Bytes length) const {
    return {
        .from = whole(from_).part(0, length), .to = whole(to_).part(0, length), .engine = kCpuA};
  }

  std::vector<std::byte> from_bytes_ = std::vector<std::byte>(64 << 10, std::byte{7});
  std::vector<std::byte> to_bytes_ = std::vector<std::byte>(64 << 10);
  const MemoryRange from_{from_bytes_, test::kDram};
  const MemoryRange to_{to_bytes_, test::kDram};
  test::Outcomes outcomes_;
  std::unique_ptr<Backend> backend_;
};

TEST_F(CpuBackend, RefusesEnginesThatAreNotCores) {
  for (const EngineId id : {test::kSsd, EngineId{99}}) {
    const auto refused = open_cpu(test::small_machine(), {kCpuA, id});
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, ErrorCode::invalid);
  }
}

TEST_F(CpuBackend, RunsUnpinnedAndSaysSoWhereTheCpusAreNotHere) {
  Machine machine = test::small_machine();
  machine.nodes[0].cpus = {100000, 100001};
  open(machine, {.workers = 3});
  const std::string note = backend_->capabilities().note;
  EXPECT_TRUE(note.starts_with("workers per engine: 3, 3; not pinned: engine 0, 1")) << note;
  const Piece all = piece(64_KiB);
  EXPECT_EQ(backend_->submit({&all, 1}, outcomes_), 1U);
  EXPECT_TRUE(outcomes_.wait(1));
  EXPECT_EQ(to_bytes_, from_bytes_);
}

// Records the number of CPUs that the reporting thread may use.
class AffinityProbe final : public test::Outcomes {
 public:
  void complete(std::uint64_t tag, Status outcome) noexcept override {
    cpu_set_t allowed;
    sched_getaffinity(0, sizeof allowed, &allowed);
    cpus = CPU_COUNT(&allowed);
    Outcomes::complete(tag, std::move(outcome));
  }
  std::atomic<int> cpus = -1;
};

TEST_F(CpuBackend, PinsItsWorkersToTheirNode) {
  cpu_set_t allowed;
  ASSERT_EQ(sched_getaffinity(0, sizeof allowed, &allowed), 0);
  unsigned first = 0;
  while (!CPU_ISSET(first, &allowed)) ++first;
  Machine machine = test::small_machine();
  machine.nodes[0].cpus = {first};
  open(machine, {.inline_below = 0_B});
  AffinityProbe probe;
  const Piece small = piece(100_B);
  ASSERT_EQ(backend_->submit({&small, 1}, probe), 1U);
  ASSERT_TRUE(probe.wait(1));
  EXPECT_EQ(probe.cpus, 1);
}

TEST_F(CpuBackend, CopiesSmallPiecesInsideSubmit) {
  open(test::small_machine(), {.inline_below = 16_KiB});
  const Piece small = piece(1000_B);
  ASSERT_EQ(backend_->submit({&small, 1}, outcomes_), 1U);
  EXPECT_EQ(outcomes_.count(), 1U) << "reported before submit returned";
  EXPECT_EQ(std::ranges::count(to_bytes_, std::byte{7}), 1000);
}

TEST_F(CpuBackend, RefusesMemoryThatNoCoreReaches) {
  struct Elsewhere final : Object {
    Elsewhere() : Object(1000_B, test::kDisk, nullptr) {}
  } file;
  open(test::small_machine());
  Piece reading = piece(100_B);
  reading.from = {&file, 0, 100_B};
  const auto refused = backend_->submit({&reading, 1}, outcomes_);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::unsupported);
}

}  // namespace
}  // namespace headrace
