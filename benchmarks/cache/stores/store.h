// SPDX-License-Identifier: Apache-2.0
// The common interface of the implementations, so that one loop times them all.
//
// A store keeps copies of the blocks of a Source within a budget. access() returns a pin at once,
// or when the block is read. The bytes() of a pin stay valid until it is destroyed. Nothing is
// virtual: each loop is compiled for each implementation. Thread-safe; a pin has one thread at a
// time.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>
#include <utility>

#include "benchmarks/cache/stores/source.h"
#include "headrace/units.h"

namespace headrace::cache_bench {

inline constexpr std::size_t kBatch = 16;

template <class S>
concept Store = std::default_initializable<typename S::Pin> && std::movable<typename S::Pin> &&
                requires(S& store, const Source& source, const typename S::Pin& pin) {
                  // Errors: those of its parts. Borrows the source.
                  { S::make(source, Bytes{}) } -> std::same_as<Result<std::unique_ptr<S>>>;
                  { store.access(std::uint64_t{}) } -> std::same_as<typename S::Pin>;
                  // Null: the block could not be read.
                  { pin.bytes() } -> std::same_as<const std::byte*>;
                  // Whether the block was there without reading it first.
                  { pin.ready() } -> std::same_as<bool>;
                  // Accesses that found no copy. Exact when none is running.
                  { store.misses() } -> std::same_as<std::uint64_t>;
                };

// kBatch pins, one access after the other.
template <class S>
class OneByOne {
 public:
  void access(S& store, std::span<const std::uint32_t, kBatch> blocks) {
    for (std::size_t i = 0; i < kBatch; ++i) pins_[i] = store.access(blocks[i]);
  }
  const std::byte* bytes(std::size_t i) const { return pins_[i].bytes(); }
  void release() {
    for (auto& pin : pins_) pin = {};
  }

 private:
  std::array<typename S::Pin, kBatch> pins_;
};

// kBatch pins at a time. A store that looks up many blocks in one call has a batch of its own.
template <class S>
class BatchOf : public OneByOne<S> {};

// Bytes that live as long as a pin holds them: the pins of the peers.
using Held = std::shared_ptr<std::byte>;

struct Free {
  void operator()(std::byte* bytes) const { std::free(bytes); }
};

// Memory for a block of `length` bytes, aligned for reads past the page cache.
inline std::byte* new_bytes(const Source& source, std::uint64_t block) {
  const std::uint64_t length = source.place(block).length;
  void* bytes = source.memory(block) != nullptr ? std::malloc(length)  // as `new` would
                                                : std::aligned_alloc(4096, length);
  return static_cast<std::byte*>(bytes);
}

// A copy of the block for its reader, of which no store knows. Empty: it could not be read.
inline Held read_copy(const Source& source, std::uint64_t block) {
  Held bytes(new_bytes(source, block), Free{});
  if (bytes == nullptr || !source.read(block, bytes.get())) return {};
  return bytes;
}

// For a store without space: the source if a CPU can address it, else a copy.
inline Held uncached(const Source& source, std::uint64_t block) {
  if (const std::byte* memory = source.memory(block)) {
    return Held(Held{}, const_cast<std::byte*>(memory));  // owns nothing
  }
  return read_copy(source, block);
}

// A pin that is Held.
class HeldPin {
 public:
  HeldPin() = default;
  HeldPin(Held bytes, bool ready) : bytes_(std::move(bytes)), ready_(ready) {}
  const std::byte* bytes() const { return bytes_.get(); }
  bool ready() const { return ready_; }

 private:
  Held bytes_;
  bool ready_ = false;
};

// Most victims among pins that a peer examines before it gives up.
inline constexpr unsigned kVictims = 64;

}  // namespace headrace::cache_bench
