// SPDX-License-Identifier: Apache-2.0
// A store of KV-cache blocks: keeps results of a language model for a prefix of tokens, in memories
// and on SSD, so that the prefix need not be computed again.
//
//   auto store = kvcache::Store::open(mover, {.geometry = geometry, .tiers = {{.budget = 8_GiB}}});
//   const auto found = (*store)->match(tokens);  // the leading blocks that are there, pinned
//   auto load = (*store)->load(found.keys(), into);
//   Status ready = load->wait_layer(0);
//
// A block is the keys and values of block_tokens tokens in all layers; one layer of a block is a
// fragment. The key of a block stands for its tokens and all tokens before them.
//
// Tiers are ordered from fast to slow: memories by placement, and optionally a folder as the last.
// A new block enters the first tier. A block that leaves a tier moves to the next one with a free
// slot; from the last tier it is dropped. A block in a slower tier that is used again gets a copy
// in a faster one (promotion, see LoadOptions).
//
// This is a cache: a block may be gone at any time, and a load returns the right bytes or an error.
// Unlike the cache of cache.h, which copies data that stays elsewhere, a KV block exists only here
// (docs/design/kv-store.md).
//
// The next process that opens a folder finds its blocks, and also the blocks in memory that flush()
// has written. One process at a time may open a folder. Each fragment read from a folder is
// verified by its checksum: a torn, foreign or stale fragment is dropped (see Verify).
//
// Crashes: a process that is killed loses no block that the folder has. A power failure may
// also cost the blocks whose headers the kernel has not written yet, usually those of the last 30 s
// (vm.dirty_expire_centisecs), except blocks that flush() covered.
//
// Memory beyond the budgets, for blocks of one layer, measured with 131072 blocks of 4 KiB: 84
// bytes for each slot of a folder, and 276 for each that has a block (309 with a tier of memory).
// 500 GiB in blocks of 16 KiB take 8.4 GiB; in blocks of 2 MiB and 32 layers, 0.13 GiB. Each
// further layer takes 8 bytes a slot.
//
// Store is Thread-safe. Match, Load and Stored are Thread-compatible; copies of a Load or Stored
// may be used by many threads. Waits are bounded by their timeouts, else by the bounds of the
// Mover's engines.
//
// In a child of fork(), calls fail as unsupported. Exceptions: match() and contains() find nothing,
// and stats() is all 0.
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
namespace HEADRACE_API kvcache {

class Arrivals;
class Loads;
class StoreCore;
struct LoadState;
struct StoredState;

// The properties that determine the bytes and the size of a block.
struct Geometry {
  std::string model;          // its name: part of each key
  std::string revision = {};  // anything else that changes the bytes, such as weights
  unsigned layers = 0;
  unsigned kv_heads = 0;
  unsigned head_dim = 0;
  unsigned element_bytes = 2;
  unsigned block_tokens = 16;
  unsigned tensors = 2;  // keys and values; 1 for one latent vector instead of both (MLA)
  // Blocks have any size up to 1 GiB, each the same size always, and one layer. block() is the unit
  // of space: a block takes as many slots of that size as it needs, anywhere in its tier. Each
  // block has its own extent in store() and load(). `block_tokens` has no meaning.
  bool any_size = false;

