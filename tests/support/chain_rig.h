// SPDX-License-Identifier: Apache-2.0
// Options of a CacheRig with a chain of memories: node 0, then 8 and 9. Their slabs are ordinary
// memory that claims to be there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <vector>

#include "tests/support/cache_rig.h"

namespace headrace::test {

inline constexpr NodeId kFar{9};

class MadeUpSlab final : public Object {
 public:
  MadeUpSlab(NodeId node, Bytes bytes)
      : Object(bytes, node, static_cast<std::byte*>(::operator new(bytes.value, kPage))) {}
  ~MadeUpSlab() { ::operator delete(memory(), kPage); }

 private:
  static constexpr std::align_val_t kPage{4096};
};

// Makes nodes 8 and 9 further memories, with these budgets.
inline void add_chain(CacheOptions& options, const std::vector<std::uint64_t>& further) {
  for (const std::uint64_t budget : further) {
    options.chain.push_back({options.chain.empty() ? kHbm : kFar, Bytes{budget}});
  }
  if (further.empty()) return;
  options.allocate = [](NodeId node, Bytes bytes) -> Result<std::shared_ptr<const Object>> {
    return std::make_shared<MadeUpSlab>(node, bytes);
  };
}

inline CacheRig::Options chain_of(std::uint64_t first, const std::vector<std::uint64_t>& further) {
  CacheRig::Options options;
  options.fake.inside_chance = 0;
  options.budget = Bytes{first};
  options.observe = false;
  options.cache.slab = 4096_B;
  options.cache.shards = 1;
  add_chain(options.cache, further);
  return options;
}

}  // namespace headrace::test
