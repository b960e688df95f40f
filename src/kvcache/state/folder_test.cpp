// SPDX-License-Identifier: Apache-2.0
// Torn, foreign, stale and hostile files, and who may open a folder.
#include "kvcache/state/folder.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <array>
#include <csignal>
#include <cstring>
#include <fstream>
#include <functional>

#include "kvcache/kvcache_testing.h"

namespace headrace {
namespace {

using namespace test;

constexpr std::size_t kBlocks = 8;

struct KvFolder : testing::Test {
  // All blocks are on SSD once the store is destroyed.
  void fill() {
    rig.open({4}, kBlocks);
    keys = kvcache::keys(rig.geometry, tokens(4 * kBlocks));
    for (const kvcache::Key& key : keys) ASSERT_TRUE(rig.put({&key, 1}).has_value());
    ASSERT_TRUE(rig.store->flush().has_value());
    rig.store.reset();
  }
  Error refusal(const kvcache::StoreOptions& options) {
    const auto made = kvcache::Store::open(*rig.mover, options);
    return made ? Error{} : made.error();
  }
  // Writes `text` at `offset` of a file of the folder.
  void scribble(const char* file, std::uint64_t offset, std::string_view text) {
    const int fd = ::open((rig.folder.path / file).c_str(), O_WRONLY);
    ASSERT_GE(fd, 0);
    EXPECT_EQ(pwrite(fd, text.data(), text.size(), static_cast<off_t>(offset)),
              static_cast<ssize_t>(text.size()));
    close(fd);
  }
  std::uint64_t header_bytes() {
    return (std::filesystem::file_size(rig.folder.path / "index") - 4096) / kBlocks;
  }
  // Loads the blocks one by one, checks each, and returns how many the store has.
  std::size_t served() {
    std::size_t count = 0;
    for (const kvcache::Key& key : keys) {
      if (rig.get({&key, 1}).has_value()) ++count;
    }
    return count;
  }

  KvRig rig;
  std::vector<kvcache::Key> keys;
};

// A full disk or a power failure may end the first write to a folder anywhere.
TEST_F(KvFolder, InterruptedSuperblock_LeavesAFolderThatOpens) {
  const auto before = std::signal(SIGXFSZ, SIG_IGN);
  rlimit usual{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &usual), 0);
  for (const rlim_t bytes : {0, 20}) {
    const rlimit short_files{.rlim_cur = bytes, .rlim_max = usual.rlim_max};
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &short_files), 0);
    const Error refused = refusal(rig.options({4}, kBlocks));
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &usual), 0);
    EXPECT_FALSE(refused.message.empty());
    rig.open({4}, kBlocks);
    rig.store.reset();
    for (const char* const file : {"index", "blocks", "lock"}) {
      std::filesystem::remove(rig.folder.path / file);
    }
  }
  std::signal(SIGXFSZ, before);
}

TEST_F(KvFolder, OfAnotherSizeKeepsWhatFits) {
  fill();
  rig.open({4}, kBlocks / 2);
  EXPECT_EQ(rig.store->stats().reopened, kBlocks / 2);
  EXPECT_EQ(served(), kBlocks / 2);
  rig.open({4}, 2 * kBlocks);
  EXPECT_EQ(rig.store->stats().reopened, kBlocks / 2);
  EXPECT_EQ(served(), kBlocks / 2);
}

TEST_F(KvFolder, DamagedBlocksAreDroppedAndNotServed) {
  const auto blocks = rig.folder.path / "blocks";
  const std::vector<std::pair<std::size_t, std::function<void()>>> damages = {
      {1, [&] { scribble("blocks", 2 * 4096 + 1499, "torn"); }},
      {kBlocks - 3, [&] { std::filesystem::resize_file(blocks, 3 * 4096 + 7); }},
      {2, [&] {  // two blocks change places
         std::string bytes(2 * 4096, '\0');
         std::ifstream(blocks, std::ios::binary).read(bytes.data(), 2 * 4096);
         scribble("blocks", 0, bytes.substr(4096));
         scribble("blocks", 4096, bytes.substr(0, 4096));
       }}};
  for (const auto& [lost, damage] : damages) {
    SCOPED_TRACE(lost);
    fill();
    damage();
    rig.open({4}, kBlocks);
    EXPECT_EQ(served(), kBlocks - lost);
    EXPECT_EQ(rig.store->stats().damaged, lost);
    EXPECT_LT(rig.store->match(keys).size(), kBlocks);
    ASSERT_TRUE(rig.store->clear() && rig.store->flush());
  }
}

