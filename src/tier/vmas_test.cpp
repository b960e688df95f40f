// SPDX-License-Identifier: Apache-2.0
#include "tier/vmas.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/sysmacros.h>

#include <cerrno>
#include <new>
#include <string>
#include <vector>

#include "tier/planted_testing.h"

namespace headrace {
namespace {

std::vector<Vma> read_all(const std::vector<std::string>& lines) {
  std::vector<Vma> vmas;
  const std::function<void(const Vma&)> each = [&](const Vma& vma) { vmas.push_back(vma); };
  VmaReader reader(each);
  for (const std::string& line : lines) reader.line(line);
  reader.finish();
  return vmas;
}

TEST(Vmas, AreReadFromTheLinesOfTheKernel) {
  const auto vmas = read_all({
      "7f0000000000-7f0000200000 rw-p 00000000 00:00 0 ",
      "Size:               2048 kB",
      "Referenced:          128 kB",
      "AnonHugePages:         0 kB",
      "VmFlags: rd wr mr mw me ac dd sd",
      "7f0000200000-7f0000400000 rw-s 00000000 00:01 1033   /memfd:a b (deleted)",
      "Referenced:            0 kB",
      "AnonHugePages:      2048 kB",
      "VmFlags: rd wr sh lo ht",
      "ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0   [vsyscall]",
  });
  ASSERT_EQ(vmas.size(), 3u);
  EXPECT_EQ(vmas[0].begin, 0x7f0000000000u);
  EXPECT_EQ(vmas[0].end, 0x7f0000200000u);
  EXPECT_EQ(vmas[0].referenced, 128_KiB);
  EXPECT_TRUE(vmas[0].undumped);
  EXPECT_TRUE(vmas[0].accessible);
  EXPECT_EQ(vmas[0].file, FileId{});
  EXPECT_EQ(vmas[1].file, (FileId{makedev(0, 1), 1033}));
  EXPECT_FALSE(vmas[2].accessible);
  EXPECT_FALSE(vmas[0].shared || vmas[0].huge || vmas[0].hugetlb || vmas[0].locked);
  EXPECT_TRUE(vmas[1].shared && vmas[1].huge && vmas[1].hugetlb && vmas[1].locked);
  EXPECT_FALSE(vmas[1].undumped);
  EXPECT_EQ(vmas[2].begin, 0xffffffffff600000u);
}

TEST(Vmas, AreNotLedAstrayByLinesOfAnotherKind) {
  EXPECT_TRUE(
      read_all({"", "0", "abc", "7f-", "7f00-7f01", "Referenced: 4 kB", "VmFlags: dd"}).empty());
  EXPECT_EQ(read_all({"1000-2000 rw-p 0 0:0 0", "Referenced: kB", "VmFlags:"}).size(), 1u);
}

TEST(Vmas, OfThisProcessAreOrderedAndHoldItsMemory) {
  const test::Trackable memory(HotnessKind::referenced, 2_MiB);
  ASSERT_EQ(madvise(memory.bytes().data(), memory.bytes().size(), MADV_DONTDUMP), 0);
  const auto begin = reinterpret_cast<std::uintptr_t>(memory.bytes().data());
  std::uintptr_t last = 0;
  bool found = false;
  ASSERT_TRUE(for_each_vma_in_detail(system_kernel(), [&](const Vma& vma) {
    EXPECT_GE(vma.begin, last);
    last = vma.end;
    if (vma.begin == begin) found = vma.undumped && vma.end == begin + memory.bytes().size();
  }));
  EXPECT_TRUE(found);
}

TEST(Vmas, ThatCannotBeReadAreAnErrorWithTheReason) {
  struct NoSmaps final : Kernel {
    int error = EACCES;
    int open(const char*, int) override { return -error; }
  } kernel;
  const auto reason = [&](int error) {
    kernel.error = error;
    const auto status = for_each_vma_in_detail(kernel, [](const Vma&) {});
    EXPECT_FALSE(status);
    return status.error();
  };
  EXPECT_EQ(reason(EACCES).code, ErrorCode::denied);
  EXPECT_NE(reason(EACCES).message.find("smaps"), std::string::npos);
  EXPECT_EQ(reason(EMFILE).code, ErrorCode::exhausted);
  EXPECT_EQ(reason(EMFILE).message.find("CONFIG"), std::string::npos);
  EXPECT_EQ(reason(ENOENT).code, ErrorCode::unsupported);
  EXPECT_NE(reason(ENOENT).message.find("CONFIG"), std::string::npos);
}

TEST(Vmas, LeaveNoDescriptorWhenMemoryRunsOut) {
  struct Counting final : Kernel {
    int last = -1;
    int open(const char* path, int flags) override { return last = Kernel::open(path, flags); }
  } kernel;
  const auto status = for_each_vma(kernel, [](const Vma&) { throw std::bad_alloc(); });
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::exhausted);
  EXPECT_EQ(fcntl(kernel.last, F_GETFD), -1) << "it is still open";
}

}  // namespace
}  // namespace headrace
