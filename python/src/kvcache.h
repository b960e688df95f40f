// SPDX-License-Identifier: Apache-2.0
// The bindings of KV stores, in four parts: the store, what it gives, jobs,
// and blocks of another process's store.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "handles.h"
#include "types.h"

namespace headrace::python {

template <>
struct Words<kvcache::Layout> {
  static constexpr const char* what = "layout";
  static constexpr auto name =
      nb::detail::const_name("typing.Literal['page_first', 'layer_first']");
  static constexpr kvcache::Layout last = kvcache::Layout::layer_first;
};

// The keys of names.
std::vector<kvcache::Key> keys_of(const std::vector<nb::bytes>& keys);
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
// Blocks of another process's store.
void bind_kv_shared(nb::module_& m);

}  // namespace headrace::python
