// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/cache/stores/source.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <string>

namespace headrace::cache_bench {
namespace {

class Directory {
 public:
  Directory() {
    std::string name = (std::filesystem::temp_directory_path() / "headrace-XXXXXX").string();
    path_ = ::mkdtemp(name.data());
  }
  ~Directory() { std::filesystem::remove_all(path_); }
  std::filesystem::path operator/(std::string_view name) const { return path_ / name; }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

Machine machine_of(const Directory& directory) {
  DiscoverOptions options;
  options.storage = {directory.path()};
  return *Machine::discover(options);
}

TEST(Source, NoTwoWordsAreEqual) {
  std::set<std::uint64_t> words = {0};
  for (std::uint64_t offset = 0; offset < 80'000; offset += 8) words.insert(word_at(offset));
  EXPECT_EQ(words.size(), 10'001U);
}

TEST(Source, InMemoryEachWordIsWhereItBelongs) {
  const Source source = Source::in_memory(16, 256);
  EXPECT_EQ(source.blocks(), 16U);
  std::array<std::byte, 256> copy;
  for (std::uint64_t block = 0; block < 16; ++block) {
    ASSERT_TRUE(source.read(block, copy.data()));
    EXPECT_EQ(source.extent(block).length, Bytes{256});
    for (std::uint64_t at = 0; at < 256; at += 8) {
      EXPECT_TRUE(source.holds(block, at, copy.data()));
      EXPECT_TRUE(source.holds(block, at, source.memory(block)));
      EXPECT_FALSE(source.holds(block ^ 1, at, copy.data()));
    }
  }
}

TEST(Source, InAFileOfBlocksOfSeveralLengths) {
  const Directory directory;
  const auto path = directory / "words";
  ASSERT_TRUE(write_words(path, 6 * 4096));
  const auto source = Source::in_file(machine_of(directory), path, {4096, 3 * 4096, 2 * 4096});
  ASSERT_TRUE(source) << source.error().message;
  EXPECT_EQ(source->place(2).offset, 4U * 4096);
  EXPECT_EQ(source->memory(0), nullptr);
  alignas(4096) static std::array<std::byte, 3 * 4096> copy;
  for (std::uint64_t block = 0; block < 3; ++block) {
    ASSERT_TRUE(source->read(block, copy.data()));
    EXPECT_TRUE(source->holds(block, source->place(block).length - 8, copy.data()));
  }
}

TEST(Source, AFileTooShortIsAnError) {
  const Directory directory;
  ASSERT_TRUE(write_words(directory / "words", 4096));
  const auto source = Source::in_file(machine_of(directory), directory / "words", {4096, 4096});
  ASSERT_FALSE(source);
  EXPECT_EQ(source.error().code, ErrorCode::invalid);
}

TEST(WriteWords, MakesALongerFileOfAnInterruptedOne) {
  const Directory directory;
  const auto path = directory / "words";
  ASSERT_TRUE(write_words(path, 3 << 20));
  std::filesystem::resize_file(path, (1 << 20) + 5);
  ASSERT_TRUE(write_words(path, 2 << 20));
  EXPECT_EQ(std::filesystem::file_size(path), 2U << 20);
  std::ifstream file(path, std::ios::binary);
  for (std::uint64_t offset = 0; offset < 2 << 20; offset += 8) {
    std::uint64_t word = 0;
    file.read(reinterpret_cast<char*>(&word), sizeof word);
    ASSERT_EQ(word, word_at(offset)) << offset;
  }
}

TEST(WriteWords, SaysWhereItCannot) {
  const Status written = write_words("/nowhere/words", 4096);
  ASSERT_FALSE(written);
  EXPECT_EQ(written.error().code, ErrorCode::absent);
  EXPECT_NE(written.error().message.find("/nowhere/words"), std::string::npos);
}

}  // namespace
}  // namespace headrace::cache_bench
