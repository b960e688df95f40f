// SPDX-License-Identifier: Apache-2.0
// Quantities and ids as types, so that the compiler rejects a byte count used as a node or a time.
//
// Unknown quantities are std::optional, never 0 or -1. Thread-compatible.
#pragma once

#include <chrono>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>

#include "headrace/export.h"

namespace HEADRACE_API headrace {

// A number of bytes.
struct Bytes {
  std::uint64_t value = 0;

  friend auto operator<=>(const Bytes&, const Bytes&) = default;
  friend constexpr Bytes operator+(Bytes a, Bytes b) { return {a.value + b.value}; }
  friend constexpr Bytes operator-(Bytes a, Bytes b) { return {a.value - b.value}; }
  friend constexpr Bytes operator*(Bytes a, std::uint64_t n) { return {a.value * n}; }
  friend constexpr Bytes operator/(Bytes a, std::uint64_t n) { return {a.value / n}; }
  friend constexpr std::uint64_t operator/(Bytes a, Bytes b) { return a.value / b.value; }
  constexpr Bytes& operator+=(Bytes b) { return value += b.value, *this; }
  constexpr Bytes& operator-=(Bytes b) { return value -= b.value, *this; }
};

constexpr Bytes operator""_B(unsigned long long n) { return {n}; }
constexpr Bytes operator""_KiB(unsigned long long n) { return {n << 10}; }
constexpr Bytes operator""_MiB(unsigned long long n) { return {n << 20}; }
constexpr Bytes operator""_GiB(unsigned long long n) { return {n << 30}; }

// A time span, or a point in time of a Clock.
using Nanoseconds = std::chrono::nanoseconds;

// Exact to one rounding: 1e9 is exact, and multiplying by 1e-9 would round twice.
constexpr double seconds(Nanoseconds t) { return static_cast<double>(t.count()) / 1e9; }

// A rate of payload: each byte moved counts once (a copy of n bytes moves n, not 2n).
struct BytesPerSecond {
  double value = 0;

  friend auto operator<=>(const BytesPerSecond&, const BytesPerSecond&) = default;
};

// Requires: time > 0.
constexpr BytesPerSecond operator/(Bytes bytes, Nanoseconds time) {
  return {static_cast<double>(bytes.value) / seconds(time)};
}

// Requires: rate > 0.
constexpr Nanoseconds operator/(Bytes bytes, BytesPerSecond rate) {
  return Nanoseconds{
      static_cast<std::int64_t>(static_cast<double>(bytes.value) / rate.value * 1e9)};
}

// "64 KiB", "1.5 GiB": binary units, at most one decimal.
std::string to_string(Bytes bytes);
// "24.1 GB/s", "7.98 GB/s": decimal units, as usual for bandwidths, three digits.
std::string to_string(BytesPerSecond rate);

// A node of one machine. Memory nodes have the kernel's NUMA numbers. Storage devices are numbered
// from 1000, GPUs from 2000.
enum class NodeId : std::uint32_t {};
inline constexpr std::uint32_t kFirstStorageNode = 1000;
inline constexpr std::uint32_t kFirstGpuNode = 2000;
// An engine of one machine, numbered from 0 in the order of Machine::engines.
enum class EngineId : std::uint32_t {};
// An object of this process. Never reused, so a stale id finds nothing.
enum class ObjectId : std::uint64_t {};

template <class Id>
  requires std::is_enum_v<Id>
constexpr auto raw(Id id) {
  return static_cast<std::underlying_type_t<Id>>(id);
}

static_assert(std::is_trivially_copyable_v<Bytes> && sizeof(Bytes) == 8);

}  // namespace HEADRACE_API headrace
