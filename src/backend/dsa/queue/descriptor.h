// SPDX-License-Identifier: Apache-2.0
// The formats that an Intel DSA device reads and writes: 64-byte descriptors, 32-byte completion
// records.
//
// This header has only the format and helpers to fill it in. Submission and the handling of records
// are elsewhere. Source: "Intel Data Streaming Accelerator Architecture Specification"
// 341204-006US, rev. 3.0 (June 2025), sections 8.1 to 8.3; SPEC below. Plain data.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace headrace::dsa {

// SPEC table 8-2: the operations in use. Devices have others, too.
enum class Opcode : std::uint8_t {
  noop = 0x00,
  batch = 0x01,
  memmove = 0x03,
};

// SPEC table 8-3; bits 0 to 23 of Descriptor::command.
namespace flag {
inline constexpr std::uint32_t record_valid = 1U << 2;    // a completion record exists
inline constexpr std::uint32_t request_record = 1U << 3;  // write it on success too
inline constexpr std::uint32_t to_cache = 1U << 8;  // destination goes to the cache, not to memory
}  // namespace flag

// An order for the device. All fields that an operation does not use must be 0 (else status 0x12).
struct alignas(64) Descriptor {
  std::uint32_t owner = 0;    // PASID and privilege: the CPU or the kernel fills them in
  std::uint32_t command = 0;  // flags in bits 0 to 23, opcode above
  std::uint64_t record = 0;   // address of the completion record
  std::uint64_t source = 0;   // of a batch: the descriptor list
  std::uint64_t destination = 0;
  std::uint32_t size = 0;  // bytes; for a batch: descriptors
  std::uint16_t interrupt = 0;
  std::uint16_t reserved = 0;
  std::array<std::uint64_t, 3> extra{};  // of other operations

  Opcode opcode() const { return static_cast<Opcode>(command >> 24); }
  std::uint32_t flags() const { return command & 0xffffff; }
  bool has(std::uint32_t flags) const { return (command & flags) == flags; }
  void set(Opcode opcode, std::uint32_t flags) {
    command = std::uint32_t{static_cast<std::uint8_t>(opcode)} << 24 | flags;
  }
  friend bool operator==(const Descriptor&, const Descriptor&) = default;
};
static_assert(sizeof(Descriptor) == 64 && std::is_trivially_copyable_v<Descriptor>);
static_assert(offsetof(Descriptor, size) == 32 && offsetof(Descriptor, extra) == 40);

// SPEC table 8-9: the codes that the descriptors of a copy can get.
enum class Code : std::uint8_t {
  none = 0x00,  // no answer yet; a device never writes it
  success = 0x01,
  page_fault = 0x03,
  page_request_refused = 0x04,
  batch_failed = 0x05,      // an operation of the batch did not succeed
  batch_list_fault = 0x06,  // the rest of the list could not be read
  bad_opcode = 0x10,
  bad_flags = 0x11,
  reserved_field = 0x12,
  bad_size = 0x13,
  bad_count = 0x14,
  bad_value = 0x15,
  overlap = 0x16,
  list_alignment = 0x18,
  bad_interrupt = 0x19,
  record_fault = 0x1a,      // never in a record, since there is none
  record_alignment = 0x1b,  // likewise
  bad_alignment = 0x1c,
  privilege = 0x1d,
  traffic_class = 0x1e,
  hardware = 0x20,
};

// SPEC 8.2. The device's answer. The submitter sets `status` to 0 before. Only page faults give
// more than their code.
struct alignas(32) Record {
  std::uint8_t status = 0;  // bits 6:0: the code; bit 7: a write faulted
  std::uint8_t result = 0;  // memmove that faulted: 1 ran backwards
  std::uint8_t fault_info = 0;
  std::uint8_t reserved = 0;
  std::uint32_t completed = 0;  // bytes before the fault, descriptors of a batch; 0 after success
  std::uint64_t fault_address = 0;
  std::array<std::uint64_t, 2> extra{};

  // A status with bit 6, which no code has, is unknown. Without this rule some
  // would look like success.
  Code code() const { return static_cast<Code>(status & 0x7f); }
};
static_assert(sizeof(Record) == 32 && std::is_trivially_copyable_v<Record>);
static_assert(offsetof(Record, fault_address) == 8 && offsetof(Record, extra) == 16);

// The operations that a device, or one of its work queues, supports: a bit per opcode, as in op_cap
// and op_config.
class Opcodes {
 public:
  bool has(Opcode opcode) const { return (words_[word(opcode)] >> bit(opcode) & 1) != 0; }
  void set(Opcode opcode, bool on = true) {
    const std::uint64_t mask = std::uint64_t{1} << bit(opcode);
    words_[word(opcode)] = on ? words_[word(opcode)] | mask : words_[word(opcode)] & ~mask;
  }
  // Words of 64 opcodes, the lowest first.
  std::array<std::uint64_t, 4>& words() { return words_; }
  const std::array<std::uint64_t, 4>& words() const { return words_; }
  friend Opcodes operator&(Opcodes a, const Opcodes& b) {
    for (std::size_t i = 0; i < a.words_.size(); ++i) a.words_[i] &= b.words_[i];
    return a;
  }
  friend bool operator==(const Opcodes&, const Opcodes&) = default;

 private:
  static std::size_t word(Opcode opcode) { return static_cast<std::size_t>(opcode) / 64; }
  static unsigned bit(Opcode opcode) { return static_cast<unsigned>(opcode) % 64; }
  std::array<std::uint64_t, 4> words_{};
};

}  // namespace headrace::dsa