// The list forgets it, so it is missed once and not after each start.
TEST_F(KvFolder, DamagedBlock_IsNotFoundByTheNextProcess) {
  fill();
  scribble("blocks", 2 * 4096 + 1499, "torn");
  rig.open({4}, kBlocks);
  EXPECT_EQ(served(), kBlocks - 1);
  EXPECT_TRUE(rig.store->flush().has_value());
  rig.open({4}, kBlocks);
  EXPECT_EQ(rig.store->stats().reopened, kBlocks - 1);
  EXPECT_EQ(served(), kBlocks - 1);
  EXPECT_EQ(rig.store->stats().damaged, 0u);
}

// An error of the disk may pass: the block may be there for the next process.
TEST_F(KvFolder, BlockThatCannotBeRead_StaysListed) {
  fill();
  rig.open({4}, kBlocks);
  rig.files->fail_chance = 1;
  EXPECT_EQ(served(), 0u);
  rig.files->fail_chance = 0;
  rig.open({4}, kBlocks);
  EXPECT_EQ(rig.store->stats().reopened, kBlocks);
  EXPECT_EQ(served(), kBlocks);
}

// Blocks would take its space on a disk that gets full.
TEST_F(KvFolder, List_HasItsSpaceFromTheStart) {
  rig.open({4}, 1000);
  const auto index = rig.folder.path / "index";
  struct stat status{};
  ASSERT_EQ(stat(index.c_str(), &status), 0);
  EXPECT_GE(status.st_blocks * 512, status.st_size);
}

// It would take the space of blocks.
TEST_F(KvFolder, List_HasNoSpaceForBlocksThatExceedTheDisk) {
  KvRig large;
  large.geometry = {.layers = 1, .kv_heads = 1, .head_dim = 1U << 28, .block_tokens = 1};
  large.slot = large.geometry.block();
  const std::uint64_t disk = std::filesystem::space(large.folder.path).capacity;
  const std::size_t slots = 8192;
  if (disk == 0 || disk > large.slot.value * slots / 2) GTEST_SKIP() << "a disk of " << disk;
  large.open({}, slots);
  struct stat status{};
  ASSERT_EQ(stat((large.folder.path / "index").c_str(), &status), 0);
  EXPECT_LE(status.st_blocks * 512, status.st_size / 2 + 8192);
}

TEST_F(KvFolder, DamagedHeadersAreNotListed) {
  fill();
  for (std::uint64_t slot = 0; slot < kBlocks; slot += 2) {
    scribble("index", 4096 + slot * header_bytes() + 9 * slot, "x");
  }
  rig.open({4}, kBlocks);
  EXPECT_EQ(rig.store->stats().reopened, kBlocks / 2);
  EXPECT_EQ(served(), kBlocks / 2);
}

TEST_F(KvFolder, OneHeaderInTheSlotOfAnotherIsNotListed) {
  fill();
  std::string header(header_bytes(), '\0');
  std::ifstream file(rig.folder.path / "index", std::ios::binary);
  file.seekg(4096);
  file.read(header.data(), static_cast<std::streamsize>(header.size()));
  scribble("index", 4096 + header_bytes(), header);
  rig.open({4}, kBlocks);
  EXPECT_EQ(rig.store->stats().reopened, kBlocks - 1);
  rig.store.reset();
  scribble("index", 4096, std::string(header_bytes(), '\0'));
  rig.open({4}, kBlocks);
  EXPECT_EQ(rig.store->stats().reopened, kBlocks - 2) << "not even where its own is gone";
}

// A crash may leave the header of a block's old slot beside the header of its new slot.
TEST_F(KvFolder, TwoHeadersOfABlock_TheYoungerCounts) {
  fill();
  std::array<std::string, 2> headers;
  std::array<kvcache::Key, 2> listed;  // in slots 0 and 1
  for (std::size_t slot = 0; slot < 2; ++slot) {
    headers[slot].resize(header_bytes());
    std::ifstream file(rig.folder.path / "index", std::ios::binary);
    file.seekg(static_cast<std::streamoff>(4096 + slot * header_bytes()));
    file.read(headers[slot].data(), static_cast<std::streamsize>(header_bytes()));
    std::memcpy(&listed[slot], headers[slot].data() + 32, sizeof(kvcache::Key));
  }
  // Slots are freed in the order of keys, and the last freed slot is used first.
  const std::size_t old = listed[0] < listed[1] ? 0 : 1;
  rig.open({4}, kBlocks);
  ASSERT_EQ(rig.store->remove(listed).value(), 2u);
  ASSERT_TRUE(rig.store->flush().has_value());
  ASSERT_EQ(rig.put({&listed[old], 1})->stored, 1u);
  ASSERT_TRUE(rig.store->flush().has_value());
  rig.store.reset();
  scribble("index", 4096 + old * header_bytes(), headers[old]);
  scribble("blocks", old * 4096 + 100, "torn");
  rig.open({4}, kBlocks);
  EXPECT_EQ(rig.store->stats().reopened, kBlocks - 1);
  EXPECT_TRUE(rig.get({&listed[old], 1}).has_value());
}

