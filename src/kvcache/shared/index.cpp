// SPDX-License-Identifier: Apache-2.0
#include "kvcache/shared/index.h"

#include <bit>
#include <new>
#include <utility>

#include "core/fail.h"

namespace headrace::kvcache {
namespace {

constexpr std::uint64_t kHeaderBytes = 4096;
static_assert(sizeof(SharedHeader) <= kHeaderBytes);

constexpr std::uint64_t kNoBlock = 0;
constexpr std::uint64_t kElsewhere = 1;
constexpr std::uint64_t kFirstSlot = 2;

// A block moves between buckets within nanoseconds; after this many tries it counts as absent.
constexpr unsigned kTries = 16;

std::uint64_t bytes_of(std::uint64_t buckets) {
  return kHeaderBytes + buckets * sizeof(SharedBucket);
}

}  // namespace

Result<std::unique_ptr<SharedIndex>> SharedIndex::make(const SharedSizes& sizes) {
  const std::uint64_t buckets = std::bit_ceil(2 * sizes.blocks + 2);
  HEADRACE_TRY(SealedMemory shared, SealedMemory::make(Bytes{bytes_of(buckets)}, Bytes{1}));
  auto* const header = new (shared.mapping.memory()) SharedHeader{};
  header->format = kSharedFormat;
  header->buckets = buckets;
  header->sizes = sizes;
  return std::unique_ptr<SharedIndex>(
      new SharedIndex(std::move(shared.file), std::move(shared.mapping), buckets));
}

SharedIndex::SharedIndex(OwnDescriptor file, MappedMemory memory, std::uint64_t buckets)
    : file_(std::move(file)), memory_(std::move(memory)), mask_(buckets - 1) {}

SharedBucket& SharedIndex::bucket(std::uint64_t index) {
  return reinterpret_cast<SharedBucket*>(memory_.memory() + kHeaderBytes)[index];
}

void SharedIndex::write(SharedBucket& bucket, const Key& key, std::uint64_t place) {
  const std::uint64_t version = bucket.version.load();
  bucket.version.store(version + 1);
  bucket.low.store(key.low);
  bucket.high.store(key.high);
  bucket.place.store(place);
  bucket.version.store(version + 2);
  // Before bytes of the slot change. Pairs with the fence of SharedIndexView::unchanged().
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

std::uint64_t SharedIndex::find(const Key& key) {
  for (std::uint64_t i = key.low & mask_;; i = (i + 1) & mask_) {
    const SharedBucket& each = bucket(i);
    if (each.place.load() == kNoBlock) return i;
    if (each.low.load() == key.low && each.high.load() == key.high) return i;
  }
}

void SharedIndex::set(const Key& key, std::optional<std::uint32_t> slot) {
  SharedBucket& found = bucket(find(key));
  const std::uint64_t place = slot ? kFirstSlot + *slot : kElsewhere;
  if (found.place.load() != place) write(found, key, place);
}

void SharedIndex::erase(const Key& key) {
  std::uint64_t hole = find(key);
  if (bucket(hole).place.load() == kNoBlock) return;
  header().moves.fetch_add(1);
  for (std::uint64_t i = (hole + 1) & mask_;; i = (i + 1) & mask_) {
    const SharedBucket& next = bucket(i);
    const std::uint64_t place = next.place.load();
    if (place == kNoBlock) break;
    const Key moved{next.low.load(), next.high.load()};
    // The hole lies between the first bucket that the block may have and this one.
    if (((i - moved.low) & mask_) < ((i - hole) & mask_)) continue;
    write(bucket(hole), moved, place);
    hole = i;
  }
  write(bucket(hole), {}, kNoBlock);
  header().moves.fetch_add(1);
}

void SharedIndex::close() { header().closed.store(1); }

Result<SharedIndexView> SharedIndexView::map(int descriptor) {
  HEADRACE_TRY(MappedMemory memory, map_shared(descriptor));
  SharedIndexView view(std::move(memory));
  const std::uint64_t bytes = view.memory_.length().value;
  const SharedHeader& header = view.header();
  if (bytes < kHeaderBytes || header.format != kSharedFormat ||
      !std::has_single_bit(header.buckets) || header.buckets > bytes / sizeof(SharedBucket) ||
      bytes_of(header.buckets) > bytes) {
    return fail(ErrorCode::invalid,
                "the cache's index has another format; run the same version of Headrace as its "
                "server");
  }
  return view;
}

const SharedBucket& SharedIndexView::bucket(std::uint64_t index) const {
  return reinterpret_cast<const SharedBucket*>(memory_.memory() + kHeaderBytes)[index];
}

std::optional<SharedIndexView::Found> SharedIndexView::look(const Key& key, bool& whole) const {
  const std::uint64_t mask = header().buckets - 1;
  for (std::uint64_t n = 0; n <= mask; ++n) {
    const std::uint64_t i = (key.low + n) & mask;
    const SharedBucket& each = bucket(i);
    const std::uint64_t version = each.version.load();
    const std::uint64_t place = each.place.load();
    const bool fits = each.low.load() == key.low && each.high.load() == key.high;
    if (version % 2 == 1 || each.version.load() != version) {
      whole = false;
      return std::nullopt;
    }
    if (place == kNoBlock) return std::nullopt;
    if (!fits) continue;
    Found found{.slot = {}, .bucket = i, .version = version};
    if (place >= kFirstSlot && place - kFirstSlot < sizes().slots) found.slot = place - kFirstSlot;
    return found;
  }
  return std::nullopt;
}

std::optional<SharedIndexView::Found> SharedIndexView::find(const Key& key) const {
  for (unsigned i = 0; i < kTries; ++i) {
    const std::uint64_t moves = header().moves.load();
    bool whole = moves % 2 == 0;
    if (const auto found = look(key, whole)) return found;
    if (whole && header().moves.load() == moves) break;
  }
  return std::nullopt;
}

bool SharedIndexView::unchanged(const Found& found) const {
  // After the bytes were read. Pairs with the fence of SharedIndex::write().
  std::atomic_thread_fence(std::memory_order_seq_cst);
  return bucket(found.bucket).version.load() == found.version;
}

}  // namespace headrace::kvcache
