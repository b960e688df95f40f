// SPDX-License-Identifier: Apache-2.0
// KV stores for tests. One has memory tiers moved by the fake backend, and a folder moved by a
// backend that reads and writes files, and fails, on request. Another is on a machine with software
// GPUs, with the backends of such a machine.
#pragma once

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/fail.h"
#include "headrace/buffer.h"
#include "headrace/file.h"
#include "headrace/kvcache/store.h"
#include "headrace/random.h"
#include "tests/support/bytes.h"
#include "tests/support/fake_backend.h"
#include "tests/support/fake_gpu.h"
#include "tests/support/machines.h"

namespace headrace::test {

// Copies between memory and files at once, in the submitting thread; while `held`, in release().
// Thread-safe.
class FileBackend final : public Backend {
 public:
  const Capabilities& capabilities() const override { return capabilities_; }
  Result<std::size_t> submit(std::span<const Piece> pieces, Completion& completion) override {
    for (const Piece& piece : pieces) {
      if (held) {
        const MutexLock lock(mutex_);
        waiting_.emplace_back(piece, &completion);
      } else {
        completion.complete(piece.tag, copy(piece));
      }
    }
    return pieces.size();
  }
  void release() {
    held = false;
    std::vector<std::pair<Piece, Completion*>> pieces;
    {
      const MutexLock lock(mutex_);
      pieces.swap(waiting_);
    }
    for (const auto& [piece, completion] : pieces) completion->complete(piece.tag, copy(piece));
  }

  std::atomic<bool> held{false};
  std::atomic<double> fail_chance{0};
  std::atomic<bool> full{false};                // writes fail as on a full disk
  std::atomic<std::uint64_t> room{UINT64_MAX};  // writes that end beyond it fail, with this error:
  std::atomic<ErrorCode> without_room{ErrorCode::exhausted};
  std::atomic<bool> unwritable{false};  // writes fail otherwise
  // The disk of the file with this inode fails writes with this error, and reads if it is io.
  std::atomic<ino_t> lost{0};
  std::atomic<ErrorCode> lost_by{ErrorCode::io};
  std::atomic<std::uint64_t> lost_writes{0};
  std::atomic<std::uint64_t> writes{0};
  std::atomic<std::uint64_t> read_bytes{0};
  std::atomic<std::uint64_t> torn_after{UINT64_MAX};  // reads after this many bytes are torn

 private:
  bool is_lost(const File& file) const {
    struct stat status{};
    return lost != 0 && fstat(file.buffered_fd(), &status) == 0 && status.st_ino == lost;
  }
  Status copy(const Piece& piece) {
    {
      const MutexLock lock(mutex_);
      if (random_.chance(fail_chance.load())) return fail(ErrorCode::io, "injected");
    }
    const auto length = static_cast<ssize_t>(piece.from.length.value);
    ssize_t done = 0;
    if (piece.from.memory() == nullptr) {
      const auto& file = static_cast<const File&>(*piece.from.object);
      if (is_lost(file) && lost_by == ErrorCode::io) return fail(ErrorCode::io, "lost");
      done = pread(file.buffered_fd(), piece.to.memory(), piece.to.length.value,
                   static_cast<off_t>(piece.from.offset));
      if (read_bytes.fetch_add(piece.from.length.value) >= torn_after) {
        *piece.to.memory() ^= std::byte{1};
      }
    } else {
      ++writes;
      if (full) return fail(ErrorCode::exhausted, "no space left on device");
      if (piece.to.offset + piece.to.length.value > room) {
        return fail(without_room.load(), "no space left on device");
      }
      if (unwritable) return fail(ErrorCode::io, "injected");
      const auto& file = static_cast<const File&>(*piece.to.object);
      if (is_lost(file)) {
        ++lost_writes;
        return fail(lost_by.load(), "no space left on device, or lost");
      }
      done = pwrite(file.buffered_fd(), piece.from.memory(), piece.from.length.value,
                    static_cast<off_t>(piece.to.offset));
    }
    return done == length ? Status{} : fail(ErrorCode::io, "short");
  }

  Mutex mutex_;
  Random random_ GUARDED_BY(mutex_){7};
  std::vector<std::pair<Piece, Completion*>> waiting_ GUARDED_BY(mutex_);
  const Capabilities capabilities_{.name = "file",
                                   .engines = {kSsd},
                                   .max_piece = 64_MiB,
                                   .max_in_flight = 64,
                                   .note = "files, for tests"};
};

// A folder that is deleted at the end of its scope.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "headrace-kv-XXXXXX").string();
    path = mkdtemp(pattern.data());
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  std::filesystem::path path;
};

