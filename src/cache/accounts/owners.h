// SPDX-License-Identifier: Apache-2.0
// The tenants of objects: accesses to an object that name no tenant are those of its tenant.
//
// A lookup takes no lock unless the table changes meanwhile. It reads an open-addressing table of
// atomic words between two looks at a version, which is odd during a change. Outgrown tables stay:
// a lookup may still read them.
//
// Thread-safe.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "cache/accounts/tenants.h"
#include "core/mutex.h"
#include "headrace/cache.h"

namespace headrace {

class ObjectTenants {
 public:
  // TenantId{}: nobody's. Throws bad_alloc, and then has changed nothing.
  void set(ObjectId object, TenantId tenant);
  // The tenant of an access that names `named`. Not for a child of fork(): may wait for ever.
  TenantId of(const Object* object, TenantId named) const {
    if (named != TenantId{} || object == nullptr || table_.load() == nullptr) return named;
    return find(object->id());
  }

 private:
  // A word is an object's number and its tenant; 0: empty. At most half of them are in use.
  using Table = std::vector<std::atomic<std::uint64_t>>;
  static constexpr unsigned kTenantBits = 5;

  static std::uint64_t object_of(std::uint64_t word) { return word >> kTenantBits; }
  static std::size_t home_of(const Table& table, std::uint64_t object) {
    return static_cast<std::size_t>(object * 0x9e3779b97f4a7c15 >> 20) & (table.size() - 1);
  }
  // The place of the object, or the empty one where it would be.
  static std::size_t place_of(const Table& table, std::uint64_t object);
  static TenantId find_in(const Table& table, ObjectId object);
  TenantId find(ObjectId object) const;
  void make_room() REQUIRES(mutex_);
  static void remove(Table& table, std::size_t at);

  mutable Mutex mutex_;
  std::vector<std::unique_ptr<Table>> tables_ GUARDED_BY(mutex_);  // the last is in use
  std::size_t count_ GUARDED_BY(mutex_) = 0;                       // objects in it
  std::atomic<const Table*> table_{nullptr};
  std::atomic<std::uint64_t> version_{0};
};

// Shared by the shards of a cache. Thread-safe.
struct Accounts {
  explicit Accounts(const CacheOptions& options) : pins(options) {}

  ObjectTenants owners;
  TenantPins pins;
};

}  // namespace headrace
