// SPDX-License-Identifier: Apache-2.0
// A store of KV-cache blocks: what a language model has computed for a prefix of tokens, kept in
// the memories a machine has and on SSD, so that the prefix need not be computed again.
//
// A block is the keys and values of block_tokens tokens in all layers; one layer of it is a
// fragment. Its key says which tokens it stands for, with all before them. Tiers are ordered from
// fast to slow: memory by placement, and last perhaps a folder. A stored block goes to the first
// tier; what has to leave a tier goes to the next one that has room, and from the last it is
// dropped. What is used again and lies in a slower tier gets a copy in a faster one (promotion,
// LoadOptions). It is a cache: a block may be gone at any time, and what is served is right or an
// error.
// Not the cache of cache.h, which keeps copies of what stays elsewhere; a KV block is nowhere else
// (docs/design/kv-store.md).
//
// What a folder held is found again by the next process that opens it, but for blocks in memory
// that flush() has not written. Each fragment read from a folder is compared with its checksum
// before it is served: one that is torn, foreign or stale is dropped. One process at a time.
//
// Waits are bounded by their timeouts, and without one by the bounds of the Mover's engines.
// Store is Thread-safe. Match, Load and Stored are Thread-compatible; copies of a Load or Stored
// may be used by many threads. In a child of fork() all of it fails as unsupported, but match()
// and contains(), which find nothing, and stats(), which is all 0.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/eviction.h"
#include "headrace/export.h"
#include "headrace/mover.h"
#include "headrace/object.h"
#include "headrace/placement.h"
#include "headrace/result.h"
#include "headrace/units.h"

namespace HEADRACE_API headrace {
namespace HEADRACE_API kv {

class StoreCore;
struct LoadState;
struct StoredState;

// What decides the bytes of a block, and how many they are.
struct Geometry {
  std::string model;          // its name: part of each key
  std::string revision = {};  // whatever else the bytes depend on, such as weights
  unsigned layers = 0;
  unsigned kv_heads = 0;
  unsigned head_dim = 0;
  unsigned element_bytes = 2;
  unsigned block_tokens = 16;
  unsigned tensors = 2;  // keys and values; 1 where one latent vector stands for both (MLA)

  Bytes fragment() const;  // one layer of a block
  Bytes block() const;     // all layers
  friend bool operator==(const Geometry&, const Geometry&) = default;
};

// invalid: a count of 0, a block of more than 1 GiB.
Status check(const Geometry& geometry);

// How the blocks of a load or store lie in the user's memory, which holds a whole number of them.
enum class Layout : std::uint8_t {
  page_first,   // block after block, each with its layers one after the other
  layer_first,  // layer after layer, each with its fragments by block
};

std::string_view to_string(Layout layout);

// 128 bits of BLAKE2b (RFC 7693) over the key before, the tokens of the block and, before the
// first, the geometry. A collision would serve another prefix: by chance 10^12 blocks have one with
// probability 1e-15, and nobody knows how to make one on purpose in less than 2^64 steps.
struct Key {
  std::uint64_t low = 0;
  std::uint64_t high = 0;
  friend auto operator<=>(const Key&, const Key&) = default;
};

// The keys of the whole blocks of `tokens`, in order; a rest that fills no block has none. `salt`:
// an adapter or tenant that shares a store with others; whoever has another salt has other keys.
std::vector<Key> keys(const Geometry& geometry, std::span<const std::uint32_t> tokens,
                      std::string_view salt = {});

struct TierOptions {
  // Whole blocks of it are used. Reserves nothing on the disk of a folder; one that is full counts
  // as the budget being reached. A folder of a larger budget is cut, and loses what lay behind.
  Bytes budget;
  Placement memory = {};              // where; not used for a folder
  std::filesystem::path folder = {};  // on SSD; only the last tier, after one of memory
};

struct StoreOptions {
  Geometry geometry;
  std::vector<TierOptions> tiers = {};  // fast to slow, at most kMostTiers
  EvictionFactory eviction = s3_fifo;
  // Most bytes of stores that have not ended, of blocks on their way from a tier to a slower one,
  // and of blocks that are promoted: of each.
  Bytes in_flight = 256_MiB;
  // Layers of demand loads without deadlines are read two at a time, or more up to so many bytes,
  // first layers of more than an eighth of that before higher ones;
  // the rest is in line, where the lowest layer goes first, whichever load has it. Of eight that
  // start while it has some in line, one is of the load that was asked for first.
  Bytes load_ahead = 8_MiB;
  // Whether a thread of the store verifies and goes on. Without it those do that wait or poll().
  bool worker = true;
};

inline constexpr std::size_t kMostTiers = 6;

// The leading blocks of a prompt that are there. Holds them where they are until it goes; must not
// outlive its Store.
class Match {
 public:
  Match() = default;
  Match(Match&& other) noexcept;
  Match& operator=(Match&& other) noexcept;
  ~Match();

  std::size_t size() const { return keys_.size(); }
  std::span<const Key> keys() const { return keys_; }
  // The fastest tier that has block i, by its number in StoreOptions::tiers.
  std::span<const unsigned> tiers() const { return tiers_; }

