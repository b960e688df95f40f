// SPDX-License-Identifier: Apache-2.0
// The bindings of KV stores, in two parts: the store, and what it gives.
#pragma once

#include <span>
#include <vector>

#include "types.h"

namespace headrace::python {

// The keys, 16 bytes each.
std::vector<nb::bytes> bytes_of(std::span<const kvcache::Key> keys);
// Geometry, counts, Match, Load, Stored.
void bind_kv_handles(nb::module_& m);

}  // namespace headrace::python