TEST_F(KvFolder, IsRefusedWhereItIsSomethingElse) {
  fill();
  auto other = rig.options({4}, kBlocks);
  other.geometry.revision = "fine-tuned";
  EXPECT_EQ(refusal(other).code, ErrorCode::invalid);
  EXPECT_NE(refusal(other).message.find("another geometry"), std::string::npos);
  scribble("index", 8, "\x02");
  EXPECT_NE(refusal(rig.options({4}, kBlocks)).message.find("version 2"), std::string::npos);
  scribble("index", 0, "something");  // the headers are a store's
  EXPECT_NE(refusal(rig.options({4}, kBlocks)).message.find("is damaged"), std::string::npos);
  scribble("index", 4096, std::string(kBlocks * header_bytes(), 'x'));
  EXPECT_NE(refusal(rig.options({4}, kBlocks)).message.find("lists no KV blocks"),
            std::string::npos);
}

TEST_F(KvFolder, HostileFilesNeitherHangNorAreFollowed) {
  const auto index = rig.folder.path / "index";
  ASSERT_EQ(mkfifo(index.c_str(), 0600), 0);
  EXPECT_EQ(refusal(rig.options({4}, kBlocks)).code, ErrorCode::invalid);
  std::filesystem::remove(index);
  TemporaryFolder other;
  std::filesystem::remove(rig.folder.path / "blocks");
  std::filesystem::create_symlink(other.path / "target", rig.folder.path / "blocks");
  EXPECT_NE(refusal(rig.options({4}, kBlocks)).message, "");
  EXPECT_FALSE(std::filesystem::exists(other.path / "target"));
  std::filesystem::remove(rig.folder.path / "blocks");
  rig.folder.path /= "a/b";
  EXPECT_EQ(refusal(rig.options({4}, kBlocks)).code, ErrorCode::absent);
}

std::string text_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// A third-party file with the store's file name is neither truncated nor written.
TEST_F(KvFolder, BlocksOfSomebodyElseStayWhatTheyAre) {
  const auto blocks = rig.folder.path / "blocks";
  const std::string text = "the user's own " + std::string(3 * 4096 * kBlocks, 'x');
  std::ofstream(blocks) << text;
  const Error error = refusal(rig.options({4}, kBlocks));
  EXPECT_EQ(error.code, ErrorCode::invalid);
  EXPECT_NE(error.message.find("of no KV store"), std::string::npos) << error.message;
  EXPECT_EQ(text_of(blocks), text);
  EXPECT_FALSE(std::filesystem::exists(rig.folder.path / "index"));
  // A blank index does not prove that the blocks are ours either.
  std::ofstream(rig.folder.path / "index").close();
  EXPECT_EQ(refusal(rig.options({4}, kBlocks)).code, ErrorCode::invalid);
  EXPECT_EQ(text_of(blocks), text);
  std::filesystem::remove(blocks);
  fill();
}

TEST_F(KvFolder, FilesWithAnotherNameAreRefused) {
  fill();
  const TemporaryFolder other;
  for (const char* name : {"blocks", "index"}) {
    std::filesystem::create_hard_link(rig.folder.path / name, other.path / name);
    const std::string text = text_of(other.path / name);
    const Error error = refusal(rig.options({4}, kBlocks / 2));
    EXPECT_EQ(error.code, ErrorCode::invalid);
    EXPECT_NE(error.message.find("another name"), std::string::npos) << error.message;
    EXPECT_EQ(text_of(other.path / name), text);
    std::filesystem::remove(other.path / name);
  }
  rig.open({4}, kBlocks);
  EXPECT_EQ(served(), kBlocks);
}

// A user who needs the whole budget allocates the disk space first.
TEST_F(KvFolder, BlocksThatAreOnlyRoomAreTaken) {
  const int fd = ::open((rig.folder.path / "blocks").c_str(), O_WRONLY | O_CREAT, 0600);
  ASSERT_GE(fd, 0);
  EXPECT_EQ(posix_fallocate(fd, 0, 4096 * kBlocks), 0);
  close(fd);
  fill();
  rig.open({4}, kBlocks);
  EXPECT_EQ(served(), kBlocks);
}

