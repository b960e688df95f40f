// SPDX-License-Identifier: Apache-2.0
// Things with bytes, and ranges of them: what is moved and cached.
//
// An Object has an id that is never used twice, a size and a home node. The size of a File may
// grow (File::update_size); no other changes. Its kinds: Buffer (memory
// Headrace allocated, buffer.h), MemoryRange and DeviceRange (memory of somebody else), File
// (file.h). An Extent is a range of an object; it borrows it, as a span borrows its array.
//
// Objects are neither copied nor moved, so that extents stay good. Thread-compatible: reading the
// description of an object is Thread-safe; the bytes are the user's to synchronise.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "headrace/export.h"
#include "headrace/units.h"

namespace HEADRACE_API headrace {

class Object {
 public:
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;

  ObjectId id() const { return id_; }
  Bytes size() const { return size_.load(); }
  // Where its bytes live: for memory spread over nodes, the first of its placement. Only relocate()
  // (buffer.h) changes it.
  NodeId node() const { return node_.load(); }
  // Its bytes if a CPU can address them; nullptr for a file, and for the memory of a GPU.
  std::byte* memory() const { return memory_; }
  // Where code of a GPU finds the bytes (a CUdeviceptr), if they are in memory that only GPUs
  // reach.
  std::optional<std::uint64_t> device_address() const { return device_address_; }

 protected:
  Object(Bytes size, NodeId node, std::byte* memory,
         std::optional<std::uint64_t> device_address = {});
  ~Object() = default;
  void moved_to(NodeId node) { node_.store(node); }
  // Extents that are valid stay so: a smaller size is ignored.
  void grown_to(Bytes size) {
    for (Bytes now = size_.load(); now < size && !size_.compare_exchange_weak(now, size);) {
    }
  }

 private:
  const ObjectId id_;
  std::atomic<Bytes> size_;
  std::atomic<NodeId> node_;
  std::byte* const memory_;
  const std::optional<std::uint64_t> device_address_;
};

// Memory that others keep alive longer than this object; a file mapped there must not shrink.
class MemoryRange final : public Object {
 public:
  MemoryRange(std::span<std::byte> bytes, NodeId node)
      : Object(Bytes{bytes.size()}, node, bytes.data()) {}
};

// Memory of a GPU that somebody else allocated and keeps alive longer than this object; `node` is
// that GPU.
class DeviceRange final : public Object {
 public:
  DeviceRange(std::uint64_t device_address, Bytes size, NodeId node)
      : Object(size, node, nullptr, device_address) {}
};

// Bytes [offset, offset + length) of an object, which it borrows.
struct Extent {
  const Object* object = nullptr;
  std::uint64_t offset = 0;
  Bytes length;

  std::uint64_t end() const { return offset + length.value; }
  // Inside its object, without overflow.
  bool valid() const {
    return object != nullptr && offset <= object->size().value &&
           length.value <= object->size().value - offset;
  }
  // Its bytes if a CPU can address them; else nullptr. Requires: valid().
  std::byte* memory() const {
    return object->memory() == nullptr ? nullptr : object->memory() + offset;
  }
  // Its part [from, from + length). Requires: inside this extent.
  Extent part(std::uint64_t from, Bytes part_length) const {
    return {object, offset + from, part_length};
  }
  friend bool operator==(const Extent&, const Extent&) = default;
};

// All of an object.
inline Extent whole(const Object& object) { return {&object, 0, object.size()}; }

// Whether two extents inside their objects share a byte: by address where both are in memory of the
// host or both in memory of GPUs, else by offset in one object.
inline bool overlap(const Extent& a, const Extent& b) {
  const auto apart = [&](auto first, auto second) {
    return first + a.length.value <= second || second + b.length.value <= first;
  };
  if (a.length.value == 0 || b.length.value == 0) return false;
  if (a.object == b.object) return !apart(a.offset, b.offset);
  if (a.object->memory() != nullptr && b.object->memory() != nullptr) {
    return !apart(a.memory(), b.memory());
  }
  const auto first = a.object->device_address();
  const auto second = b.object->device_address();
  return first && second && !apart(*first + a.offset, *second + b.offset);
}

static_assert(sizeof(Extent) == 24);

}  // namespace HEADRACE_API headrace
