// SPDX-License-Identifier: Apache-2.0
// Objects with bytes, and ranges of them: the units of moving and caching.
//
// An Object has an id that is never used twice, a size and a home node. Only the size of a File may
// grow (File::update_size). Kinds: Buffer (memory allocated by Headrace, buffer.h), MemoryRange and
// DeviceRange (memory of another owner), File (file.h), UserSource (storage/user_source.h). An
// Extent is a range of an object, which it borrows like a span borrows its array.
//
// Objects are neither copied nor moved, so extents stay valid. Thread-compatible: reading an
// object's description is Thread-safe; the user synchronises access to its bytes.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "headrace/export.h"
#include "headrace/units.h"

namespace HEADRACE_API headrace {

class UserSource;

class Object {
 public:
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;

  ObjectId id() const { return id_; }
  Bytes size() const { return size_.load(); }
  // The node of its bytes. For memory spread over nodes, the first node of its placement. Only
  // relocate() (buffer.h) changes it.
  NodeId node() const { return node_.load(); }
  // Its bytes if a CPU can address them; nullptr for a file, a UserSource and a GPU's own memory.
  std::byte* memory() const { return memory_; }
  // Itself, if its bytes come from code of the user; else nullptr.
  UserSource* user_source() const { return user_source_; }
  // The address for GPU code (a CUdeviceptr) if the bytes are in memory that only GPUs reach.
  std::optional<std::uint64_t> device_address() const { return device_address_; }

 protected:
  friend class UserSource;
  Object(Bytes size, NodeId node, std::byte* memory,
         std::optional<std::uint64_t> device_address = {});
  ~Object() = default;
  void moved_to(NodeId node) { node_.store(node); }
  // Valid extents stay valid: a smaller size is ignored.
  void grown_to(Bytes size) {
    for (Bytes now = size_.load(); now < size && !size_.compare_exchange_weak(now, size);) {
    }
  }

 private:
  const ObjectId id_;
  std::atomic<Bytes> size_;
  std::atomic<NodeId> node_;
  std::byte* const memory_;
  UserSource* user_source_ = nullptr;  // constant after construction
  const std::optional<std::uint64_t> device_address_;
};

// Memory of another owner, which must outlive this object; a file mapped there must not shrink.
class MemoryRange final : public Object {
 public:
  MemoryRange(std::span<std::byte> bytes, NodeId node)
      : Object(Bytes{bytes.size()}, node, bytes.data()) {}
};

// GPU memory of another owner, which must outlive this object; `node` is that GPU.
class DeviceRange final : public Object {
 public:
  DeviceRange(std::uint64_t device_address, Bytes size, NodeId node)
      : Object(size, node, nullptr, device_address) {}
};

// Bytes [offset, offset + length) of an object, which the extent borrows.
struct Extent {
  const Object* object = nullptr;
  std::uint64_t offset = 0;
  Bytes length;

  std::uint64_t end() const { return offset + length.value; }
  // True if it is inside its object, without overflow.
  bool valid() const {
    return object != nullptr && offset <= object->size().value &&
           length.value <= object->size().value - offset;
  }
  // Its bytes if a CPU can address them, else nullptr. Requires: valid().
  std::byte* memory() const {
    return object->memory() == nullptr ? nullptr : object->memory() + offset;
  }
  // The part [from, from + length) of this extent. Requires: inside this extent.
  Extent part(std::uint64_t from, Bytes part_length) const {
    return {object, offset + from, part_length};
  }
  friend bool operator==(const Extent&, const Extent&) = default;
};

// All bytes of an object.
inline Extent whole(const Object& object) { return {&object, 0, object.size()}; }

// True if two extents inside their objects share a byte. Compares addresses if both are in host
// memory or both in GPU memory, else offsets in one object.
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