  Bytes fragment() const;  // one layer of a block
  Bytes block() const;     // all layers
  friend bool operator==(const Geometry&, const Geometry&) = default;
};

// Errors: invalid: a count is 0, a block exceeds 1 GiB, or blocks of any size have layers.
Status check(const Geometry& geometry);

// The order of blocks in the user's memory, which holds a whole number of blocks.
enum class Layout : std::uint8_t {
  page_first,   // block after block, in each all layers in order
  layer_first,  // layer after layer, in each the fragments in order of blocks
};

std::string_view to_string(Layout layout);

// 128 bits of BLAKE2b (RFC 7693) over the key of the block before and the tokens of this one. For
// the first block, the geometry replaces the key before. A collision would serve another prefix:
// 10^12 blocks collide by chance with probability 1e-15, and no known attack needs fewer than 2^64
// steps.
struct Key {
  std::uint64_t low = 0;
  std::uint64_t high = 0;
  friend auto operator<=>(const Key&, const Key&) = default;
};

// The key of anything else that names a block, such as a key of an engine: 16 bytes are the key,
// and other lengths are hashed (BLAKE2b).
Key key_of(std::span<const std::byte> name);
// The same of many names, at about 70 ns each with AVX2 where one alone takes 270 (names of at most
// 112 bytes, four at a time).
std::vector<Key> keys_of(std::span<const std::string_view> names);

// The keys of all whole blocks of `tokens`, in order; a rest that fills no block has no key. `salt`
// names an adapter or tenant that shares the store: different salts have different keys.
std::vector<Key> keys(const Geometry& geometry, std::span<const std::uint32_t> tokens,
                      std::string_view salt = {});

// When a block in memory is written to the folder. One that leaves the last tier of memory always
// is.
enum class WriteBack : std::uint8_t {
  leaving,  // then, or by flush() or close()
  idle,     // also while no load runs, which a worker looks for about once a second
  // Before its store() ends. A block that is not written, because no slot is free or its copy
  // fails, counts as refused or failed; memory may have it. Its next store() writes it.
  // It is not synced: see flush().
  stored,
};

// Which fragments from a folder are compared with their checksums. Without the comparison, a bit
// that flips on the disk is served.
enum class Verify : std::uint8_t {
  all,
  // Blocks that an earlier process wrote, and bytes that another load read. A block that this
  // process wrote is trusted, since its bytes and its header belong together.
  found,
};

std::string_view to_string(WriteBack write);
std::string_view to_string(Verify verify);

struct FolderOptions {
  std::filesystem::path folder;
  Bytes budget;
};

struct TierOptions {
  // Only whole blocks are used. A folder reserves no disk space; a full disk counts as a reached
  // budget. A folder with a larger budget is truncated, and its blocks beyond are lost.
  Bytes budget;
  Placement memory = {};              // ignored for a folder
  std::filesystem::path folder = {};  // on SSD; only the last tier
  // More folders of the same tier, each on a disk of its own. Blocks are spread over all of them by
  // budget. Each folder has whole blocks and its own list, so a lost disk costs only its blocks,
  // and the others can be opened without it. A disk that fails a write (ErrorCode::io) gets no new
  // block for 10 s, then one.
  std::vector<FolderOptions> more_folders = {};
  WriteBack write = WriteBack::idle;  // for a folder
  Verify verify = Verify::all;        // for a folder
  // Whether a folder of another geometry, model, revision or version of the format is emptied. If
  // false, it is refused. The same holds for a damaged superblock, if a header in the index has the
  // right checksum. If none has, the folder may be another program's and is always refused.
  bool discard_other = false;
};

struct StoreOptions {
  Geometry geometry;
  // Fast to slow, at most kMostTiers. If a folder is the only tier, a store writes to it from the
  // user's memory. Memory of GPUs, and blocks whose layers lie apart, pass through memory that is
  // allocated for them.
  std::vector<TierOptions> tiers = {};
  EvictionFactory eviction = s3_fifo;
  // A bound, in bytes, for each of these: stores that have not ended; blocks that are being copied
  // to a slower tier; blocks that are being promoted.
  Bytes in_flight = 256_MiB;
  // Demand loads without deadlines read two layers at a time, or more up to this many bytes. Other
  // layers wait in line:
  // - The lowest layer starts first, whichever load has it.
  // - While first layers of more than an eighth of `load_ahead` are being read, higher layers wait.
  // - At least one of eight started layers belongs to the oldest load that has layers in line.
  Bytes load_ahead = 8_MiB;
  // How many threads of the store verify checksums and continue operations. If 0, threads that wait
  // or call poll() do.
  unsigned workers = 1;
  // Whether take_dropped() lists blocks.
  bool list_dropped = false;
  // Whether other processes may read blocks of the first tier without a call: see Store::shared().
  // The tier is memory of CPUs, or the folder: then they only see which blocks there are. Takes
  // 64 to 128 bytes for each slot of all tiers. Unsupported with Geometry::any_size.
  bool shared = false;
  // Allocates the memory of tiers, and memory that blocks pass through: for programs with memory of
  // their own, and for simulations. Returns at least `bytes` on the node of the placement. Called
  // by any thread, never by two at once for one block. Errors: handled as those of allocate(). Not
  // called for the first tier if `shared`. Default: allocate() (buffer.h).
  std::function<Result<std::shared_ptr<const Object>>(const Placement& memory, Bytes bytes)>
      allocate = {};
};

// Descriptors of a store's shared memory, for other processes (SCM_RIGHTS), which map it read-only
// (docs/howto/serve.md). They belong to the store.
struct SharedFiles {
  std::optional<int> memory;  // of the first tier; empty: that is a folder
  int index = -1;             // which blocks there are
};

inline constexpr std::size_t kMostTiers = 6;
inline constexpr std::size_t kMostDropped = std::size_t{1} << 20;

// Blocks that the store has, found by match() or pin(). Pins them until it is destroyed. Must not
// outlive its Store.
class Match {
 public:
  Match() = default;
  Match(Match&& other) noexcept;
  Match& operator=(Match&& other) noexcept;
  ~Match();

