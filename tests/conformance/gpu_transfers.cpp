// SPDX-License-Identifier: Apache-2.0
// Transfers at random between two GPUs, pinned memory, plain memory and a file, some of them
// gathered by kernels, with copies and kernels that the driver refuses, reads that fail and
// transfers that are cancelled, against a model: what each byte must be where that is known.
// A real driver that shows one GPU (HEADRACE_TEST_LIBCUDA) has both memories there.
// HEADRACE_GPU_TRANSFERS says how many.
#include <fmt/core.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <filesystem>
#include <vector>

#include "backend/cpu/cpu.h"
#include "backend/cuda/engines/engines.h"
#include "backend/storage/storage_testing.h"
#include "headrace/buffer.h"
#include "headrace/file.h"
#include "headrace/mover.h"
#include "headrace/random.h"
#include "tests/support/bytes.h"
#include "tests/support/fake_gpu.h"

namespace headrace {
namespace {

constexpr std::uint64_t kBlock = 4096;
constexpr std::uint64_t kBlocks = 96;
constexpr Bytes kSize{kBlock * kBlocks};
constexpr std::size_t kInFlight = 48;
constexpr std::uint64_t kAligned = 16;  // as kernels copy
constexpr std::uint64_t kParts = 12;
constexpr Nanoseconds kBound = std::chrono::seconds{60};

// The driver, but that it refuses every 97th copy, every 13th batch and every 5th kernel.
cuda::Driver honest;
std::atomic<std::uint64_t> copies{0};
std::atomic<std::uint64_t> batches{0};
std::atomic<std::uint64_t> launches{0};

cuda::CUresult copy_mostly(cuda::CUdeviceptr to, cuda::CUdeviceptr from, std::size_t bytes,
                           cuda::CUstream stream) {
  if (++copies % 97 == 0) return cuda::CUDA_ERROR_OUT_OF_MEMORY;
  return honest.cuMemcpyAsync(to, from, bytes, stream);
}

cuda::CUresult batch_mostly(cuda::CUdeviceptr* to, cuda::CUdeviceptr* from, std::size_t* sizes,
                            std::size_t count, cuda::CUmemcpyAttributes* how, std::size_t* first,
                            std::size_t hows, cuda::CUstream stream) {
  if (++batches % 13 == 0) return cuda::CUDA_ERROR_NOT_SUPPORTED;
  return honest.cuMemcpyBatchAsync_v2(to, from, sizes, count, how, first, hows, stream);
}

cuda::CUresult launch_mostly(cuda::CUfunction kernel, unsigned grid_x, unsigned grid_y,
                             unsigned grid_z, unsigned block_x, unsigned block_y, unsigned block_z,
                             unsigned shared, cuda::CUstream stream, void** parameters,
                             void** extra) {
  if (++launches % 5 == 0) return cuda::CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
  return honest.cuLaunchKernel(kernel, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared,
                               stream, parameters, extra);
}

const cuda::Driver& moody_driver() {
  static cuda::Driver moody;
  honest = moody = **cuda::driver();
  moody.cuMemcpyAsync = copy_mostly;
  moody.cuMemcpyBatchAsync_v2 = batch_mostly;
  moody.cuLaunchKernel = launch_mostly;
  return moody;
}

constexpr std::byte kKnown{0xff};

// An object, what its bytes must be, which of them are known, and who is at them.
struct Thing {
  const Object* object = nullptr;
  std::vector<std::byte> model = std::vector<std::byte>(kSize.value);
  std::vector<std::byte> known = std::vector<std::byte>(kSize.value, kKnown);
  std::array<unsigned, kBlocks> readers{};
  std::array<bool, kBlocks> writer{};
};

struct Range {
  Thing* thing = nullptr;
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
  std::uint64_t first() const { return offset / kBlock; }
  std::uint64_t last() const { return (offset + length - 1) / kBlock; }
  Extent extent() const { return {thing->object, offset, Bytes{length}}; }
};

struct Moving {
  Transfer transfer;
  Range to;
  Range from;
};

class World {
 public:
  explicit World(std::size_t count) : heard_(count) {
    path_ = std::filesystem::temp_directory_path() / fmt::format("headrace-world-{}", getpid());
    std::FILE* made = std::fopen(path_.c_str(), "w");
    CHECK(ftruncate(fileno(made), kSize.value) == 0);
    std::fclose(made);
    file_ = File::open(gpu_.machine, path_, {.writable = true}).value();
    const auto odd_ones = [](const storage::Request& request) {
      return test::Fault{.error = request.offset / 8192 % 29 == 7 ? EIO : 0};
    };
    backends_.add(open_cpu(gpu_.machine, {test::kCpuA, test::kCpuB}).value());
    backends_.add(
        open_storage(gpu_.machine, {test::kSsd}, test::with_faults(false, odd_ones)).value());
    std::vector<EngineId> engines = {test::kGpuEngine};
    if (gpu_.has_two()) engines.push_back(test::kOtherGpuEngine);
    backends_.add(open_cuda(gpu_.machine, engines,
                            {.storage = backends_.find(test::kSsd),
                             .slots = 4,
                             .slot = 64_KiB,
                             .gather = GatherLimit{.bytes = 8_KiB, .count = 2},
                             .driver = &moody_driver()})
                      .value());
    Placement pinned = Placement::on(test::kDram);
    pinned.pin = true;
    buffers_.push_back(allocate(gpu_.machine, kSize, Placement::on(test::kGpu)).value());
    const NodeId other = gpu_.has_two() ? test::kOtherGpu : test::kGpu;
    buffers_.push_back(allocate(gpu_.machine, kSize, Placement::on(other)).value());
    buffers_.push_back(allocate(gpu_.machine, kSize, pinned).value());
    buffers_.push_back(allocate(gpu_.machine, kSize, Placement::on(test::kDram)).value());
    for (std::size_t i = 0; i < buffers_.size(); ++i) things_[i].object = buffers_[i].get();
    things_.back().object = file_.get();
    mover_ = std::make_unique<Mover>(gpu_.machine, backends_,
                                     MoverOptions{.piece = 8_KiB, .in_flight_per_link = 256_KiB});
  }
  ~World() { std::filesystem::remove(path_); }