 private:
  friend class StoreCore;
  StoreCore* core_ = nullptr;
  std::vector<Key> keys_;
  std::vector<unsigned> tiers_;
};

struct LoadOptions {
  Layout layout = Layout::page_first;
  // Where in `into` block i goes, counted in blocks; empty: one after the other.
  std::vector<std::size_t> positions = {};
  // Layer 0 of all blocks first, then layer 1 and so on, each told when it is there, and before
  // higher layers of other loads (StoreOptions::load_ahead). Otherwise whole blocks: fewer, larger
  // reads, all layers are told at the end, and it goes as one layer 0.
  bool layer_order = true;
  Priority priority = Priority::demand;
  // When layer i is wanted, from now on (not below 0); empty: at once. From kLead before it the
  // layer goes as demand, whatever `priority` says; until then as `priority`, but lets demand pass
  // it. So do its checksums, and both moves of what passes through memory of CPUs.
  std::vector<Nanoseconds> deadlines = {};
  // Promotion. Blocks that come from a folder are kept in the first tier that CPUs address, where
  // there is room for them. Those that were used before get a copy, once they are loaded and behind
  // all loads, in the fastest tier, of a GPU too, that has slots free, or has more slots than
  // blocks were used since; it pushes out none that is held, and drops
  // none in memory that cannot be written to a slower tier.
  bool promote = true;
  // With memory of a GPU: nothing is copied before what this stream (a CUstream as a number; 0: the
  // default one) has been given so far is done. One of that GPU's primary context, as PyTorch and
  // CuPy have them. Its own later work does not wait for the load: that begins it when a layer is
  // told, so that it never computes on what is not there. After kStreamBound (gpu/memory.h) it
  // fails as timed_out, before anything of it was copied.
  std::optional<std::uint64_t> stream = {};
  // Held until nothing more is copied: what owns the user's memory. Let go in any thread, as
  // on_layer() calls.
  std::shared_ptr<const void> keep = {};
};

inline constexpr Nanoseconds kLead = std::chrono::milliseconds{20};

// Blocks on their way into the user's memory, which lives until done(). A handle: dropping all of
// them neither cancels nor waits.
class Load {
 public:
  Load() = default;  // done, with no layers

  unsigned layers() const;
  bool done() const;
  // The outcome of a layer once all its fragments are there and verified. io: fragments of it could
  // not be read, were damaged, or are of a block that was so in another layer; leading() says what
  // is left. cancelled.
  std::optional<Status> poll(unsigned layer) const;
  // The same, waiting for it. timed_out: it goes on; wait again. The layer becomes urgent.
  // Requires: layer < layers().
  Status wait_layer(unsigned layer, Nanoseconds timeout = std::chrono::seconds{60}) const;
  // All layers; the first error of any.
  Status wait(Nanoseconds timeout = std::chrono::seconds{60}) const;
  // Somebody has come for the layer: from now on it goes as demand.
  void urgent(unsigned layer) const;
  // How many leading blocks have not failed so far: what can be used once it is done.
  std::size_t leading() const;
  void cancel() const;
  // Calls `then` when the layer has ended, at once if it has; from any thread, as
  // Transfer::on_done() does, and with its rules. Never in a child of fork() unless it had ended.
  void on_layer(unsigned layer, std::function<void()> then) const;

 private:
  friend class StoreCore;
  explicit Load(std::shared_ptr<LoadState> state) : state_(std::move(state)) {}
  std::shared_ptr<LoadState> state_;
};

// What became of the blocks of a store().
struct StoredCounts {
  std::size_t stored = 0;
  std::size_t present = 0;  // were there already
  std::size_t refused = 0;  // no room: too much in flight, or all is pinned
  std::size_t failed = 0;   // their copy did
  friend bool operator==(const StoredCounts&, const StoredCounts&) = default;
};

// Blocks on their way from the user's memory, which lives and keeps its bytes until done().
class Stored {
 public:
  Stored() = default;

  bool done() const;
  Result<StoredCounts> wait(Nanoseconds timeout = std::chrono::seconds{60}) const;
  std::optional<StoredCounts> poll() const;
  // As Load::on_layer().
  void on_done(std::function<void()> then) const;