  std::size_t size() const { return keys_.size(); }
  std::span<const Key> keys() const { return keys_; }
  // The fastest tier that has block i, as an index into StoreOptions::tiers.
  std::span<const unsigned> tiers() const { return tiers_; }

 private:
  friend class StoreCore;
  StoreCore* core_ = nullptr;
  std::vector<Key> keys_;
  std::vector<unsigned> tiers_;
};

struct LoadOptions {
  Layout layout = Layout::page_first;
  // The position of block i in `into`, counted in blocks; empty: in order.
  std::vector<std::size_t> positions = {};
  // True: reads layer 0 of all blocks first, then layer 1 and so on. Each layer is reported when it
  // is there, and starts before higher layers of other loads (StoreOptions::load_ahead).
  // False: reads whole blocks. The reads are fewer and larger; all layers are reported at the end,
  // and the load counts as a single layer 0.
  bool layer_order = true;
  Priority priority = Priority::demand;
  // When layer i is needed, counted from now (not below 0); empty: at once. Until kLead before the
  // deadline the layer has `priority`, but lets demand pass. From then on it counts as demand,
  // whatever `priority` is. The same holds for its checksums, and for both copies of a block that
  // passes through memory of CPUs.
  std::vector<Nanoseconds> deadlines = {};
  // Whether blocks that the store does not have are left out: loaded() is false for them, and they
  // are no error of the load. If false, such a load fails as absent and nothing is started.
  bool skip_missing = false;
  // Whether blocks are promoted:
  // - A block from a folder is kept in the first tier that CPUs address, if that has a free slot.
  // - A block that was used before is copied to the fastest tier, including a GPU's, that has free
  //   slots or has more slots than blocks were used since. The copy starts once the block is
  //   loaded, behind all loads. It evicts no pinned block, and drops no block in memory that cannot
  //   be written to a slower tier.
  bool promote = true;
  // For memory of a GPU: nothing is copied before the work submitted so far to this stream is done.
  // A stream is a CUstream as a number (0: the default one) of the GPU's primary context, as
  // PyTorch and CuPy use.
  // The stream's later work does not wait for the load: start it when a layer is reported. After
  // kStreamBound (gpu/memory.h) the load fails as timed_out, before any copy.
  std::optional<std::uint64_t> stream = {};
  // The owner of the user's memory, kept alive until nothing more is copied. It is released in any
  // thread, as for callbacks of on_layer().
  std::shared_ptr<const void> keep = {};
};

inline constexpr Nanoseconds kLead = std::chrono::milliseconds{20};

// Blocks that are being loaded into the user's memory, which must live until done(). A handle:
// dropping all handles neither cancels nor waits.
class Load {
 public:
  Load() = default;  // done, with no layers

  unsigned layers() const;
  bool done() const;
  // The outcome of a layer, once all its fragments are there and verified.
  // Errors: cancelled; io: a fragment could not be read or was damaged, in this layer or in another
  // layer of the same block (leading() returns how many blocks are left).
  std::optional<Status> poll(unsigned layer) const;
  // Waits for the outcome of a layer, and makes the layer urgent. Requires: layer < layers().
  // Errors: timed_out: not done; the load continues, so wait again.
  Status wait_layer(unsigned layer, Nanoseconds timeout = std::chrono::seconds{60}) const;
  // Waits for all layers; returns the first error of any.
  Status wait(Nanoseconds timeout = std::chrono::seconds{60}) const;
  // From now on the layer has priority demand, because a thread waits for it.
  void urgent(unsigned layer) const;
  // How many leading blocks are not missing and have not failed so far: the usable blocks once the
  // load is done.
  std::size_t leading() const;
  // Whether block i of load() is there, and right. Requires: done().
  bool loaded(std::size_t block) const;
  void cancel() const;
  // Calls `then` when the layer has ended, or at once if it has. The thread and the rules are those
  // of Transfer::on_done(). In a child of fork() it is called only if the layer had ended before.
  void on_layer(unsigned layer, std::function<void()> then) const;

 private:
  friend class Loads;
  explicit Load(std::shared_ptr<LoadState> state) : state_(std::move(state)) {}
  std::shared_ptr<LoadState> state_;
};

// The results of the blocks of a store().
struct StoredCounts {
  std::size_t stored = 0;
  std::size_t present = 0;  // already in the store, or another store() of it ended well
  std::size_t refused = 0;  // no slot: too much in flight, or all blocks are pinned
  std::size_t failed = 0;   // the copy failed; to a folder alone, on each disk tried in a minute
  friend bool operator==(const StoredCounts&, const StoredCounts&) = default;
};

// Blocks that are being copied from the user's memory, which must live unchanged until done().
class Stored {
 public:
  Stored() = default;

