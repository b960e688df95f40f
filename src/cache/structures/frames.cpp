// SPDX-License-Identifier: Apache-2.0
#include "cache/structures/frames.h"

#include <algorithm>
#include <functional>
#include <new>
#include <utility>

#include "cache/structures/grow.h"
#include "core/check.h"

namespace headrace {
namespace {

std::uint64_t address(const void* p) { return reinterpret_cast<std::uint64_t>(p); }

// The finaliser of MurmurHash3: it spreads addresses, which differ in few bits.
std::uint64_t mix(std::uint64_t x) {
  x = (x ^ (x >> 33)) * 0xff51afd7ed558ccd;
  x = (x ^ (x >> 33)) * 0xc4ceb9fe1a85ec53;
  return x ^ (x >> 33);
}

// The hash of a gap's address: random enough for a balanced tree, and free.
std::uint64_t priority(const std::byte* begin) { return mix(address(begin)); }

}  // namespace

std::uint64_t Frames::modulus_of(std::uint64_t length) const {
  if (!reached_) return kOnGpu;
  // Shorter reads have no whole sector and bounce anyway.
  return length >= kDirect ? kDirect : kGranule;
}

void Frames::add(std::span<std::byte> memory, std::shared_ptr<const Object> owner) {
  static_assert(sizeof(Gap) <= kGranule);
  CHECK(address(memory.data()) % kGranule == 0);
  const std::uint64_t size = memory.size() / kGranule * kGranule;
  grow_for_one(slabs_);
  reserve_gaps(frames_ + slabs_.size() + 1);
  const auto place = std::upper_bound(
      slabs_.begin(), slabs_.end(), memory.data(),
      [](const std::byte* a, const Slab& slab) { return std::less<>{}(a, slab.begin); });
  slabs_.insert(place, Slab{.begin = memory.data(),
                            .size = size,
                            .capacity = memory.size(),
                            .used = 0,
                            .lowest = nullptr,
                            .blocker = nullptr,
                            .owner = std::move(owner)});
  capacity_ += memory.size();
  add_gap({memory.data(), memory.data() + size}, nullptr);
}

bool Frames::take(Frame& frame, std::uint64_t length, std::uint64_t offset) {
  return take(frame, length, offset, modulus_of(length));
}

bool Frames::take_unaligned(Frame& frame, std::uint64_t length) {
  return take(frame, length, 0, 1);
}

bool Frames::take(Frame& frame, std::uint64_t length, std::uint64_t offset, std::uint64_t modulus) {
  CHECK(length > 0 && frame.data == nullptr);
  // There is at most one gap above each frame, and one at the begin of each slab.
  reserve_gaps(frames_ + 1 + slabs_.size());
  // The smallest gaps hold it only if they happen to be aligned; freed frames of equal blocks are.
  // After a few tries, take a gap that holds it in any case.
  constexpr int kTries = 16;
  Gap* gap = at_least(length, nullptr);
  for (int i = 0; i < kTries && gap != nullptr; ++i) {
    if (std::byte* data = fit({gap->begin, gap->begin + gap->size}, length, offset, modulus)) {
      cut(*gap, frame, data, length);
      return true;
    }
    gap = at_least(gap->size, gap->begin + 1);
  }
  if (gap == nullptr) return false;
  gap = at_least(length + modulus, nullptr);
  if (gap == nullptr) return false;
  cut(*gap, frame, fit({gap->begin, gap->begin + gap->size}, length, offset, modulus), length);
  return true;
}

void Frames::give(Frame& frame) {
  Slab& slab = slab_at(frame.data);
  const Span own = granules(frame);
  const Span low = gap_below(frame);
  const Span high = gap_above(frame);
  take_out(low);
  take_out(high);
  (frame.below == nullptr ? slab.lowest : frame.below->above) = frame.above;
  if (frame.above != nullptr) frame.above->below = frame.below;
  if (slab.blocker == &frame) slab.blocker = nullptr;
  pass(frame, frame.above);
  slab.used -= static_cast<std::uint64_t>(own.end - own.begin);
  --frames_;
  if (giving_many_) {
    enter_grown();
    grown_ = {.bytes = {low.begin, high.end}, .below = frame.below};
  } else {
    add_gap({low.begin, high.end}, frame.below);
  }
  frame = {.below = nullptr, .above = nullptr, .data = nullptr, .length = frame.length};
}

void Frames::take_out(Span gap) {
  if (gap.begin == gap.end) return;
  if (gap.begin == grown_.bytes.begin) {
    grown_ = {};
  } else {
    erase_gap(gap_of(gap));
  }
}

void Frames::enter_grown() {
  const Grown grown = std::exchange(grown_, {});
  add_gap(grown.bytes, grown.below);
}

bool Frames::find_row(Frame& seed, std::uint64_t length, std::uint64_t offset,
                      const std::function<bool(Frame&)>& droppable, Row& row) const {
  row.frames.assign(1, &seed);
  Span span{gap_below(seed).begin, gap_above(seed).end};
  Frame* below = seed.below;
  Frame* above = seed.above;
  while (fit(span, length, offset, modulus_of(length)) == nullptr) {
    if (above != nullptr && droppable(*above)) {
      row.frames.push_back(above);
      span.end = gap_above(*above).end;
      above = above->above;
    } else if (below != nullptr && droppable(*below)) {
      row.frames.push_back(below);
      span.begin = gap_below(*below).begin;
      below = below->below;
    } else {
      row.frames.clear();
      return false;
    }
  }
  row.begin = span.begin;
  row.end = span.end;
  return true;
}

bool Frames::replaceable(const Frame& old, std::uint64_t length, std::uint64_t offset) const {
  const Span own = granules(old);
  const std::byte* const data = fit(own, length, offset, modulus_of(length));
  return data != nullptr && data < own.begin + kGranule && data + length > own.end - kGranule;
}

bool Frames::replace(Frame& old, Frame& frame, std::uint64_t length, std::uint64_t offset) {
  if (!replaceable(old, length, offset)) return false;
  Slab& slab = slab_at(old.data);
  std::byte* const data = fit(granules(old), length, offset, modulus_of(length));
  CHECK(frame.data == nullptr);
  frame = {.below = old.below, .above = old.above, .data = data, .length = length};
  (frame.below == nullptr ? slab.lowest : frame.below->above) = &frame;
  if (frame.above != nullptr) frame.above->below = &frame;
  if (slab.blocker == &old) slab.blocker = nullptr;
  pass(old, &frame);
  const Span high = gap_above(frame);
  if (high.begin != high.end) gap_of(high).below = &frame;
  old = {.below = nullptr, .above = nullptr, .data = nullptr, .length = old.length};
  return true;
}

Frames::Gap& Frames::gap_of(Span bytes) const {
  if (reached_) return *reinterpret_cast<Gap*>(bytes.begin);
  Gap* const gap = at_least(static_cast<std::uint64_t>(bytes.end - bytes.begin), bytes.begin);
  CHECK(gap != nullptr && gap->begin == bytes.begin);
  return *gap;
}

// Allocates the descriptions of all gaps that may exist at once.
void Frames::reserve_gaps(std::size_t most) {
  while (!reached_ && chunks_.size() * kChunk < most) {
    grow_for_one(chunks_);
    chunks_.push_back(std::make_unique<Gap[]>(kChunk));
    for (std::size_t i = 0; i < kChunk; ++i) {
      Gap& gap = chunks_.back()[i];
      gap.left = std::exchange(unused_, &gap);
    }
  }
}

void Frames::take_row(Frame& frame, const Row& row, std::uint64_t length, std::uint64_t offset) {
  Gap& gap = gap_of({row.begin, row.end});
  std::byte* const data =
      fit({gap.begin, gap.begin + gap.size}, length, offset, modulus_of(length));
  CHECK(data != nullptr && frame.data == nullptr);
  cut(gap, frame, data, length);
}

Frame* Frames::blocker(const Slab& slab, const std::function<bool(Frame&)>& droppable) const {
  if (slab.blocker != nullptr && !droppable(*slab.blocker)) return slab.blocker;
  slab.blocker = slab.lowest;
  while (slab.blocker != nullptr && droppable(*slab.blocker)) slab.blocker = slab.blocker->above;
  return slab.blocker;
}

const Frames::Slab& Frames::slab_of(const Frame& frame) const { return slab_at(frame.data); }

Frame* Frames::next(Walk& walk) {
  if (walk.slab_ == nullptr) walk.other_ = std::exchange(walks_, &walk);
  while (walk.next_ == nullptr) {
    const auto after = std::ranges::upper_bound(slabs_, walk.slab_, std::less<>{}, &Slab::begin);
    if (after == slabs_.end()) {
      Walk** link = &walks_;
      while (*link != &walk) link = &(*link)->other_;
      *link = walk.other_;
      return nullptr;
    }
    walk.slab_ = after->begin;
    walk.next_ = after->lowest;
  }
  return std::exchange(walk.next_, walk.next_->above);
}

// Walks that would visit `frame` next continue with `to`.
void Frames::pass(const Frame& frame, Frame* to) {
  for (Walk* walk = walks_; walk != nullptr; walk = walk->other_) {
    if (walk->next_ == &frame) walk->next_ = to;
  }
}

std::shared_ptr<const Object> Frames::remove(const std::byte* begin) {
  Slab& slab = slab_at(begin);
  CHECK(slab.begin == begin && slab.lowest == nullptr);
  if (slab.size > 0) erase_gap(gap_of({slab.begin, slab.begin + slab.size}));
  capacity_ -= slab.capacity;
  auto owner = std::move(slab.owner);
  slabs_.erase(slabs_.begin() + (&slab - slabs_.data()));
  return owner;
}

const Frames::Slab& Frames::slab_at(const std::byte* at) const {
  const auto after = std::upper_bound(
      slabs_.begin(), slabs_.end(), at,
      [](const std::byte* a, const Slab& slab) { return std::less<>{}(a, slab.begin); });
  CHECK(after != slabs_.begin());
  return *std::prev(after);
}

Frames::Slab& Frames::slab_at(const std::byte* at) {
  return const_cast<Slab&>(std::as_const(*this).slab_at(at));
}

Frames::Span Frames::granules(const Frame& frame) {
  const std::uint64_t lead = address(frame.data) % kGranule;
  const std::uint64_t size = (lead + frame.length + kGranule - 1) / kGranule * kGranule;
  return {frame.data - lead, frame.data - lead + size};
}

Frames::Span Frames::gap_below(const Frame& frame) const {
  std::byte* const low =
      frame.below == nullptr ? slab_at(frame.data).begin : granules(*frame.below).end;
  return {low, granules(frame).begin};
}

Frames::Span Frames::gap_above(const Frame& frame) const {
  if (frame.above != nullptr) return {granules(frame).end, granules(*frame.above).begin};
  const Slab& slab = slab_at(frame.data);
  return {granules(frame).end, slab.begin + slab.size};
}

// The first address in the gap that is congruent to `offset` and has `length` bytes; null if none.
std::byte* Frames::fit(Span gap, std::uint64_t length, std::uint64_t offset,
                       std::uint64_t modulus) {
  const std::uint64_t lead = (offset - address(gap.begin)) & (modulus - 1);
  const auto size = static_cast<std::uint64_t>(gap.end - gap.begin);
  return lead <= size && length <= size - lead ? gap.begin + lead : nullptr;
}

void Frames::cut(Gap& gap, Frame& frame, std::byte* data, std::uint64_t length) {
  Slab& slab = slab_at(data);
  const Span all{gap.begin, gap.begin + gap.size};
  Frame* const below = gap.below;
  erase_gap(gap);
  Frame*& from_below = below == nullptr ? slab.lowest : below->above;
  frame = {.below = below, .above = from_below, .data = data, .length = length};
  from_below = &frame;
  if (frame.above != nullptr) frame.above->below = &frame;
  const Span own = granules(frame);
  slab.used += static_cast<std::uint64_t>(own.end - own.begin);
  ++frames_;
  add_gap({all.begin, own.begin}, below);
  add_gap({own.end, all.end}, &frame);
}

void Frames::add_gap(Span bytes, Frame* below) {
  if (bytes.begin == bytes.end) return;
  void* place = bytes.begin;
  if (!reached_) {
    CHECK(unused_ != nullptr);
    place = std::exchange(unused_, unused_->left);
  }
  insert_gap(*new (place) Gap{.begin = bytes.begin,
                              .size = static_cast<std::uint64_t>(bytes.end - bytes.begin),
                              .left = nullptr,
                              .right = nullptr,
                              .below = below});
}

bool Frames::less(const Gap* gap, std::uint64_t size, const std::byte* at) {
  return gap->size != size ? gap->size < size : std::less<>{}(gap->begin, at);
}

Frames::Gap* Frames::merge(Gap* low, Gap* high) {
  if (low == nullptr) return high;
  if (high == nullptr) return low;
  if (priority(low->begin) > priority(high->begin)) {
    low->right = merge(low->right, high);
    return low;
  }
  high->left = merge(low, high->left);
  return high;
}

// Splits the tree into the gaps less than (size, at) and the rest.
void Frames::split(Gap* root, std::uint64_t size, const std::byte* at, Gap*& low, Gap*& high) {
  if (root == nullptr) {
    low = high = nullptr;
  } else if (less(root, size, at)) {
    split(root->right, size, at, root->right, high);
    low = root;
  } else {
    split(root->left, size, at, low, root->left);
    high = root;
  }
}

void Frames::insert_gap(Gap& gap) {
  Gap** place = &root_;
  while (*place != nullptr && priority((*place)->begin) >= priority(gap.begin)) {
    place = less(*place, gap.size, gap.begin) ? &(*place)->right : &(*place)->left;
  }
  split(*place, gap.size, gap.begin, gap.left, gap.right);
  *place = &gap;
}

void Frames::erase_gap(Gap& gap) {
  Gap** place = &root_;
  while (*place != &gap) {
    CHECK(*place != nullptr);
    place = less(*place, gap.size, gap.begin) ? &(*place)->right : &(*place)->left;
  }
  *place = merge(gap.left, gap.right);
  if (!reached_) gap.left = std::exchange(unused_, &gap);
}

// The least gap that is not less than (size, at).
Frames::Gap* Frames::at_least(std::uint64_t size, const std::byte* at) const {
  Gap* best = nullptr;
  for (Gap* gap = root_; gap != nullptr;) {
    if (less(gap, size, at)) {
      gap = gap->right;
    } else {
      best = gap;
      gap = gap->left;
    }
  }
  return best;
}

}  // namespace headrace