 private:
  friend class StoreCore;
  explicit Stored(std::shared_ptr<StoredState> state) : state_(std::move(state)) {}
  std::shared_ptr<StoredState> state_;
};

struct StoreRequest {
  Layout layout = Layout::page_first;
  std::vector<std::size_t> positions = {};  // as of LoadOptions
  Priority priority = Priority::migration;
  std::optional<std::uint64_t> stream = {};  // as of LoadOptions; it computes the blocks
  std::shared_ptr<const void> keep = {};     // as of LoadOptions
};

struct TierStats {
  std::string name;  // "dram", the folder
  Bytes budget;      // in whole blocks
  Bytes used;
  std::uint64_t blocks = 0;
  std::uint64_t hits = 0;  // blocks loaded from it
  Bytes loaded;
  std::uint64_t arrived = 0;  // blocks that came from a faster tier, or were promoted to it
  std::uint64_t evicted = 0;  // left it; another tier has them
  std::uint64_t dropped = 0;  // left it and are gone
};

// Counts since the store was opened.
struct StoreStats {
  std::vector<TierStats> tiers;
  std::uint64_t matched = 0;  // blocks found by match()
  std::uint64_t missed = 0;   // blocks it did not find
  StoredCounts stores;
  // Blocks that could not be written to a slower tier; without those that a full disk left in
  // memory.
  std::uint64_t failed = 0;
  std::uint64_t damaged = 0;   // copies dropped that could not be read, or had other bytes
  std::uint64_t reopened = 0;  // blocks found when the store was opened
  Bytes in_flight;             // of stores, now
  Bytes pinned;                // now
  std::string last_error;      // of a tier; empty: none. It stays when all goes well again:
  std::optional<Nanoseconds> last_error_age = {};  // how long ago it was
};

class Store {
 public:
  // Borrows `mover`: it outlives the store. Allocates its memory, makes the folder if its parent
  // exists, and reads its list: in a minute, and where the disk does not answer in kShutdownBound
  // more. Not in a callback of a Mover (invalid).
  // invalid: no tiers, a budget of less than a block, memory in a file of a storage device (that is
  // what a folder is for), a folder that is not last or is alone, or with a NUL in its name, a
  // folder of another geometry or version, or with an `index` or `blocks` that is something else or
  // has a second name: those stay as they are. denied: another process has the
  // folder open, it is another user's, others may write to it, or its group may and something in it
  // may be of others (if not, the group may no more). Besides the errors of allocate() and
  // File::open().
  static Result<std::unique_ptr<Store>> open(Mover& mover, StoreOptions options);
  // close(), which must succeed. Requires: no Match is left, no call is running; not in on_layer()
  // or on_done(), whose end it would wait for.
  ~Store();
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  const Geometry& geometry() const;

  // Pins the leading blocks that are there. Starts nothing.
  Match match(std::span<const Key> keys);
  Match match(std::span<const std::uint32_t> tokens, std::string_view salt = {});

  // Copies blocks into the first tier, behind loads. A block that finds no room is refused; none
  // waits for anything but the way of others to slower tiers, and no load waits for it. invalid:
  // extents and positions that do not fit, a stream that is not of the memory's GPU.
  Result<Stored> store(std::span<const Key> keys, Extent from, const StoreRequest& request = {});

  // Copies blocks from where they are. One that another load, not much larger and as urgent, is
  // reading from the folder is read once: this one takes it from there, or reads it if that load
  // fails, is cancelled, or gives it bytes that do not fit.
  // absent: one of them is not there; nothing was started.
  // invalid: as store(), and two blocks at one position. Blocks on SSD pass through memory of CPUs
  // on their way to a GPU, which look at their checksums there: slots that they are promoted to, or
  // else memory taken for the load (exhausted: a layer's outcome).
  Result<Load> load(std::span<const Key> keys, Extent into, const LoadOptions& options = {});

  // Writes to the folder what is only in memory, as far as its budget has room without dropping
  // what it has. io: some could not be written, also since the disk is full, or the folder's files
  // were removed meanwhile and nobody will find them. timed_out: some of it was. `stop` is asked
  // every 50 ms or so in this thread: true ends it as cancelled.
  Status flush(Nanoseconds timeout = std::chrono::seconds{60},
               const std::function<bool()>& stop = {});

  // Which of them are there now. Holds nothing, and counts as no match.
  std::vector<bool> contains(std::span<const Key> keys) const;

  // From now on they are not found, by a later process either; how many were there or on their way.
  // What is held by a match or being copied ends as it would have, and takes its room until then:
  // so long a block of that key is refused. A folder's list is written behind loads: flush() waits
  // for it. Its bytes are not written over. Looks at each free slot of a folder. cancelled: it is
  // closed.
  Result<std::size_t> remove(std::span<const Key> keys);
  // All of them.
  Result<std::size_t> clear();

  // Cancels loads, refuses what waits for room, waits for copies in flight, and lets the tiers go:
  // another store may open the folder at once. Blocks in memory are gone unless flush() has written
  // them. A Match that is left holds nothing any more; later calls fail as cancelled or find
  // nothing, flush() in another thread too, what was closed closes again. timed_out: copies in
  // flight, as of a GPU that hangs, have not ended; it takes nothing any more but keeps its tiers:
  // close again. cancelled: `stop`, asked as by flush(), has ended the wait, with the same effect.
  // invalid: in on_layer() or on_done(), whose end it would wait for.
  Status close(Nanoseconds timeout = kShutdownBound, const std::function<bool()>& stop = {});
  // Whether it takes nothing any more.
  bool closed() const;

  // Does what the worker would, and polls the Mover.
  void poll();

  StoreStats stats() const;

 private:
  explicit Store(std::unique_ptr<StoreCore> core);
  std::unique_ptr<StoreCore> core_;
};

}  // namespace HEADRACE_API kv
}  // namespace HEADRACE_API headrace
