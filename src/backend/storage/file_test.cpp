// SPDX-License-Identifier: Apache-2.0
#include "headrace/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backend/storage/storage_testing.h"
#include "tests/support/child.h"

namespace headrace {
namespace {

using namespace test;

ErrorCode code_of(const std::filesystem::path& path, FileOptions options = {}) {
  const auto file = File::open(small_machine(), path, options);
  EXPECT_FALSE(file) << path;
  if (file) return ErrorCode::timed_out;
  EXPECT_EQ(file.error().message.find('\n'), std::string::npos) << file.error().message;
  return file.error().code;
}

TEST(File, KnowsItsSizeNodeAndAlignment) {
  const TempDir dir;
  const auto path = dir.file("a", random_bytes(10'001, 1));
  EXPECT_EQ(open_file(path, {.direct = false})->direct_fd(), -1);
  const auto empty = open_file(dir.file("empty", {}), {});
  EXPECT_EQ(empty->size(), 0_B);
  EXPECT_EQ(empty->page_cache_residency(), 0_B);
  EXPECT_TRUE(empty->drop_page_cache());
  const auto file = open_file(path, {});
  EXPECT_EQ(file->size(), 10'001_B);
  EXPECT_EQ(file->node(), kDisk);
  EXPECT_EQ(file->memory(), nullptr);
  EXPECT_FALSE(file->writable());
  EXPECT_TRUE(std::has_single_bit(file->alignment().offset));
  EXPECT_TRUE(std::has_single_bit(file->alignment().memory));
}

TEST(File, GrowsWhenItsSizeIsUpdated_AndNeverShrinks) {
  const TempDir dir;
  const Data data = random_bytes(20'000, 1);
  const auto path = dir.file("a", data);
  std::filesystem::resize_file(path, 10'001);
  const auto file = open_file(path, {.writable = true});
  Data back(20'000);
  const MemoryRange memory(back, kDram);
  const auto backend = open_or_die({});
  dir.file("a", data);  // the same file, longer
  const Extent all{file.get(), 0, 20'000_B};
  EXPECT_FALSE(all.valid());
  EXPECT_EQ(file->size(), 10'001_B);
  EXPECT_EQ(file->update_size(), 20'000_B);
  ASSERT_TRUE(all.valid());
  ASSERT_TRUE(copy_now(*backend, whole(memory), all));
  EXPECT_EQ(back, data);
  ASSERT_TRUE(copy_now(*backend, {file.get(), 15'000, 5'000_B}, {&memory, 0, 5'000_B}));
  const Data written = contents(path);
  EXPECT_TRUE(same(std::span(written).subspan(15'000), std::span(data).first(5'000)));
  std::filesystem::resize_file(path, 100);
  EXPECT_EQ(file->update_size(), 20'000_B);
  const Status cut = copy_now(*backend, whole(memory), all);
  ASSERT_FALSE(cut);
  EXPECT_EQ(cut.error().code, ErrorCode::io);
}

TEST(File, RefusesWhatIsNoRegularFile) {
  const TempDir dir;
  EXPECT_EQ(code_of(""), ErrorCode::invalid);
  EXPECT_EQ(code_of(dir.path()), ErrorCode::invalid);
  EXPECT_EQ(code_of(dir.path(), {.writable = true}), ErrorCode::invalid);
  EXPECT_EQ(code_of("/dev/null"), ErrorCode::invalid);
  ASSERT_EQ(mkfifo((dir.path() / "fifo").c_str(), 0600), 0);
  EXPECT_EQ(code_of(dir.path() / "fifo"), ErrorCode::invalid);  // without waiting for a writer
  EXPECT_EQ(code_of(dir.path() / "fifo", {.writable = true}), ErrorCode::invalid);
}

TEST(File, NamesWhatIsMissing) {
  EXPECT_EQ(code_of("/no/such/file"), ErrorCode::absent);
  const auto file = File::open(small_machine(), "/no/such\nfile \"x\"");
  ASSERT_FALSE(file);
  EXPECT_NE(file.error().message.find(R"("/no/such\x0afile \"x\"")"), std::string::npos)
      << file.error().message;
}

TEST(File, DeniedWithoutPermission) {
  const TempDir dir;
  const auto path = dir.file("secret", random_bytes(10, 1));
  std::filesystem::permissions(dir.path(), std::filesystem::perms::all);
  std::filesystem::permissions(path, std::filesystem::perms::none);
  // Root may open everything, so a child process asks as another user.
  EXPECT_EQ(status_of_child([&] {
              const bool user = geteuid() != 0 || setuid(65534) == 0;
              return user && code_of(path) == ErrorCode::denied;
            }),
            0);
}

TEST(File, NeedsAStorageNode) {
  const TempDir dir;
  Machine machine = small_machine();
  std::erase_if(machine.nodes, [](const Node& n) { return n.kind == NodeKind::storage; });
  const auto file = File::open(machine, dir.file("a", random_bytes(10, 1)));
  ASSERT_FALSE(file);
  EXPECT_EQ(file.error().code, ErrorCode::unsupported);
}

TEST(File, TakesTheNodeWhosePathIsOnTheSameDevice) {
  const TempDir dir;
  Machine machine = small_machine();
  machine.nodes.back().path = "/proc";  // another device
  machine.nodes.push_back({.id = NodeId{1001},
                           .kind = NodeKind::storage,
                           .reason = "test",
                           .name = "other",
                           .path = dir.path()});
  const auto file = File::open(machine, dir.file("a", random_bytes(10, 1)));
  ASSERT_TRUE(file);
  EXPECT_EQ((*file)->node(), NodeId{1001});
}

TEST(File, SharedMemoryIsNotPastThePageCache) {
  if (access("/dev/shm", W_OK) != 0) GTEST_SKIP() << "no /dev/shm";
  const TempDir dir("/dev/shm");
  EXPECT_FALSE(open_file(dir.file("a", random_bytes(10, 1)), {})->direct());
}

TEST(File, ResidencyFollowsThePageCache) {
  const TempDir dir;
  const Data data = random_bytes(1 << 20, 1);
  const auto file = open_file(dir.file("a", data), {.writable = true});
  Data back(data.size());
  ASSERT_EQ(pread(file->buffered_fd(), back.data(), back.size(), 0), std::ssize(back));
  EXPECT_EQ(file->page_cache_residency(), 1_MiB);
  ASSERT_TRUE(file->drop_page_cache());  // dirty pages are written first
  if (file->direct()) {
    EXPECT_EQ(file->page_cache_residency(), 0_B);
    EXPECT_EQ(file->page_cache_residency(), 0_B) << "asking must not touch";
  }
}

TEST(File, ResidencyOfARange_CountsOnlyThat) {
  const TempDir dir;
  const auto file = open_file(dir.file("a", random_bytes((1 << 20) - 100, 1)), {.writable = true});
  Data back(file->size().value);
  ASSERT_EQ(pread(file->buffered_fd(), back.data(), back.size(), 0), std::ssize(back));
  EXPECT_EQ(file->page_cache_residency(64 << 10, 128_KiB), 128_KiB);
  EXPECT_EQ(file->page_cache_residency((1 << 20) - 4096, 1_MiB), Bytes{4096 - 100});
  EXPECT_EQ(file->page_cache_residency(1 << 20, 1_MiB), 0_B);
  EXPECT_EQ(file->page_cache_residency(0, Bytes{~std::uint64_t{0}}), file->size());
  EXPECT_EQ(file->page_cache_residency(100, 1_MiB).error().code, ErrorCode::invalid);
}

TEST(File, OutOfDescriptorsIsExhausted) {
  const TempDir dir;
  const auto path = dir.file("a", random_bytes(10, 1));
  std::vector<int> taken;
  for (int fd = dup(0); fd >= 0 && taken.size() < 100'000; fd = dup(0)) taken.push_back(fd);
  const auto none = File::open(small_machine(), path);
  if (!taken.empty()) {
    close(taken.back());
    taken.pop_back();
  }
  const auto one = File::open(small_machine(), path);
  for (const int fd : taken) close(fd);
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, ErrorCode::exhausted);
  ASSERT_FALSE(one);
  EXPECT_EQ(one.error().code, ErrorCode::exhausted);
}

// Runs in a child that gives up root, because to root no file is foreign.
TEST(FileTest, ResidencyOfAForeignFileIsDenied) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root to become somebody else";
  TempDir dir;
  const auto path = dir.file("foreign", random_bytes(4096, 1));
  std::filesystem::permissions(path, std::filesystem::perms(0444));
  const auto file = open_file(path, {});
  EXPECT_EQ(status_of_child([&] {
              if (setresgid(65534, 65534, 65534) != 0) return false;
              if (setresuid(65534, 65534, 65534) != 0) return false;
              const auto found = file->page_cache_residency();
              return !found && found.error().code == ErrorCode::denied;
            }),
            0);
  EXPECT_TRUE(file->page_cache_residency().has_value());
}

}  // namespace
}  // namespace headrace
