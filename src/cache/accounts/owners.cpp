// SPDX-License-Identifier: Apache-2.0
#include "cache/accounts/owners.h"

#include <utility>

namespace headrace {

// Bounded also while another thread changes the table.
std::size_t ObjectTenants::place_of(const Table& table, std::uint64_t object) {
  std::size_t at = home_of(table, object);
  for (std::size_t looks = 0; looks < table.size(); ++looks, at = (at + 1) & (table.size() - 1)) {
    const std::uint64_t word = table[at].load();
    if (word == 0 || object_of(word) == object) break;
  }
  return at;
}

TenantId ObjectTenants::find_in(const Table& table, ObjectId object) {
  const std::uint64_t word = table[place_of(table, raw(object))].load();
  if (object_of(word) != raw(object)) return {};
  return static_cast<TenantId>(word & ((1U << kTenantBits) - 1));
}

TenantId ObjectTenants::find(ObjectId object) const {
  const std::uint64_t before = version_.load();
  const TenantId found = find_in(*table_.load(), object);
  if (before % 2 == 0 && version_.load() == before) return found;
  const MutexLock lock(mutex_);
  return find_in(*tables_.back(), object);
}

void ObjectTenants::set(ObjectId object, TenantId tenant) {
  const MutexLock lock(mutex_);
  if (tenant == TenantId{} && tables_.empty()) return;
  if (tenant != TenantId{}) make_room();
  Table& table = *tables_.back();
  const std::size_t at = place_of(table, raw(object));
  const bool there = table[at].load() != 0;
  ++version_;
  if (tenant != TenantId{}) {
    table[at] = raw(object) << kTenantBits | number_of(tenant);
    count_ += there ? 0 : 1;
  } else if (there) {
    remove(table, at);
    --count_;
  }
  ++version_;
}

void ObjectTenants::make_room() {
  constexpr std::size_t kLeast = 16;
  const std::size_t size = tables_.empty() ? 0 : tables_.back()->size();
  if (2 * (count_ + 1) <= size) return;
  auto larger = std::make_unique<Table>(size == 0 ? kLeast : 2 * size);
  for (std::size_t i = 0; i < size; ++i) {
    const std::uint64_t word = (*tables_.back())[i].load();
    if (word != 0) (*larger)[place_of(*larger, object_of(word))] = word;
  }
  tables_.push_back(std::move(larger));
  table_ = tables_.back().get();
}

// The words behind it move up, so that a search ends at the first empty word.
void ObjectTenants::remove(Table& table, std::size_t at) {
  const std::size_t mask = table.size() - 1;
  for (std::size_t next = (at + 1) & mask;; next = (next + 1) & mask) {
    const std::uint64_t word = table[next].load();
    if (word == 0) break;
    const std::size_t home = home_of(table, object_of(word));
    if (((next - home) & mask) < ((next - at) & mask)) continue;
    table[at] = word;
    at = next;
  }
  table[at] = 0;
}

}  // namespace headrace
