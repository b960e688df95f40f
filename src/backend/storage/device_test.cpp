// SPDX-License-Identifier: Apache-2.0
// Block devices as Files. Needs root and loop devices.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "backend/storage/storage_testing.h"
#include "headrace/cache.h"
#include "headrace/mover.h"
#include "headrace/random.h"
#include "tests/support/folder.h"
#include "tests/support/loop_device.h"

namespace headrace {
namespace {

using namespace test;

class DeviceTest : public testing::TestWithParam<std::uint32_t> {
 protected:
  void SetUp() override {
    if (!device_.problem().empty()) GTEST_SKIP() << device_.problem();
  }
  std::unique_ptr<File> open(FileOptions options = {}) {
    return open_file(device_.path(), options);
  }

  // The last page is a half one, if blocks are smaller.
  const std::uint64_t device_bytes_ = (3 << 20) + std::max(GetParam(), 2048U);
  const TempDir dir_;
  const Data data_ = random_bytes(device_bytes_, 1);
  const std::filesystem::path path_ = dir_.file("disk", data_);
  const LoopDevice device_{path_, GetParam()};
};

INSTANTIATE_TEST_SUITE_P(Blocks, DeviceTest, testing::Values(512, 4096));

TEST_P(DeviceTest, OpenedDevice_HasItsSizeAndBlock) {
  const auto file = open();
  EXPECT_EQ(file->size(), Bytes{device_bytes_});
  EXPECT_TRUE(file->direct());
  EXPECT_EQ(file->alignment().offset, GetParam());
  EXPECT_EQ(file->node(), kDisk);
}

TEST_P(DeviceTest, DeviceWithoutBytes_IsAbsent) {
  const LoopDevice empty{dir_.file("empty", {}), GetParam()};
  if (!empty.problem().empty()) GTEST_SKIP() << empty.problem();
  const auto opened = File::open(small_machine(), empty.path());
  ASSERT_FALSE(opened.has_value());
  EXPECT_EQ(opened.error().code, ErrorCode::absent);
}

TEST_P(DeviceTest, AnyRange_IsReadToTheLastByte) {
  for (const bool threads : {false, true}) {
    const auto backend = open_or_die({.queue = queue_of(threads)});
    const auto file = open();
    Random random(1);
    for (int i = 0; i < 60; ++i) {
      const std::uint64_t length = 1 + random.below(i % 2 == 0 ? 9000 : 1 << 20);
      const std::uint64_t offset =
          i % 3 == 0 ? device_bytes_ - length : random.below(device_bytes_ - length);
      Data back(length + 1);
      const std::span<std::byte> target(back.data() + i % 2, length);
      const MemoryRange memory(target, kDram);
      const Status read = copy_now(*backend, whole(memory), {file.get(), offset, Bytes{length}});
      ASSERT_TRUE(read) << read.error().message;
      ASSERT_TRUE(
          same(std::span(back).subspan(i % 2, length), std::span(data_).subspan(offset, length)))
          << offset << " " << length;
    }
  }
}

TEST_P(DeviceTest, AnyRange_IsWrittenAndItsNeighboursStay) {
  const auto backend = open_or_die({});
  const auto file = open({.writable = true});
  Data expected = data_;
  Random random(2);
  for (int i = 0; i < 30; ++i) {
    const std::uint64_t length = 1 + random.below(i % 2 == 0 ? 9000 : 300'000);
    const std::uint64_t offset =
        i % 3 == 0 ? device_bytes_ - length : random.below(device_bytes_ - length);
    Data bytes = random_bytes(length, 100 + static_cast<std::uint64_t>(i));
    const MemoryRange memory(bytes, kDram);
    const Status wrote = copy_now(*backend, {file.get(), offset, Bytes{length}}, whole(memory));
    ASSERT_TRUE(wrote) << wrote.error().message;
    std::copy(bytes.begin(), bytes.end(), expected.begin() + static_cast<std::ptrdiff_t>(offset));
    Data back(device_bytes_);
    const MemoryRange all(back, kDram);
    ASSERT_TRUE(copy_now(*backend, whole(all), whole(*file)));
    ASSERT_TRUE(same(back, expected)) << offset << " " << length;
  }
  ASSERT_TRUE(file->sync());
  EXPECT_TRUE(same(contents(path_), expected));
}

TEST_P(DeviceTest, PagesOfAWritableCache_AreOnTheDeviceAfterSync) {
  const TestFolder folder;
  const Machine machine =
      *Machine::discover({.gpu_driver = false, .storage = {folder.root().string()}});
  const Backends backends = *Backends::open(machine);
  Mover mover(machine, backends);
  const NodeId dram = machine.of_kind(NodeKind::dram).front()->id;
  const auto file = *File::open(machine, device_.path(), {.writable = true});
  const auto cache = *Cache::create(mover, {.budgets = {{dram, 1_MiB}},
                                            .placement = place::always(dram),
                                            .shards = 1,
                                            .writable = true});
  Data expected = data_;
  for (std::uint64_t at = 0; at < device_bytes_; at += 8192) {
    const std::uint64_t length = std::min<std::uint64_t>(8192, device_bytes_ - at);
    Block page = cache->access({file.get(), at, Bytes{length}}, {.write = true});
    const auto bytes = page.wait_to_write();
    ASSERT_TRUE(bytes) << bytes.error().message;
    ASSERT_TRUE(same(*bytes, std::span(data_).subspan(at, length)));
    (*bytes)[length - 1] = expected[at + length - 1] = static_cast<std::byte>(at >> 13);
  }
  const Status safe = cache->sync();
  ASSERT_TRUE(safe) << safe.error().message;
  EXPECT_TRUE(same(contents(path_), expected));
  EXPECT_TRUE(cache->forget(*file));
}

TEST_P(DeviceTest, DeviceInUse_CanBeReadAndNotOpenedWritable) {
  const auto held = open({.writable = true});
  const auto second = File::open(small_machine(), device_.path(), {.writable = true});
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, ErrorCode::denied);
  EXPECT_NE(second.error().message.find("is in use"), std::string::npos) << second.error().message;
  EXPECT_TRUE(open());
  const int mount = ::open(device_.path().c_str(), O_RDONLY | O_EXCL | O_CLOEXEC);
  EXPECT_LT(mount, 0) << "a mount would succeed";
}

TEST_P(DeviceTest, ReadOnlyDevice_CanBeReadAndNotOpenedWritable) {
  const LoopDevice device(dir_.file("other", data_), GetParam(), O_RDONLY);
  ASSERT_EQ(device.problem(), "");
  EXPECT_EQ(open_file(device.path(), {})->size(), Bytes{device_bytes_});
  const auto file = File::open(small_machine(), device.path(), {.writable = true});
  ASSERT_FALSE(file);
  EXPECT_EQ(file.error().code, ErrorCode::denied);
}

TEST_P(DeviceTest, ClosedFile_ReleasesTheDevice) {
  open({.writable = true});
  EXPECT_TRUE(open({.writable = true}));
}

TEST_P(DeviceTest, Version_IsUnsupported) {
  const auto now = open()->version();
  ASSERT_FALSE(now);
  EXPECT_EQ(now.error().code, ErrorCode::unsupported);
}

TEST_P(DeviceTest, GrownDevice_HasItsNewPartAfterUpdateSize) {
  const auto file = open();
  std::filesystem::resize_file(path_, 2 * device_bytes_);
  ASSERT_TRUE(device_.take_size());
  EXPECT_EQ(file->size(), Bytes{device_bytes_});
  EXPECT_EQ(file->update_size(), Bytes{2 * device_bytes_});
  Data back(2 * device_bytes_);
  const MemoryRange memory(back, kDram);
  ASSERT_TRUE(copy_now(*open_or_die({}), whole(memory), whole(*file)));
  EXPECT_TRUE(same(std::span(back).first(device_bytes_), data_));
}

TEST_P(DeviceTest, ShrunkDevice_IsAnIoError) {
  const auto file = open({.writable = true});
  std::filesystem::resize_file(path_, 1 << 20);
  ASSERT_TRUE(device_.take_size());
  const auto backend = open_or_die({});
  Data back(device_bytes_);
  const MemoryRange memory(back, kDram);
  EXPECT_EQ(copy_now(*backend, whole(memory), whole(*file)).error().code, ErrorCode::io);
  EXPECT_EQ(copy_now(*backend, whole(*file), whole(memory)).error().code, ErrorCode::io);
  ASSERT_TRUE(copy_now(*backend, {&memory, 0, 1_MiB}, {file.get(), 0, 1_MiB}));
  EXPECT_TRUE(same(std::span(back).first(1 << 20), std::span(data_).first(1 << 20)));
}

// A device that gives a part of each request is no device that has shrunk.
TEST_P(DeviceTest, ShortReads_AreContinued) {
  std::atomic<int> requests = 0;
  const auto backend = open_or_die(with_faults(false, [&](const storage::Request& request) {
    ++requests;
    return Fault{.at_most = requests % 2 == 0 ? 100 : request.bytes};
  }));
  const auto file = open();
  Data back(device_bytes_);
  const MemoryRange memory(back, kDram);
  const Status read = copy_now(*backend, whole(memory), whole(*file));
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(back, data_);
}

}  // namespace
}  // namespace headrace