  void run() {
    for (std::size_t i = 0; i < heard_.size() && !testing::Test::HasFailure();) {
      if (i % 4096 == 0) stir();
      if (begin(i)) {
        ++i;
      } else {
        finish_one();
      }
      while (moving_.size() >= kInFlight) finish_one();
    }
    check();
    mover_.reset();
    const auto once = [](const std::atomic<unsigned>& heard) { return heard.load() == 1; };
    EXPECT_TRUE(std::ranges::all_of(heard_, once)) << "each ends once";
    fmt::print(
        "{} transfers: {} well, {} failed, {} cancelled; {} copies, {} batches, {} "
        "kernels\n",
        heard_.size(), well_, failed_, cancelled_, copies.load(), batches.load(), launches.load());
    EXPECT_GT(well_, heard_.size() / 2);
    EXPECT_GT(failed_, 0U);
    EXPECT_GT(launches.load(), 0U);
  }

 private:
  Range any_range() {
    Range range{.thing = &things_[random_.below(things_.size())]};
    range.length = 1 + random_.below(random_.below(4) == 0 ? 6 * kBlock : 700);
    range.offset = random_.below(kSize.value - range.length + 1);
    return aligned_ ? aligned(range) : range;
  }

  static Range aligned(Range range) {
    range.length = std::max(range.length / kAligned, std::uint64_t{1}) * kAligned;
    range.offset = std::min(range.offset, kSize.value - range.length) / kAligned * kAligned;
    return range;
  }

  // False: others are at these bytes, or no engine joins the two.
  bool begin(std::size_t number) {
    aligned_ = random_.below(4) > 0;
    const Range from = any_range();
    Range to = any_range();
    to.length = from.length;
    if (to.offset + to.length > kSize.value) to.offset = 0;
    if (from.thing == to.thing && from.thing == &things_.back()) return false;  // file to file
    for (std::uint64_t at = from.first(); at <= from.last(); ++at) {
      if (from.thing->writer[at]) return false;
    }
    for (std::uint64_t at = to.first(); at <= to.last(); ++at) {
      if (to.thing->writer[at] || to.thing->readers[at] > 0) return false;
    }
    if (from.thing == to.thing && from.first() <= to.last() && to.first() <= from.last()) {
      return false;
    }
    for (std::uint64_t at = from.first(); at <= from.last(); ++at) ++from.thing->readers[at];
    for (std::uint64_t at = to.first(); at <= to.last(); ++at) to.thing->writer[at] = true;
    moving_.push_back({copy(to, from), to, from});
    Transfer& transfer = moving_.back().transfer;
    transfer.on_done([this, number](const auto&) { heard_[number].fetch_add(1); });
    if (random_.below(64) == 0) transfer.cancel();
    return true;
  }

