// SPDX-License-Identifier: Apache-2.0
// Operations on memory that Intel DSA devices do besides copying for a Mover: checksums, deltas of
// pages, comparisons, fills, copies to two places.
//
// A program of operations is run to its end by the queues of one device, and by the calling core
// where the device cannot or will not do one. Without any device the core does them all with the
// same results, so that a user needs no second path. Not a queue: run() waits. On a real machine a
// device pays from some KiB per operation and several operations per program on; it reads and
// writes the memory of the process itself, and pages that are missing are brought in.
//
// Operations are plain values that borrow their bytes, which must live until run() returns. Only
// where a comment says so may the ranges of one operation overlap. A client is Thread-safe, moving
// it Single-thread; several threads that run programs share its queues.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <variant>
#include <vector>

#include "headrace/copy.h"
#include "headrace/export.h"
#include "headrace/result.h"

namespace headrace::dsa {
class Client;
}

namespace HEADRACE_API headrace {

// What can be asked for. Ranges of one operation, but for delta records, have the same length.
namespace dsa {

struct Copy {  // as memmove: the ranges may overlap
  std::span<std::byte> to;
  std::span<const std::byte> from;
};

struct Dualcast {  // a copy to two places with one reading
  std::span<std::byte> to;
  std::span<std::byte> and_to;  // a device wants it at the same place in its page as `to`
  std::span<const std::byte> from;
};

struct Fill {
  std::span<std::byte> to;
  std::uint64_t pattern = 0;  // its lowest byte first, over and over
  // If given, 16 bytes are repeated: `pattern`, then these.
  std::optional<std::uint64_t> and_pattern = {};
};

struct Compare {
  std::span<const std::byte> bytes;  // these two may overlap
  std::span<const std::byte> with;
};

struct ComparePattern {
  std::span<const std::byte> bytes;
  std::uint64_t pattern = 0;  // as Fill's
};

// The usual CRC-32C (of iSCSI, ext4, RocksDB). The seed of what follows is the CRC so far.
struct Crc32c {
  std::span<const std::byte> bytes;
  std::uint32_t seed = 0;
};

struct CopyCrc32c {  // both with one reading
  std::span<std::byte> to;
  std::span<const std::byte> from;
  std::uint32_t seed = 0;
};

// Writes into `record` what makes `changed` of `old`: 10 bytes for each word of 8 that differs. All
// addresses and the length of `old` are multiples of 8; at most 512 KiB.
struct CreateDelta {
  std::span<const std::byte> old;  // these two may overlap
  std::span<const std::byte> changed;
  std::span<std::byte> record;  // room; a device wants 80 bytes
};

// Makes the changed bytes of the old ones in place. The same limits. A record that names words
// beyond the end is invalid; those in front of it are written then.
struct ApplyDelta {
  std::span<std::byte> to;
  std::span<const std::byte> record;  // exactly what CreateDelta wrote: DsaOutcome::delta
};

struct Flush {  // its lines leave the caches for memory; nothing on CPUs other than x86
  std::span<const std::byte> bytes;
};

}  // namespace dsa

struct DsaOperation {
  std::variant<dsa::Copy, dsa::Dualcast, dsa::Fill, dsa::Compare, dsa::ComparePattern, dsa::Crc32c,
               dsa::CopyCrc32c, dsa::CreateDelta, dsa::ApplyDelta, dsa::Flush>
      what;
  // Begins when all before it in the program are done, and sees what they wrote.
  bool fenced = false;
  // keep: what is written goes to the cache of the CPU, where the device can do that.
  CopyHint hint = CopyHint::automatic;
};

// What an operation found.
struct DsaOutcome {
  // Compare, ComparePattern: offset of the first byte that differs; nothing: all are equal.
  std::optional<std::size_t> difference = {};
  // Crc32c, CopyCrc32c.
  std::optional<std::uint32_t> crc = {};
  // CreateDelta: the part of its record in use, empty where nothing differs; nothing: they did not
  // fit, and the record is undefined.
  std::optional<std::span<const std::byte>> delta = {};
};

// Operations, by who did them; those that ended with an Error of the device are in neither.
struct DsaStats {
  std::uint64_t by_device = 0;
  std::uint64_t by_cpu = 0;      // wholly or from where the device stopped
  std::uint64_t unable = 0;      // of them: nothing for a device, or there is none
  std::uint64_t given_back = 0;  // of them: it failed, or did not answer
};

// Runs programs on one device, or without one. In a child of fork() the core does everything.
// Move-only.
class DsaClient {
 public:
  // Without a device.
  DsaClient();
  // By all queues of a device that this process can open; `device` is the name of its engine in a
  // Machine, or of its finding (examine_dsa). absent: there is none; denied, exhausted,
  // unsupported: none of its queues can be opened, with the reason of the first. Where that is no
  // matter: DsaClient::open("dsa0").value_or(DsaClient()).
  static Result<DsaClient> open(std::string_view device);
  DsaClient(DsaClient&& other) noexcept;
  DsaClient& operator=(DsaClient&& other) noexcept;
  ~DsaClient();

  // Runs them and waits; an outcome or an Error for each. Operations that no fence parts run in any
  // order or at once. Requires: none of them writes to what another of them reads or writes; nobody
  // else writes there either.
  //
  // invalid: lengths that differ, ranges that overlap, a delta beyond its limits; then nothing of
  // the program is run (the others are cancelled). Also, while it runs: memory that is not this
  // process's, a delta record of something else. timed_out, io: the device lost or spoilt a copy
  // onto itself, whose bytes are undefined now; all else that it loses is done again. cancelled:
  // not run, for one before its fence failed. It ends: a queue that does not answer within 5 s is
  // given up.
  std::vector<Result<DsaOutcome>> run(std::span<const DsaOperation> program);
  Result<DsaOutcome> run(const DsaOperation& operation);

  DsaStats stats() const;

  // For tests: on a device made of software.
  explicit DsaClient(std::unique_ptr<dsa::Client> client);

 private:
  std::unique_ptr<dsa::Client> client_;
};

}  // namespace HEADRACE_API headrace