  bool done() const;
  Result<StoredCounts> wait(Nanoseconds timeout = std::chrono::seconds{60}) const;
  std::optional<StoredCounts> poll() const;
  // As Load::on_layer().
  void on_done(std::function<void()> then) const;

 private:
  friend class Arrivals;
  explicit Stored(std::shared_ptr<StoredState> state) : state_(std::move(state)) {}
  std::shared_ptr<StoredState> state_;
};

struct StoreRequest {
  Layout layout = Layout::page_first;
  std::vector<std::size_t> positions = {};  // see LoadOptions
  // Priority of the copies. Blocks wait for slots of the first tier in the order of store(),
  // whatever their priority.
  Priority priority = Priority::migration;
  std::optional<std::uint64_t> stream = {};  // see LoadOptions; the stream that computes the blocks
  std::shared_ptr<const void> keep = {};     // see LoadOptions
};

struct TierStats {
  std::string name;  // "dram", or the folder
  Bytes budget;      // in whole blocks
  Bytes used;
  std::uint64_t blocks = 0;
  std::uint64_t hits = 0;  // blocks loaded from it
  Bytes loaded;
  std::uint64_t arrived = 0;  // blocks demoted from a faster tier, or promoted to this one
  std::uint64_t evicted = 0;  // blocks that left; another tier has them
  std::uint64_t dropped = 0;  // blocks that left and are gone
};

// Counts since the store was opened.
struct StoreStats {
  std::vector<TierStats> tiers;
  std::uint64_t matched = 0;  // blocks found by match()
  std::uint64_t missed = 0;   // blocks that match() did not find
  StoredCounts stores;
  // Blocks that could not be written to a slower tier, except blocks that a full disk left in
  // memory.
  std::uint64_t failed = 0;
  std::uint64_t damaged = 0;   // copies dropped because they were unreadable or had wrong bytes
  std::uint64_t reopened = 0;  // blocks found when the store was opened
  Bytes in_flight;             // of stores, now
  Bytes pinned;                // now
  std::string last_error;      // of a tier; empty: none. Later successes do not clear it.
  std::optional<Nanoseconds> last_error_age = {};  // the age of last_error
};

class Store {
 public:
  // Borrows `mover`, which must outlive the store. Allocates the memory of the tiers, makes the
  // folder if its parent exists, and reads its index. Reading takes at most a minute for each
  // folder, plus kShutdownBound if the disk does not answer.
  // Errors:
  // - invalid: no tiers; a budget below one block; more_folders without a folder, or without a
  //   name; memory in a file of a storage device (use a
  //   folder); a folder that is not last, or has a NUL in its name; a folder of another geometry or
  //   version (see TierOptions::discard_other); an `index` or `blocks` that is another kind of file
  //   or has a second name (such a folder stays unchanged); called in a callback of a Mover.
  // - denied: another process has the folder open; another user owns it; others may write to it;
  //   its group may write to it, and a file in it may be another user's. If no file can be, the
  //   group's write permission is removed instead.
  // - the errors of allocate() and File::open().
  static Result<std::unique_ptr<Store>> open(Mover& mover, StoreOptions options);
  // close(), which must succeed. Requires: no Match is left and no call is running; not called in
  // on_layer() or on_done(), whose end it would wait for.
  ~Store();
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  const Geometry& geometry() const;

  // Pins the leading blocks that the store has. Starts no copy.
  Match match(std::span<const Key> keys);
  Match match(std::span<const std::uint32_t> tokens, std::string_view salt = {});
  // Pins those of the blocks that the store has, also behind missing ones. Counts as a match().
  Match pin(std::span<const Key> keys);
  // Counts a use of those of the blocks that the store has, as a load does: they leave later.
  void touch(std::span<const Key> keys);

  // Copies blocks into the first tier, behind loads. A block without a slot is refused. A block
  // that another store() is still copying ends as it does there: present, refused or failed. A
  // store to a tier of memory waits only for demotions of other blocks, and for the folder if its
  // blocks are written before the end (WriteBack::stored); no load waits for a store. `from`:
  // memory for all blocks, or the extents of the blocks one by one, in order, each of one block in
  // page_first layout; then all are memory of CPUs, or of one GPU. Errors: invalid: extents and
  // positions do not fit; the stream is not of the memory's GPU. A block of a size other than that
  // of the block of its key, or larger than the tier, is refused.
  Result<Stored> store(std::span<const Key> keys, Extent from, const StoreRequest& request = {});
  Result<Stored> store(std::span<const Key> keys, std::span<const Extent> from,
                       const StoreRequest& request = {});

