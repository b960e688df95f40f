#include "cache/entry.h"

#include <utility>

#include "core/check.h"

namespace headrace {

CacheEntry& EntryPool::take() {
  if (free_ == nullptr) {
    chunks_.push_back(std::make_unique<CacheEntry[]>(kChunk));
    for (std::size_t i = kChunk; i-- > 0;) give(chunks_.back()[i]);
  }
  auto& entry = static_cast<CacheEntry&>(*free_);
  free_ = std::exchange(entry.newer, nullptr);
  entry.word = static_cast<std::uint32_t>(BlockState::filling);
  entry.by_prefetch = entry.used = entry.detached = entry.chosen = 0;
  return entry;
}

void EntryPool::give(CacheEntry& entry) {
  DCHECK(entry.data == nullptr && entry.pins == 0 && entry.planned == 0);
  entry.word = static_cast<std::uint32_t>(BlockState::absent);
  delete std::exchange(entry.fill, nullptr);
  entry.newer = free_;
  free_ = &entry;
}

}  // namespace headrace