// A process was killed while it made the folder, or the disk was full.
TEST_F(KvFolder, LeftBeforeItsFirstWriteIsMadeAnew) {
  std::ofstream(rig.folder.path / "index").close();
  std::filesystem::resize_file(rig.folder.path / "index", 1 << 20);
  EXPECT_EQ(refusal(rig.options({4}, kBlocks)).message, "");
  fill();
  rig.open({4}, kBlocks);
  EXPECT_EQ(served(), kBlocks);
}

// A process was killed between the draft of the index and its renaming.
TEST_F(KvFolder, DraftsAreRemovedFromAFolderOfAStoreOnly) {
  const auto draft = rig.folder.path / ".headrace-4711-0";
  const auto other = rig.folder.path / ".headrace-notes";
  for (const auto& path : {draft, other}) std::ofstream(path) << "text";
  std::ofstream(rig.folder.path / "blocks") << "of somebody";
  EXPECT_EQ(refusal(rig.options({4}, kBlocks)).code, ErrorCode::invalid);
  EXPECT_TRUE(std::filesystem::exists(draft));
  std::filesystem::remove(rig.folder.path / "blocks");
  fill();
  EXPECT_FALSE(std::filesystem::exists(draft));
  EXPECT_TRUE(std::filesystem::exists(other));
}

// A user who may write to the folder can write blocks that fit their checksums.
TEST_F(KvFolder, IsRefusedWhereOthersMayWrite) {
  std::filesystem::permissions(rig.folder.path, std::filesystem::perms{0777});
  const Error error = refusal(rig.options({4}, kBlocks));
  EXPECT_EQ(error.code, ErrorCode::denied);
  EXPECT_NE(error.message.find("chmod 700"), std::string::npos) << error.message;
  EXPECT_FALSE(std::filesystem::exists(rig.folder.path / "lock"));
  std::filesystem::permissions(rig.folder.path, std::filesystem::perms{0755});
  EXPECT_EQ(refusal(rig.options({4}, kBlocks)).message, "");
}

// Made with a umask of 002.
TEST_F(KvFolder, OfAGroupIsClosedToItIfItIsTheStoresAlone) {
  const auto mode = [&] { return std::filesystem::status(rig.folder.path).permissions(); };
  std::filesystem::permissions(rig.folder.path, std::filesystem::perms{0775});
  fill();
  EXPECT_EQ(mode(), std::filesystem::perms{0755});
  rig.store.reset();
  std::filesystem::permissions(rig.folder.path, std::filesystem::perms{0775});
  std::filesystem::permissions(rig.folder.path / "blocks", std::filesystem::perms{0660});
  EXPECT_EQ(refusal(rig.options({4}, kBlocks)).code, ErrorCode::denied);
  std::filesystem::permissions(rig.folder.path / "blocks", std::filesystem::perms{0600});
  std::ofstream(rig.folder.path / "other") << "of somebody";
  const Error error = refusal(rig.options({4}, kBlocks));
  EXPECT_EQ(error.code, ErrorCode::denied);
  EXPECT_NE(error.message.find("other"), std::string::npos) << error.message;
  EXPECT_EQ(mode(), std::filesystem::perms{0775});
  std::filesystem::remove(rig.folder.path / "other");
  EXPECT_EQ(refusal(rig.options({4}, kBlocks)).message, "");
}

TEST_F(KvFolder, IsNotOpenedInACallback) {
  std::vector<std::byte> bytes(2 * 4096);
  const MemoryRange memory(bytes, kDram);
  const Transfer copy =
      rig.mover->copy(whole(memory).part(0, 4_KiB), whole(memory).part(4096, 4_KiB));
  Error error;
  copy.on_done([&](const Result<MoveStats>&) { error = refusal(rig.options({4}, kBlocks)); });
  EXPECT_TRUE(copy.wait().has_value());
  EXPECT_EQ(error.code, ErrorCode::invalid);
  EXPECT_NE(error.message.find("callback"), std::string::npos) << error.message;
}

TEST_F(KvFolder, SecondStoreIsRefusedInOneLine) {
  rig.open({4}, kBlocks);
  const Error error = refusal(rig.options({4}, kBlocks));
  EXPECT_EQ(error.code, ErrorCode::denied);
  EXPECT_NE(error.message.find("open already"), std::string::npos);
  EXPECT_EQ(error.message.find('\n'), std::string::npos);
  rig.store.reset();
  EXPECT_EQ(refusal(rig.options({4}, kBlocks)).message, "");
}