  // Aligned ones in parts, the last one first, so that none continues the one before it.
  Transfer copy(const Range& to, const Range& from) {
    if (!aligned_) return mover_->copy(to.extent(), from.extent());
    const std::uint64_t part = (to.length / kParts / kAligned + 1) * kAligned;
    std::vector<MovePair> pairs;
    for (std::uint64_t at = 0; at < to.length; at += part) {
      const Bytes length{std::min(part, to.length - at)};
      pairs.push_back({.to = to.extent().part(at, length), .from = from.extent().part(at, length)});
    }
    std::ranges::reverse(pairs);
    return mover_->copy(pairs);
  }

  void finish_one() {
    if (moving_.empty()) return;
    const Moving done = std::move(moving_.front());
    moving_.pop_front();
    const auto outcome = done.transfer.wait(kBound);
    Thing& to = *done.to.thing;
    const Thing& from = *done.from.thing;
    if (outcome) {
      ++well_;
      std::memmove(&to.model[done.to.offset], &from.model[done.from.offset], done.to.length);
      std::memmove(&to.known[done.to.offset], &from.known[done.from.offset], done.to.length);
    } else {
      ASSERT_NE(outcome.error().code, ErrorCode::timed_out) << outcome.error().message;
      ++(outcome.error().code == ErrorCode::cancelled ? cancelled_ : failed_);
      std::memset(&to.known[done.to.offset], 0, done.to.length);
    }
    for (std::uint64_t at = done.from.first(); at <= done.from.last(); ++at) {
      --done.from.thing->readers[at];
    }
    for (std::uint64_t at = done.to.first(); at <= done.to.last(); ++at) to.writer[at] = false;
  }

  std::vector<std::byte> bytes_of(const Thing& thing) const {
    if (thing.object->device_address()) return test::read_gpu(*thing.object, 0, kSize.value);
    if (const std::byte* at = thing.object->memory()) return {at, at + kSize.value};
    std::vector<std::byte> bytes(kSize.value);
    CHECK(pread(file_->buffered_fd(), bytes.data(), bytes.size(), 0) ==
          static_cast<ssize_t>(bytes.size()));
    return bytes;
  }

  static std::uint64_t word(const std::vector<std::byte>& bytes, std::size_t at) {
    std::uint64_t word;
    std::memcpy(&word, &bytes[at], sizeof word);
    return word;
  }

  // When nothing moves, all that is known is there.
  void check() {
    while (!moving_.empty()) finish_one();
    for (std::size_t i = 0; i < things_.size(); ++i) {
      Thing& thing = things_[i];
      const auto bytes = bytes_of(thing);
      for (std::size_t at = 0; at < bytes.size(); at += sizeof(std::uint64_t)) {
        const std::uint64_t differs = word(bytes, at) ^ word(thing.model, at);
        ASSERT_EQ(differs & word(thing.known, at), 0U) << "object " << i << ", word at " << at;
      }
      thing.model = bytes;
      std::memset(thing.known.data(), std::to_integer<int>(kKnown), bytes.size());
    }
  }

  // Checks, and writes anew where bytes have become the same by copying.
  void stir() {
    ASSERT_NO_FATAL_FAILURE(check());
    for (Thing& thing : things_) {
      if (thing.object->memory() == nullptr) continue;
      test::fill_random(thing.model, random_());
      std::copy(thing.model.begin(), thing.model.end(), thing.object->memory());
    }
  }

  test::FakeGpu gpu_{"devices=2"};
  std::filesystem::path path_;
  std::unique_ptr<File> file_;
  Backends backends_;
  std::vector<std::unique_ptr<Buffer>> buffers_;
  std::array<Thing, 5> things_;
  std::vector<std::atomic<unsigned>> heard_;
  std::unique_ptr<Mover> mover_;
  std::deque<Moving> moving_;
  Random random_{15};
  bool aligned_ = false;  // of the transfer that is begun
  std::size_t well_ = 0;
  std::size_t failed_ = 0;
  std::size_t cancelled_ = 0;
};

TEST(GpuTransfers, KeepToTheModel) {
  const char* asked = std::getenv("HEADRACE_GPU_TRANSFERS");
  World world(asked == nullptr ? 1500 : std::strtoull(asked, nullptr, 10));
  world.run();
}

}  // namespace
}  // namespace headrace
