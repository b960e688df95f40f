// SPDX-License-Identifier: Apache-2.0
// Planted hot sets, and how well a source finds them.
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "headrace/tier/hotness.h"
#include "memory/memory.h"
#include "tier/source.h"

namespace headrace::test {

inline constexpr std::size_t kPage = 4096;

// Memory for a source of this kind, all pages present; private memory is aligned to 2 MiB.
class Trackable {
 public:
  Trackable(HotnessKind kind, Bytes size) {
    if (kind == HotnessKind::memfd) {
      shared_ = std::make_unique<SharedMemory>(SharedMemory::make(size).value());
      bytes_ = shared_->bytes();
    } else {
      own_ = MappedMemory::make(size, 2_MiB, 4_KiB, PROT_READ | PROT_WRITE).value();
      bytes_ = {own_.memory(), size.value};
      (void)::madvise(bytes_.data(), bytes_.size(), MADV_NOHUGEPAGE);
    }
    for (std::size_t at = 0; at < bytes_.size(); at += kPage) bytes_[at] = std::byte{1};
  }
  std::span<std::byte> bytes() const { return bytes_; }
  std::span<std::byte> pages(std::size_t from, std::size_t count) const {
    return bytes_.subspan(from * kPage, count * kPage);
  }
  std::size_t count() const { return bytes_.size() / kPage; }

  // Other memory may take the freed place, so the rest is never unmapped.
  void unmap(std::size_t from, std::size_t count) {
    static auto& kept = *new std::vector<std::unique_ptr<SharedMemory>>;
    kept.push_back(std::move(shared_));
    (void)own_.release();
    EXPECT_EQ(::munmap(pages(from, count).data(), count * kPage), 0);
  }

 private:
  std::unique_ptr<SharedMemory> shared_;
  MappedMemory own_;
  std::span<std::byte> bytes_;
};

// Moves a mapping to the place of another one of its size. The old place stays reserved: other
// memory that took it would be unmapped with it.
inline bool move_mapping(std::span<std::byte> from, std::span<std::byte> to) {
  return ::mremap(from.data(), from.size(), from.size(),
                  MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP, to.data()) == to.data();
}

enum class Access { read, write, mixed };

inline void access_page(std::span<std::byte> memory, std::size_t page, Access how) {
  volatile std::byte& byte = memory[page * kPage + page % 64 * 64];
  if (how == Access::write || (how == Access::mixed && page % 2 == 0)) {
    byte = std::byte{7};
  } else {
    [[maybe_unused]] const std::byte read = byte;
  }
}

inline void access_pages(std::span<std::byte> memory, const std::vector<std::size_t>& pages,
                         Access how) {
  for (const std::size_t page : pages) access_page(memory, page, how);
}

// Chooses `share` of `count` pages, in aligned areas of `area` pages.
inline std::vector<std::size_t> plant(std::size_t count, double share, std::size_t area,
                                      std::mt19937_64& random) {
  std::vector<std::size_t> areas(count / area);
  for (std::size_t i = 0; i < areas.size(); ++i) areas[i] = i;
  std::ranges::shuffle(areas, random);
  areas.resize(static_cast<std::size_t>(static_cast<double>(areas.size()) * share));
  std::ranges::sort(areas);
  std::vector<std::size_t> pages;
  for (const std::size_t each : areas) {
    for (std::size_t i = 0; i < area; ++i) pages.push_back(each * area + i);
  }
  return pages;
}

// Makes the hot pages hot: each is accessed between any two looks, and every other page one time in
// twenty.
inline void use(HotnessSource& source, ManualClock& clock, Hotness& hotness,
                std::span<std::byte> memory, const std::vector<std::size_t>& hot, Access how,
                std::mt19937_64& random) {
  for (int look = 0; look < 12; ++look) {
    access_pages(memory, hot, how);
    for (std::size_t page = 0; page < memory.size() / kPage; ++page) {
      if (random() % 20 == 0) access_page(memory, page, how);
    }
    clock.advance(std::chrono::seconds{1});
    const auto sample = source.look();
    ASSERT_TRUE(sample) << sample.error().message;
    ASSERT_EQ(sample->covered, std::chrono::seconds{1});
    hotness.add(*sample);
  }
}

// The share of hot pages among the equally many hottest found: precision and recall in one, since
// both sets have the same size. Ties are broken at random.
inline double found(const Hotness& hotness, std::span<const std::byte> memory,
                    const std::vector<std::size_t>& hot, std::mt19937_64& random) {
  std::vector<std::size_t> pages(memory.size() / kPage);
  for (std::size_t i = 0; i < pages.size(); ++i) pages[i] = i;
  std::ranges::shuffle(pages, random);
  std::ranges::stable_sort(pages, std::greater{}, [&](std::size_t page) {
    return hotness.heat(memory.data() + page * kPage);
  });
  pages.resize(hot.size());
  const auto right = std::ranges::count_if(
      pages, [&](std::size_t page) { return std::ranges::binary_search(hot, page); });
  return static_cast<double>(right) / static_cast<double>(hot.size());
}

// The pages of a sample, as numbers. Requires: a sample of single pages.
inline std::vector<std::size_t> pages_in(const HotnessSample& sample,
                                         std::span<const std::byte> memory) {
  std::vector<std::size_t> pages;
  for (const Touch& touch : sample.touches) {
    EXPECT_EQ(touch.touched.value, touch.range.size());
    for (std::size_t at = 0; at < touch.range.size(); at += kPage) {
      pages.push_back(static_cast<std::size_t>(touch.range.data() + at - memory.data()) / kPage);
    }
  }
  return pages;
}

}  // namespace headrace::test
