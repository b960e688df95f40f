// SPDX-License-Identifier: Apache-2.0
// Moves between GPUs, memory and files, with the backends that a machine with GPUs opens.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>

#include "headrace/buffer.h"
#include "headrace/file.h"
#include "headrace/mover.h"
#include "headrace/random.h"
#include "tests/support/fake_gpu.h"

namespace headrace {
namespace {

constexpr Nanoseconds kBound = std::chrono::seconds{60};

std::vector<std::byte> some_bytes(std::size_t count, std::uint64_t seed) {
  Random random(seed);
  std::vector<std::byte> bytes(count);
  for (std::byte& each : bytes) each = static_cast<std::byte>(random());
  return bytes;
}

class MoverGpu : public testing::Test {
 protected:
  MoverGpu() {
    path_ = std::filesystem::temp_directory_path() / ("headrace-gpu-" + std::to_string(getpid()));
    std::FILE* file = std::fopen(path_.c_str(), "w");
    EXPECT_EQ(ftruncate(fileno(file), kSize.value), 0);
    std::fclose(file);
    file_ = File::open(gpu_.machine, path_, {.writable = true}).value();
  }
  ~MoverGpu() override { std::filesystem::remove(path_); }

  void move(const Object& to, const Object& from) {
    const auto moved = mover_.copy(whole(to), whole(from)).wait(kBound);
    ASSERT_TRUE(moved) << moved.error().message;
    EXPECT_EQ(moved->bytes, kSize);
  }

  static constexpr Bytes kSize{3'000'017};
  test::FakeGpu gpu_{"devices=2"};
  Backends backends_ = Backends::open(gpu_.machine).value();
  Mover mover_{gpu_.machine, backends_};
  std::filesystem::path path_;
  std::unique_ptr<File> file_;
  std::unique_ptr<Buffer> first_ = allocate(gpu_.machine, kSize, Placement::on(test::kGpu)).value();
  std::unique_ptr<Buffer> second_ =
      allocate(gpu_.machine, kSize, Placement::on(test::kOtherGpu)).value();
  std::unique_ptr<Buffer> memory_ =
      allocate(gpu_.machine, kSize, Placement::on(test::kDram)).value();
};

TEST_F(MoverGpu, EveryKindOfMemory_IsCopied) {
  EXPECT_TRUE(backends_.skipped().empty()) << backends_.skipped().front();
  const auto bytes = some_bytes(kSize.value, 1);
  std::ranges::copy(bytes, memory_->memory());
  move(*first_, *memory_);
  EXPECT_EQ(test::read_gpu(*first_, 0, kSize.value), bytes);
  move(*file_, *first_);
  move(*second_, *file_);
  EXPECT_EQ(test::read_gpu(*second_, 0, kSize.value), bytes);
  test::write_gpu(*first_, 0, std::vector<std::byte>(kSize.value));
  move(*first_, *second_);
  std::ranges::fill(memory_->bytes(), std::byte{0});
  move(*memory_, *first_);
  EXPECT_TRUE(std::ranges::equal(memory_->bytes(), bytes));
}

TEST_F(MoverGpu, OverlapInGpuMemory_IsInvalid) {
  const DeviceRange same(*first_->device_address(), kSize, test::kGpu);
  const auto refused =
      mover_.copy(whole(*first_).part(0, 100_B), whole(same).part(99, 100_B)).wait(kBound);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::invalid);
}

}  // namespace
}  // namespace headrace
