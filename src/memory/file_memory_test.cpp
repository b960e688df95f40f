// SPDX-License-Identifier: Apache-2.0
#include "memory/file_memory.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "headrace/buffer.h"
#include "memory/memory.h"
#include "memory/memory_testing.h"
#include "tests/support/expect.h"

namespace headrace {
namespace {

using test::expect_refused;

// This host with a temporary folder as its storage node.
class FileMemory : public testing::Test {
 protected:
  FileMemory() {
    std::string name = std::filesystem::temp_directory_path() / "headrace-XXXXXX";
    folder_ = ::mkdtemp(name.data());
    machine_.nodes.push_back({.id = kDisk,
                              .kind = NodeKind::storage,
                              .reason = "test",
                              .name = "disk",
                              .path = folder_});
  }
  ~FileMemory() override { std::filesystem::remove_all(folder_); }

  static constexpr NodeId kDisk{77};
  std::string folder_;
  Machine machine_ = this_host();
};

TEST_F(FileMemory, IsZeroedKeepsWhatIsWrittenAndLeavesNothing) {
  {
    const auto buffer = allocate(machine_, 64_MiB + 1_B, Placement::on(NodeKind::storage));
    ASSERT_TRUE(buffer) << buffer.error().message;
    EXPECT_TRUE(std::filesystem::is_empty(folder_)) << "the file has no name";
    const auto bytes = (*buffer)->bytes();
    ASSERT_EQ(bytes.size(), (64_MiB).value + 1);
    for (const std::size_t at : {std::size_t{0}, bytes.size() / 2, bytes.size() - 1}) {
      EXPECT_EQ(bytes[at], std::byte{0});
      bytes[at] = std::byte{7};
      EXPECT_EQ(bytes[at], std::byte{7});
    }
    EXPECT_EQ((*buffer)->placement().nodes, (std::vector<NodeWeight>{{kDisk, 1}}));
    EXPECT_TRUE(machine_.find((*buffer)->node())->byte_addressable()) << "cores copy it";
    EXPECT_EQ((*buffer)->page_size(), PageSize::base);
    EXPECT_EQ((*buffer)->fallback(), "transparent: pages of a file are base pages");
  }
}

TEST_F(FileMemory, IsAligned) {
  for (const Bytes align : {1_B, 4_KiB, 1_GiB}) {
    const auto buffer = allocate(machine_, 100_KiB, Placement::on(kDisk), align);
    ASSERT_TRUE(buffer) << buffer.error().message;
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>((*buffer)->memory()) % align.value, 0U);
    std::ranges::fill((*buffer)->bytes(), std::byte{1});
  }
}

TEST_F(FileMemory, SaysWhatIsFreeWhenItDoesNotFit) {
  const auto none = allocate(machine_, Bytes{std::uint64_t{1} << 55}, Placement::on(kDisk));
  expect_refused(none, ErrorCode::exhausted, " on disk; free there: ");
}

TEST_F(FileMemory, ALimitOnFilesIsNotTheEndOfTheProcess) {
  const auto limited = [&] {
    const rlimit limit{1 << 20, 1 << 20};
    if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) return 1;
    const auto none = allocate(machine_, 4_MiB, Placement::on(kDisk));
    if (none || none.error().code != ErrorCode::exhausted) return 2;
    return allocate(machine_, 1_MiB, Placement::on(kDisk)) ? 0 : 3;
  };
  EXPECT_EXIT(std::_Exit(limited()), testing::ExitedWithCode(0), "");
}

TEST_F(FileMemory, NeedsAFolder) {
  machine_.nodes.back().path = folder_ + "/none";
  EXPECT_EQ(allocate(machine_, 1_MiB, Placement::on(kDisk)).error().code, ErrorCode::absent);
  machine_.nodes.back().path = "";
  const auto none = allocate(machine_, 1_MiB, Placement::on(kDisk));
  EXPECT_EQ(none.error().message,
            "no folder is known on disk; discover this host's machine with a storage path");
}

TEST_F(FileMemory, DoesNotMove) {
  auto buffer = allocate(machine_, 1_MiB, Placement::on(kDisk)).value();
  EXPECT_TRUE(buffer->in_file());
  EXPECT_EQ(relocate(machine_, *buffer, on_first(machine_)).error().code, ErrorCode::unsupported);
  const Machine other = this_host();  // a machine without the storage node
  EXPECT_EQ(relocate(other, *buffer, on_first(other)).error().code, ErrorCode::unsupported);
  buffer = allocate(machine_, 1_MiB, on_first(machine_)).value();
  EXPECT_EQ(relocate(machine_, *buffer, Placement::on(kDisk)).error().code, ErrorCode::unsupported);
}

TEST(SharedBuffer, OtherMapping_ReadsWhatIsWritten) {
  const Machine machine = this_host();
  for (const PageSize pages : {PageSize::base, PageSize::transparent, PageSize::huge_2m}) {
    Placement placement = on_first(machine);
    placement.pages = pages;
    const auto shared = allocate_shared(machine, 4_MiB + 1_B, placement);
    ASSERT_TRUE(shared) << shared.error().message;
    const auto bytes = shared->buffer->bytes();
    const auto residency = where(bytes);
    EXPECT_EQ(residency->absent, 0U);
    EXPECT_EQ(residency->pages.at(machine.nodes.front().id), residency->total());
    const auto mapped = map_shared(shared->file.get());
    ASSERT_TRUE(mapped) << mapped.error().message;
    EXPECT_GE(mapped->length(), 4_MiB + 1_B);
    EXPECT_EQ(mapped->memory()[4096], std::byte{0});
    bytes[4096] = std::byte{7};
    EXPECT_EQ(mapped->memory()[4096], std::byte{7});
  }
}

TEST(SharedBuffer, OtherProcess_CanNeitherWriteNorCut) {
  const Machine machine = this_host();
  const auto shared = allocate_shared(machine, 1_MiB, on_first(machine));
  ASSERT_TRUE(shared) << shared.error().message;
  const int file = shared->file.get();
  EXPECT_EQ(::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0), MAP_FAILED);
  EXPECT_NE(::ftruncate(file, 0), 0);
  EXPECT_NE(::pwrite(file, "x", 1, 0), 1);
}

TEST(SharedBuffer, ChildOfFork_HasNeitherMappingNorDescriptor) {
  const Machine machine = this_host();
  const auto shared = allocate_shared(machine, 1_MiB, on_first(machine));
  ASSERT_TRUE(shared) << shared.error().message;
  const pid_t child = ::fork();
  if (child == 0) {
    unsigned char resident = 0;
    const bool mapped = ::mincore(shared->buffer->bytes().data(), 4096, &resident) == 0;
    ::_exit(mapped || ::fcntl(shared->file.get(), F_GETFD) >= 0 ? 1 : 0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST(SharedBuffer, UnsealedFileAndNoBytes_AreRefused) {
  const Machine machine = this_host();
  const int plain = ::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  ASSERT_EQ(::ftruncate(plain, 4096), 0);
  EXPECT_EQ(map_shared(plain).error().code, ErrorCode::invalid);
  ::close(plain);
  EXPECT_EQ(allocate_shared(machine, 0_B, on_first(machine)).error().code, ErrorCode::invalid);
}

TEST_F(FileMemory, Storage_IsNotShared) {
  EXPECT_EQ(allocate_shared(machine_, 1_MiB, Placement::on(kDisk)).error().code,
            ErrorCode::unsupported);
}

}  // namespace
}  // namespace headrace