// Blocks of 3 layers of about 1000 bytes: nothing is aligned.
inline kvcache::Geometry small_geometry() {
  return {.model = "small",
          .layers = 3,
          .kv_heads = 5,
          .head_dim = 25,
          .element_bytes = 1,
          .block_tokens = 4};
}

// Blocks of any size, in slots of 4 KiB that have 1000 bytes each, or are full.
inline kvcache::Geometry any_size_geometry(bool full_slots) {
  return {.model = "sizes",
          .layers = 1,
          .kv_heads = 1,
          .head_dim = full_slots ? 512U : 125U,
          .element_bytes = 1,
          .block_tokens = 4,
          .any_size = true};
}

inline std::vector<std::uint32_t> tokens(std::size_t count, std::uint32_t first = 0) {
  std::vector<std::uint32_t> result(count);
  for (std::size_t i = 0; i < count; ++i) result[i] = first + static_cast<std::uint32_t>(i);
  return result;
}

// The blocks of a store and the folder below it.
struct KvBlocks {
  // Tiers by node, in blocks; if `folder_blocks`, a folder last.
  kvcache::StoreOptions options(const std::vector<std::pair<NodeId, std::size_t>>& memory,
                                std::size_t folder_blocks) const {
    kvcache::StoreOptions made{.geometry = geometry, .workers = worker ? 1U : 0U};
    for (const auto& [node, blocks] : memory) {
      made.tiers.push_back({.budget = slot * blocks, .memory = Placement::on(node)});
      made.tiers.back().memory.pages = PageSize::base;
    }
    if (folder_blocks > 0) {
      made.tiers.push_back({.budget = slot * folder_blocks,
                            .folder = folder.path,
                            .write = kvcache::WriteBack::leaving});
    }
    return made;
  }
  // The bytes of the blocks of `keys`, which prove that a load is correct.
  std::vector<std::byte> blocks_of(std::span<const kvcache::Key> keys) const {
    std::vector<std::byte> bytes;
    for (const kvcache::Key& key : keys) {
      const auto block = random_bytes(size_of(key).value, key.low);
      bytes.insert(bytes.end(), block.begin(), block.end());
    }
    return bytes;
  }
  Bytes bytes_of(std::size_t blocks) const { return geometry.block() * blocks; }
  // Up to five slots, if blocks have any size.
  Bytes size_of(const kvcache::Key& key) const {
    const Bytes block = geometry.block();
    return geometry.any_size ? Bytes{1 + key.high % (5 * block.value)} : block;
  }
  // The memory of each block, one after the other in the object, or of all blocks.
  std::vector<Extent> extents(const Object& object, std::span<const kvcache::Key> keys) const {
    if (!geometry.any_size) return {whole(object)};
    std::vector<Extent> extents;
    std::uint64_t at = 0;
    for (const kvcache::Key& key : keys) {
      extents.push_back({&object, at, size_of(key)});
      at += size_of(key).value;
    }
    return extents;
  }

  kvcache::Geometry geometry = small_geometry();
  Bytes slot = 4_KiB;
  bool worker = false;
  TemporaryFolder folder;
};

struct KvRig : KvBlocks {
  explicit KvRig(FakeOptions fake_options = {}, bool poller = false,
                 kvcache::Geometry shape = small_geometry()) {
    geometry = std::move(shape);
    fake_options.engines = {kCpuA, kCpuB};
    const Clock* const clock = fake_options.clock;
    auto memory = std::make_unique<FakeBackend>(std::move(fake_options));
    fake = memory.get();
    backends.add(std::move(memory));
    auto disk = std::make_unique<FileBackend>();
    files = disk.get();
    backends.add(std::move(disk));
    mover = std::make_unique<Mover>(
        machine, backends, MoverOptions{.route = place::one, .clock = clock, .poller = poller});
  }

  kvcache::StoreOptions options(const std::vector<std::size_t>& memory_blocks,
                                std::size_t folder_blocks = 0) const {
    std::vector<std::pair<NodeId, std::size_t>> memory;
    for (const std::size_t blocks : memory_blocks) memory.emplace_back(kDram, blocks);
    return KvBlocks::options(memory, folder_blocks);
  }
  void open(std::vector<std::size_t> memory_blocks, std::size_t folder_blocks = 0) {
    open(options(std::move(memory_blocks), folder_blocks));
  }
  void open(kvcache::StoreOptions wanted) {
    store.reset();
    auto made = kvcache::Store::open(*mover, std::move(wanted));
    ASSERT_TRUE(made.has_value()) << made.error().message;
    store = std::move(*made);
  }
  Result<kvcache::StoredCounts> put(std::span<const kvcache::Key> keys) {
    std::vector<std::byte> bytes = blocks_of(keys);
    const MemoryRange memory(bytes, kDram);
    auto stored = store->store(keys, extents(memory, keys));
    if (!stored) return Unexpected(stored.error());
    return stored->wait();
  }
  // Loads the blocks, and checks the bytes.
  Status get(std::span<const kvcache::Key> keys, kvcache::LoadOptions load_options = {}) {
    std::vector<std::byte> bytes(blocks_of(keys).size());
    const MemoryRange memory(bytes, kDram);
    auto load = store->load(keys, extents(memory, keys), load_options);
    if (!load) return Unexpected(load.error());
    HEADRACE_TRY_STATUS(load->wait());
    EXPECT_EQ(load->leading(), keys.size());
    EXPECT_TRUE(same(bytes, blocks_of(keys)));
    return {};
  }
  // Lets operations continue as far as they can while copies are held.
  void poll() {
    for (int i = 0; i < 100; ++i) store->poll();
  }
  // Lets all operations end.
  void settle() {
    for (int i = 0; i < 10; ++i) {
      store->poll();
      for (int n = 0; n < 100000; ++n) {
        mover->poll();
        const MoverStats stats = mover->stats();
        if (stats.in_flight_pieces == 0 && stats.queued_pieces == 0) break;
      }
    }
  }