  // Copies blocks from their tiers. Two loads of a block from the folder read it once if the first
  // load is as urgent and not much larger: the second takes the bytes from there. It reads the
  // block itself if the first load fails, is cancelled, or has bytes that do not fit the checksum.
  // Blocks on SSD reach a GPU through memory of CPUs, where their checksums are compared: slots
  // that they are promoted to, else memory allocated for the load.
  // Bytes in the user's memory that do not fit are read once more, into memory of the store, before
  // the block is dropped: a caller who writes to `into` meanwhile loses no block.
  // `into`: as for store(); extents must not overlap.
  // Errors: absent: a block is not in the store, or not with this size; nothing was started.
  // invalid: as for store(), or two blocks have one position, or two extents overlap. A layer's
  // outcome is exhausted if that memory cannot be allocated.
  Result<Load> load(std::span<const Key> keys, Extent into, const LoadOptions& options = {});
  Result<Load> load(std::span<const Key> keys, std::span<const Extent> into,
                    const LoadOptions& options = {});

  // Writes blocks that are only in memory to the folder, as far as its budget allows without
  // dropping blocks. Covers blocks whose store() was called before, and waits for no later ones.
  // Then makes all writes and removals that it covers durable (fdatasync of both files), also those
  // of an earlier process, and also if blocks could not be written; `timeout` and `stop` do not
  // bound that. Calls `stop` about every 50 ms in this thread.
  // Errors: io: a block could not be written, for example because the disk is full, or the folder's
  // files were removed, so no process will find them, or cut since the last flush(), so blocks are
  // lost; or the writes did not reach the disk,
  // as each flush() then says until the folder is opened again. timed_out: some blocks were
  // written. cancelled: `stop` returned true.
  Status flush(Nanoseconds timeout = std::chrono::seconds{60},
               const std::function<bool()>& stop = {});

  // Which of the blocks are there now. Pins nothing, and is not counted as a match.
  std::vector<bool> contains(std::span<const Key> keys) const;
  // As contains(): the size of each block, empty if it is not there.
  std::vector<std::optional<Bytes>> sizes(std::span<const Key> keys) const;
  // Blocks that left the store for good since the last call, oldest first, except by remove() and
  // clear(): evicted from the last tier, or damaged. A block may be stored again since. Lists at
  // most kMostDropped; later ones are left out until the next call. See StoreOptions::list_dropped.
  std::vector<Key> take_dropped();

  // Removes blocks: from now on neither this process nor a later one finds them. Returns how many
  // were there or arriving.
  // A block that is matched or being copied keeps its slot until that has ended; until then a
  // store of its key is refused. The index of a folder is written behind loads; flush() waits for
  // it, and makes it durable: no power failure brings the blocks back. A flush() covers no block
  // that is held then; the next one after its release does. The bytes on SSD are not
  // overwritten. Errors: cancelled: the store is closed.
  Result<std::size_t> remove(std::span<const Key> keys);
  // Removes all blocks. Visits each slot of a folder.
  Result<std::size_t> clear();

  // Cancels loads, refuses stores that wait for a slot, waits for copies in flight, and releases
  // the tiers: another store may open the folder at once. Blocks in memory are lost unless flush()
  // has written them.
  // Afterwards a Match pins nothing, and calls fail as cancelled or find nothing, including a
  // flush() in another thread. Closing again has no effect.
  // Errors:
  // - timed_out: copies in flight have not ended, such as those of a GPU that hangs. The store
  //   takes no more work but keeps its tiers: close again.
  // - cancelled: `stop` (see flush()) ended the wait, with the same effect.
  // - invalid: called in on_layer() or on_done(), whose end it would wait for.
  Status close(Nanoseconds timeout = kShutdownBound, const std::function<bool()>& stop = {});
  // Whether the store refuses all work.
  bool closed() const;

  // Does the worker's jobs, and polls the Mover.
  void poll();

  StoreStats stats() const;

  // Empty: not opened with StoreOptions::shared. Requires: the store is open.
  std::optional<SharedFiles> shared() const;

 private:
  explicit Store(std::unique_ptr<StoreCore> core);
  std::unique_ptr<StoreCore> core_;
};

}  // namespace HEADRACE_API kvcache
}  // namespace HEADRACE_API headrace