TEST_F(KvFolder, ChildOfAForkKeepsNoLockAndServesNothing) {
  fill();
  rig.open({4}, kBlocks);
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    const bool refused = rig.get(keys).has_value() == false && rig.store->match(keys).size() == 0 &&
                         !rig.put(keys).has_value() && !rig.store->flush().has_value();
    rig.store.reset();
    const char answer = refused ? 'y' : 'n';
    (void)!write(ready[1], &answer, 1);
    pause();  // lives until the parent has opened the folder again
  }
  char answer = 0;
  EXPECT_EQ(read(ready[0], &answer, 1), 1);
  EXPECT_EQ(answer, 'y');
  rig.open({4}, kBlocks);
  EXPECT_EQ(rig.store->stats().reopened, kBlocks);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  close(ready[0]);
  close(ready[1]);
}

// Parts of two writes of a block are never taken together, whichever headers a crash left.
TEST(KvFolderParts, OfSeveralWrites_AreOneBlockOnlyIfAllAreOfOne) {
  const kvcache::Geometry geometry = any_size_geometry(true);
  const auto size = static_cast<std::uint32_t>(3 * geometry.block().value - 5);
  const kvcache::Key key{1, 2};
  const auto part = [&](std::uint32_t slot, std::uint64_t sequence, std::uint32_t number) {
    return kvcache::Folder::Found{key, slot, {number, size, sequence}};
  };
  using All = std::vector<kvcache::Folder::Found>;
  const auto kept = [&](All found) {
    kvcache::Folder::keep_latest(found, geometry);
    std::string slots;
    for (const auto& each : found) slots += std::to_string(each.slot) + " ";
    return slots;
  };
  EXPECT_EQ(kept({part(7, 1, 2), part(3, 1, 0), part(5, 1, 1)}), "3 5 7 ");
  EXPECT_EQ(kept({part(7, 1, 2), part(3, 1, 0), part(5, 2, 1)}), "");
  EXPECT_EQ(kept({part(7, 2, 2), part(3, 1, 0), part(5, 1, 1)}), "");
  EXPECT_EQ(kept({part(7, 1, 2), part(3, 1, 0)}), "");
  EXPECT_EQ(kept({part(3, 1, 0), part(5, 1, 1)}), "");
  EXPECT_EQ(kept({part(3, 1, 0), part(5, 1, 1), part(6, 1, 1), part(7, 1, 2)}), "");
  All both{part(0, 1, 0), part(1, 1, 1), part(2, 1, 2),
           part(3, 2, 0), part(4, 2, 1), part(5, 2, 2)};
  EXPECT_EQ(kept(both), "3 4 5 ");
  both.pop_back();  // the younger was not written to its end
  EXPECT_EQ(kept(both), "0 1 2 ");
  both[2].part.block_bytes = size - 1;
  EXPECT_EQ(kept(both), "");
}

// A process is killed while it stores: the next one finds only correct blocks.
TEST(KvKilled, FolderServesOnlyWhatIsRight) {
  std::size_t found = 0;
  std::size_t served = 0;
  for (int round = 0; round < 3; ++round) {
    const auto geometry = round == 2 ? any_size_geometry(true) : small_geometry();
    KvRig rig({}, false, geometry);
    const auto keys = kvcache::keys(rig.geometry, tokens(4 * 400));
    int started[2];
    ASSERT_EQ(pipe(started), 0);
    const pid_t child = fork();
    if (child == 0) {
      KvRig inside({}, false, geometry);  // the parent's objects belong to the parent
      inside.worker = true;
      inside.folder.path.swap(rig.folder.path);
      inside.open({4}, 100);
      for (std::size_t i = 0;; i = (i + 1) % keys.size()) {
        (void)inside.put({&keys[i], 1});
        if (i == 40) (void)!write(started[1], "x", 1);
      }
    }
    char ignored = 0;
    EXPECT_EQ(read(started[0], &ignored, 1), 1);
    usleep(static_cast<useconds_t>(1000 + 700 * round));
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    close(started[0]);
    close(started[1]);
    rig.open({4}, 100);
    found += rig.store->stats().reopened;
    for (const kvcache::Key& key : keys) {
      if (rig.store->match({&key, 1}).size() == 0) continue;
      std::vector<std::byte> bytes(rig.size_of(key).value);
      const MemoryRange memory(bytes, kDram);
      const auto load = rig.store->load({&key, 1}, whole(memory));
      ASSERT_TRUE(load.has_value());
      if (load->wait()) {
        EXPECT_EQ(bytes, rig.blocks_of({&key, 1}));
        ++served;
      }
    }
  }
  EXPECT_GT(found, 0u);
  EXPECT_GT(2 * served, found);  // a few were being written
}

}  // namespace
}  // namespace headrace