  const Machine machine = small_machine();
  FakeBackend* fake = nullptr;
  FileBackend* files = nullptr;
  Backends backends;
  std::unique_ptr<Mover> mover;
  std::unique_ptr<kvcache::Store> store;
};

// Memory of a GPU, allocated by another library.
class Device {
 public:
  Device(const Machine& machine, Bytes bytes, NodeId gpu = kGpu)
      : buffer_(allocate(machine, bytes, Placement::on(gpu)).value()),
        range(*buffer_->device_address(), bytes, gpu) {}

 private:
  std::unique_ptr<Buffer> buffer_;

 public:
  const DeviceRange range;
};

// A stream of GPU 0 that continues only on request.
class HeldStream {
 public:
  HeldStream() {
    const cuda::CurrentContext current(*context_);
    driver_.cuStreamCreate(&stream_, cuda::CU_STREAM_NON_BLOCKING);
    driver_.cuLaunchHostFunc(
        stream_,
        [](void* flag) {
          while (!static_cast<std::atomic<bool>*>(flag)->load()) {
            std::this_thread::sleep_for(std::chrono::microseconds{100});
          }
        },
        &released);
  }
  ~HeldStream() {
    released = true;
    const cuda::CurrentContext current(*context_);
    driver_.cuStreamSynchronize(stream_);
  }
  HeldStream(const HeldStream&) = delete;
  HeldStream& operator=(const HeldStream&) = delete;
  std::uint64_t number() const { return reinterpret_cast<std::uintptr_t>(stream_); }

  std::atomic<bool> released{false};

 private:
  const cuda::Driver& driver_ = **cuda::driver();
  const std::shared_ptr<const cuda::Context> context_ = *cuda::Context::of(driver_, 0);
  cuda::CUstream stream_ = nullptr;
};

struct GpuRig : KvBlocks {
  explicit GpuRig(const std::string& settings = "devices=2",
                  kvcache::Geometry shape = small_geometry(), Bytes of_slot = 4_KiB)
      : gpu(settings) {
    geometry = std::move(shape);
    slot = of_slot;
    worker = true;
    EXPECT_TRUE(backends.skipped().empty());
  }
  void open(const std::vector<std::pair<NodeId, std::size_t>>& memory,
            std::size_t folder_blocks = 0) {
    store.reset();
    auto made = kvcache::Store::open(mover, options(memory, folder_blocks));
    ASSERT_TRUE(made.has_value()) << made.error().message;
    store = std::move(*made);
  }
  // Stores blocks from memory of the GPU.
  Result<kvcache::StoredCounts> put(std::span<const kvcache::Key> keys) {
    const auto bytes = blocks_of(keys);
    const Device from(gpu.machine, Bytes{bytes.size()});
    write_gpu(from.range, 0, bytes);
    auto stored = store->store(keys, extents(from.range, keys));
    if (!stored) return Unexpected(stored.error());
    return stored->wait();
  }
  // Loads the blocks into memory of the GPU, and checks the bytes.
  Status get(std::span<const kvcache::Key> keys, const kvcache::LoadOptions& load_options = {}) {
    const auto bytes = blocks_of(keys);
    const Device into(gpu.machine, Bytes{bytes.size()});
    auto load = store->load(keys, extents(into.range, keys), load_options);
    if (!load) return Unexpected(load.error());
    HEADRACE_TRY_STATUS(load->wait());
    EXPECT_EQ(read_gpu(into.range, 0, bytes.size()), bytes);
    return {};
  }

  FakeGpu gpu;
  const Backends backends = Backends::open(gpu.machine).value();
  Mover mover{gpu.machine, backends};
  std::unique_ptr<kvcache::Store> store;
};

}  // namespace headrace::test
