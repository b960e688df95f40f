// SPDX-License-Identifier: Apache-2.0
#include "cache/structures/entry.h"

#include <utility>

#include "cache/structures/grow.h"
#include "core/check.h"

namespace headrace {

bool CacheEntry::droppable(bool planned_too) const {
  return pins == 0 && now() == BlockState::ready && dirty == 0 && (planned_too || planned == 0);
}

CacheEntry& EntryPool::take() {
  if (free_ == nullptr) {
    grow_for_one(chunks_);
    chunks_.push_back(std::make_unique<CacheEntry[]>(kChunk));
    for (std::size_t i = kChunk; i-- > 0;) give(chunks_.back()[i]);
  }
  make_fills();
  auto& entry = static_cast<CacheEntry&>(*free_);
  DCHECK(entry.pins == 0);
  free_ = std::exchange(entry.newer, nullptr);
  take_fill(entry);
  entry.word = static_cast<std::uint32_t>(BlockState::filling);
  entry.by_prefetch = entry.used = entry.chosen = 0;
  entry.visited = false;
  entry.written = entry.write_wanted = entry.dirty = entry.cleaning = 0;
  entry.detached = 1;
  entry.again = 0;
  return entry;
}

void EntryPool::make_fills() {
  if (free_fills_ != nullptr) return;
  grow_for_one(fill_chunks_);
  fill_chunks_.push_back(std::make_unique<Fill[]>(kFills));
  for (std::size_t i = 0; i < kFills; ++i) {
    free_fills_ = &fill_chunks_.back()[i];
    free_fills_->next = i == 0 ? nullptr : &fill_chunks_.back()[i - 1];
  }
}

void EntryPool::take_fill(CacheEntry& entry) {
  make_fills();
  entry.fill = free_fills_;
  free_fills_ = std::exchange(entry.fill->next, nullptr);
}

void EntryPool::give(CacheEntry& entry) {
  DCHECK(entry.data == nullptr && entry.pins == 0 && entry.planned == 0 && !entry.kept());
  DCHECK(entry.by_next_use == 0);
  DCHECK(entry.moving == 0);
  entry.word = static_cast<std::uint32_t>(BlockState::absent);
  give_fill(entry);
  entry.newer = free_;
  free_ = &entry;
}

const CacheEntry* EntryPool::any_pinned() const {
  for (const auto& chunk : chunks_) {
    for (std::size_t i = 0; i < kChunk; ++i) {
      if (chunk[i].pins > 0) return &chunk[i];
    }
  }
  return nullptr;
}

void EntryPool::give_fill(CacheEntry& entry) {
  if (entry.fill == nullptr) return;
  Fill& fill = *entry.fill;
  fill.transfer.reset();
  fill.cancelled = fill.due = fill.for_space = fill.up = false;
  fill.from = nullptr;
  fill.error.reset();
  fill.thens.clear();
  fill.next = free_fills_;
  free_fills_ = std::exchange(entry.fill, nullptr);
}

}  // namespace headrace
