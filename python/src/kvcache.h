// SPDX-License-Identifier: Apache-2.0
// The bindings of KV stores, in three parts: the store, what it gives, and jobs.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "handles.h"
#include "types.h"

namespace headrace::python {

// The keys, 16 bytes each.
std::vector<nb::bytes> bytes_of(std::span<const kvcache::Key> keys);

// The user's memory: one extent, or one for each block. Its objects live until the engines are done
// with them, whatever Python drops meanwhile.
struct Memory {
  explicit Memory(const std::vector<ExtentLike>& given) {
    std::vector<ObjectPointer> objects;
    for (const ExtentLike& extent : given) {
      extents.push_back(extent.get());
      if (objects.empty() || objects.back() != extent.object) objects.push_back(extent.object);
    }
    keep = {new std::vector(std::move(objects)), [](const std::vector<ObjectPointer>* kept) {
              const NoPython scope;
              delete kept;
            }};
  }

  std::vector<Extent> extents;
  std::shared_ptr<const void> keep;
};

// Geometry, counts, Match, Load, Stored.
void bind_kv_handles(nb::module_& m);
// Loads and stores that a thread begins.
void bind_kv_jobs(nb::module_& m);

}  // namespace headrace::python
