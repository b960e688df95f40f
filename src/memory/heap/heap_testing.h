// SPDX-License-Identifier: Apache-2.0
// Helpers of this folder's tests: this host, heaps on its first node, patterns in objects.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstring>
#include <memory>
#include <utility>

#include "headrace/heap.h"
#include "headrace/machine.h"

namespace headrace {

inline const Machine& this_host() {
  static const Machine machine = Machine::discover({.storage = {}}).value();
  return machine;
}

inline NodeId first_node() { return this_host().of_kind(NodeKind::dram).front()->id; }

inline std::unique_ptr<Heap> open_heap(HeapOptions options = {}) {
  return Heap::open(this_host(), Placement::on(first_node()), options).value();
}

inline std::unique_ptr<Heap> open_heap(const std::shared_ptr<Budget>& budget) {
  return open_heap(HeapOptions{.budget = budget});
}

// Writes a pattern that identifies an object, and checks that it is intact.
inline void fill(void* object, std::size_t size, unsigned seed) {
  std::memset(object, static_cast<int>(seed * 37 % 251 + 1), size);
}
inline bool filled(const void* object, std::size_t size, unsigned seed) {
  const auto* const bytes = static_cast<const unsigned char*>(object);
  return size == 0 ||
         (bytes[0] == seed * 37 % 251 + 1 && std::memcmp(bytes, bytes + 1, size - 1) == 0);
}

}  // namespace headrace
