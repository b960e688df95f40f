// SPDX-License-Identifier: Apache-2.0
// An object whose bytes come from code of the user: an object store, a decompressor, a database.
// Its extents can be moved and cached like those of a File, and never written.
//
//   class Unpacked final : public UserSource {
//    public:
//     Unpacked(Bytes size, NodeId ssd, std::string etag) : UserSource(size, ssd, etag) {}
//     Result<Bytes> read(std::uint64_t offset, std::span<std::byte> to) override;
//   };
//   const Block block = cache.access(whole(unpacked));  // a thread of the backend calls read()
//
// Promises:
// - At most StorageOptions::threads (16) calls of read() run at once for each Backends. A copy
//   calls it once per piece, in any order. Pieces are cut at multiples of chunk().
// - A short read, an exception and a changed version fail the copy: no access sees its bytes.
//
// Requires: as for every object, it lives until no copy of it is in flight (Cache::forget). Each
// read() ends in bounded time: Block::wait() ends after its timeout, but forget() and the
// destructors of Cache and Backends wait for read().
//
// Thread-safe, and read() and version() must be.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "headrace/export.h"
#include "headrace/object.h"
#include "headrace/result.h"

namespace HEADRACE_API headrace {

class UserSource : public Object {
 public:
  static constexpr Bytes kMostBytes{(std::uint64_t{1} << 63) - 1};

  virtual ~UserSource();

  // Fills `to` with the bytes from `offset` on, and returns their number. The range is inside the
  // object. Fewer bytes than asked for are an error. Called without a lock; must not use the Mover
  // or the cache of the copy, whose threads may wait for it. May throw.
  virtual Result<Bytes> read(std::uint64_t offset, std::span<std::byte> to) = 0;

  // The version of the bytes now, for example an ETag. Called after each read(). If it differs from
  // the one of the constructor, the copy fails, and the new bytes need a new UserSource. By
  // default, the bytes never change.
  virtual Result<std::string> version() { return version_; }

  // The unit that read() produces at once, for example a compressed block; the last one may be
  // shorter. Accesses, reads and plans of a Cache fetch whole chunks, so that those inside a chunk
  // produce it once while it is cached. A chunk without space is cut, and copies to a GPU may cut
  // chunks.
  Bytes chunk() const { return chunk_; }

  // read(), with the checks above. Errors: io: a short read, an exception, another version; those
  // of read() and version().
  Status read_whole(std::uint64_t offset, std::span<std::byte> to) noexcept;

 protected:
  // Requires: at most kMostBytes; chunk > 0. `node`: a storage node of the machine, whose engine's
  // backend calls read(). `chunk`: by default, any range costs as much as its bytes.
  UserSource(Bytes size, NodeId node, std::string version = {}, Bytes chunk = Bytes{1});

 private:
  const std::string version_;
  const Bytes chunk_;
};

}  // namespace HEADRACE_API headrace
