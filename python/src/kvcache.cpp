// SPDX-License-Identifier: Apache-2.0
// The store of KV blocks; headrace/kvcache.py gives it its public face.
#include <nanobind/stl/tuple.h>

#include <cstring>
#include <new>

#include "core/waiting/duration.h"
#include "handles.h"
#include "kvcache.h"
#include "record.h"
#include "types.h"

namespace headrace::python {

using namespace nb::literals;

template <>
struct Words<kvcache::WriteBack> {
  static constexpr const char* what = "time of writing";
  static constexpr auto name =
      nb::detail::const_name("typing.Literal['leaving', 'idle', 'stored']");
  static constexpr kvcache::WriteBack last = kvcache::WriteBack::stored;
};

template <>
struct Words<kvcache::Verify> {
  static constexpr const char* what = "choice of what to verify";
  static constexpr auto name = nb::detail::const_name("typing.Literal['all', 'found']");
  static constexpr kvcache::Verify last = kvcache::Verify::found;
};

std::vector<kvcache::Key> keys_of(const std::vector<nb::bytes>& keys) {
  std::vector<std::string_view> names;
  names.reserve(keys.size());
  for (const nb::bytes& key : keys) names.emplace_back(key.c_str(), key.size());
  return kvcache::keys_of(names);
}

namespace {

// Where, in words, whether pinned, and whether touched at once.
using MemoryArgument = std::tuple<std::string, Bytes, bool, bool>;
// Paths and bytes, when they are written, what is verified, and whether others are emptied.
using FolderArgument = std::tuple<std::vector<std::tuple<std::string, Bytes>>,
                                  Word<kvcache::WriteBack>, Word<kvcache::Verify>, bool>;

struct OpenArguments {
  const std::vector<MemoryArgument>& memories;
  const std::optional<FolderArgument>& folder;
  const std::string& eviction;
  kvcache::StoreOptions options;
};

KvStoreRef open(const MoverRef& mover, OpenArguments arguments) {
  kvcache::StoreOptions& options = arguments.options;
  for (const auto& [where, budget, pin, touch] : arguments.memories) {
    kvcache::TierOptions& tier = options.tiers.emplace_back();
    tier.budget = budget;
    tier.memory = unwrap(Placement::parse(mover.owner->machine, where));
    tier.memory.pin = pin;
    tier.memory.touch = touch;
  }
  if (arguments.folder) {
    const auto& [folders, write, verify, discard_other] = *arguments.folder;
    if (folders.empty()) raise(ErrorCode::invalid, "no folders; give one, or None");
    kvcache::TierOptions tier{
        .write = write.get(), .verify = verify.get(), .discard_other = discard_other};
    for (const auto& [path, budget] : folders) {
      if (path.empty()) raise(ErrorCode::invalid, "a folder without a name; give its path");
      tier.more_folders.push_back({path, budget});
    }
    tier.folder = tier.more_folders.at(0).folder;
    tier.budget = tier.more_folders.at(0).budget;
    tier.more_folders.erase(tier.more_folders.begin());
    options.tiers.push_back(std::move(tier));
  }
  options.eviction = unwrap(eviction_order(arguments.eviction));
  auto owner = std::make_shared<KvOwner>(mover.owner);
  owner->store = unwrap(
      without_gil([&] { return kvcache::Store::open(owner->mover->mover, std::move(options)); }));
  return {std::move(owner)};
}

// For calls that answer with less than an error where the store is closed.
void check_open(const KvOwner& owner) {
  unwrap(owner.origin.check("the KV store"));
  if (owner.store->closed()) raise(ErrorCode::cancelled, "the KV store is closed; open another");
}

// `all`: also those behind missing ones.
KvMatchRef match(const KvStoreRef& self, const std::vector<nb::bytes>& keys, bool all) {
  const std::shared_ptr<KvOwner> owner = self.owner;
  check_open(*owner);
  const std::vector<kvcache::Key> wanted = keys_of(keys);
  const GilRelease release;
  kvcache::Match match = all ? owner->store->pin(wanted) : owner->store->match(wanted);
  return {owner, std::make_shared<kvcache::Match>(std::move(match))};
}

KvStoredRef store(const KvStoreRef& self, const std::vector<nb::bytes>& keys,
                  const std::vector<ExtentLike>& source, const Word<kvcache::Layout>& layout,
                  const std::vector<std::size_t>& positions, const Word<Priority>& priority,
                  std::optional<std::uint64_t> stream) {
  const std::shared_ptr<KvOwner> owner = self.owner;
  const std::vector<kvcache::Key> wanted = keys_of(keys);
  Memory from(source);
  const kvcache::StoreRequest request{.layout = layout.get(),
                                      .positions = positions,
                                      .priority = priority.get(),
                                      .stream = stream,
                                      .keep = std::move(from.keep)};
  release_borrowed();
  return {owner,
          unwrap(without_gil([&] { return owner->store->store(wanted, from.extents, request); }))};
}

KvLoadRef start_load(const KvStoreRef& self, const std::vector<nb::bytes>& keys,
                     const std::vector<ExtentLike>& into, kvcache::LoadOptions options) {
  if (!std::ranges::all_of(into, &ExtentLike::writable)) {
    raise(ErrorCode::denied, "the destination is read-only; open or make it writable");
  }
  Memory to(into);
  options.keep = std::move(to.keep);
  const std::shared_ptr<KvOwner> owner = self.owner;
  const std::vector<kvcache::Key> wanted = keys_of(keys);
  release_borrowed();
  auto load = without_gil([&] { return owner->store->load(wanted, to.extents, options); });
  return {owner, unwrap(std::move(load)), keys.size()};
}

KvLoadRef load(const KvStoreRef& self, const std::vector<nb::bytes>& keys,
               const std::vector<ExtentLike>& into, const Word<kvcache::Layout>& layout,
               const std::vector<std::size_t>& positions, bool layer_order,
               const Word<Priority>& priority, const std::vector<Nanoseconds>& deadlines,
               bool promote, std::optional<std::uint64_t> stream) {
  return start_load(self, keys, into,
                    {.layout = layout.get(),
                     .positions = positions,
                     .layer_order = layer_order,
                     .priority = priority.get(),
                     .deadlines = deadlines,
                     .promote = promote,
                     .stream = stream});
}

KvLoadRef load_blocks(const KvStoreRef& self, const std::vector<nb::bytes>& keys,
                      const std::vector<ExtentLike>& into, const Word<kvcache::Layout>& layout,
                      const std::vector<std::size_t>& positions, const Word<Priority>& priority,
                      bool promote, std::optional<std::uint64_t> stream) {
  return start_load(self, keys, into,
                    {.layout = layout.get(),
                     .positions = positions,
                     .layer_order = false,
                     .priority = priority.get(),
                     .skip_missing = true,
                     .promote = promote,
                     .stream = stream});
}

std::vector<bool> contains(const KvStoreRef& self, const std::vector<nb::bytes>& keys) {
  const std::shared_ptr<KvOwner> owner = self.owner;
  check_open(*owner);
  const std::vector<kvcache::Key> wanted = keys_of(keys);
  return without_gil([&] { return owner->store->contains(wanted); });
}

std::vector<std::optional<std::uint64_t>> sizes(const KvStoreRef& self,
                                                const std::vector<nb::bytes>& keys) {
  const std::shared_ptr<KvOwner> owner = self.owner;
  check_open(*owner);
  const std::vector<kvcache::Key> wanted = keys_of(keys);
  const auto found = without_gil([&] { return owner->store->sizes(wanted); });
  std::vector<std::optional<std::uint64_t>> plain(found.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (found[i]) plain[i] = found[i]->value;
  }
  return plain;
}

// Waits in the store, which asks whether to stop. Raises for a signal.
template <class Wait>
Status with_signals(const Wait& wait) {
  Interruptible signals{nb::none(), nb::none()};
  Status outcome = without_gil([&] { return wait([&] { return signals.stop(); }); });
  release_borrowed();
  signals.rethrow();
  return outcome;
}

Status flushed(KvOwner& owner, Nanoseconds timeout) {
  return with_signals([&](const auto& stop) { return owner.store->flush(timeout, stop); });
}

void flush(const KvStoreRef& self, Nanoseconds timeout) {
  const std::shared_ptr<KvOwner> owner = self.owner;
  unwrap(flushed(*owner, timeout));
}

constexpr Nanoseconds kClosing = std::chrono::seconds{60};
// The time of copies in flight after a flush that took all the time, or was ended by a signal.
constexpr Nanoseconds kAfterFlush = std::chrono::seconds{1};

// Whoever sees only what a signal raised would not know that the folder cannot be opened again.
void note_not_closed(const nb::python_error& raised) {
  call_python(raised.value().attr("add_note"),
              nb::make_tuple("headrace: copies of the KV store are still in flight, so it keeps "
                             "its memory and its folder; close it again"));
}

// Raises for a signal, and tells with that if the store was not closed.
Status close_until_signal(KvOwner& owner, Nanoseconds timeout) {
  Interruptible signals{nb::none(), nb::none()};
  Status closed =
      without_gil([&] { return owner.store->close(timeout, [&] { return signals.stop(); }); });
  release_borrowed();
  try {
    signals.rethrow();
  } catch (const nb::python_error& raised) {
    if (!closed) note_not_closed(raised);
    throw;
  }
  return closed;
}

// As flushed(). Closes it too where a signal raises, which another one ends.
Status flushed_or_closed(KvOwner& owner, Nanoseconds timeout) {
  try {
    return flushed(owner, timeout);
  } catch (const nb::python_error& raised) {
    if (!close_until_signal(owner, kAfterFlush)) note_not_closed(raised);
    throw;
  } catch (const std::bad_alloc&) {
    return Unexpected({ErrorCode::exhausted, "out of memory"});
  }
}

// Closed whatever the flush says, or raises for a signal.
void close(const KvStoreRef& self, bool flush_first, Nanoseconds timeout) {
  const std::shared_ptr<KvOwner> owner = self.owner;
  const Nanoseconds begin = system_clock().now();
  flush_first = flush_first && !owner->store->closed();
  Status written;
  if (flush_first) written = flushed_or_closed(*owner, timeout);
  // Another thread has closed it meanwhile, and answers for what was to be written.
  const bool by_another = !written && written.error().code == ErrorCode::cancelled;
  const Nanoseconds unspent = timeout - (system_clock().now() - begin);
  const Nanoseconds left = flush_first && unspent <= Nanoseconds{0} ? kAfterFlush : unspent;
  Status closed = close_until_signal(*owner, left);
  if (!closed && closed.error().code == ErrorCode::timed_out) {
    raise(ErrorCode::timed_out, "after " + to_string(timeout) + " " + closed.error().message);
  }
  // Copies in flight still use it: that matters more than what those would have written.
  unwrap(std::move(closed));
  if (!written && written.error().code == ErrorCode::timed_out) {
    raise(ErrorCode::timed_out,
          "the KV store is closed, but not all blocks were written to its folder within " +
              to_string(timeout) + "; those that were only in memory are gone: give close() more " +
              "time, or call flush() before");
  }
  if (!by_another) unwrap(std::move(written));
}

void bind_closing(nb::class_<KvStoreRef>& bound) {
  bound
      .def("flush", &flush, "timeout"_a = 60.0,
           "Writes blocks that are only in memory to the folder, as far as its budget allows. "
           "Covers blocks whose store() began before the call. Then makes everything written so "
           "far durable (fdatasync); `timeout` does not bound that. IoError: some blocks could not "
           "be written or made durable, or a file of the folder was removed or truncated. "
           "TimedOutError: only some blocks were written.")
      .def("close", &close, nb::kw_only(), "flush"_a = true, "timeout"_a = 60.0,
           "Closes the store and releases tiers and folder, so that another store may open the "
           "folder at once. Loads are cancelled, matches pin nothing any more, and later calls "
           "raise CancelledError. Closing twice is allowed. `flush`: flush() first; if that fails, "
           "the store is closed and the error raised. `timeout` bounds everything except the "
           "fdatasync of flush(); if the flush used it up, copies in flight have one more second. "
           "TimedOutError: either the store is closed, and blocks not written in time are lost; or "
           "some copies have not ended, such as those of a GPU that hangs. Then tiers and folder "
           "stay in use until close() is called again. Ctrl-C ends the flush and gives copies in "
           "flight one second, which a second Ctrl-C ends; without a flush the first does. If "
           "copies have not ended then, a note of the exception says that the store is still to be "
           "closed. Dropping a store that is not closed waits for its copies too. If they do not "
           "end within 200 s, the process is ended, because a GPU may still write to its memory.")
      .def_prop_ro(
          "closed", [](const KvStoreRef& self) { return self.owner->store->closed(); },
          "Whether the store is closed.")
      .def(
          "__enter__",
          [](nb::handle self) {
            check_open(*nb::cast<const KvStoreRef&>(self).owner);
            return nb::borrow(self);
          },
          nb::sig("def __enter__(self) -> typing.Self"))
      .def(
          "__exit__", [](const KvStoreRef& self, const nb::args&) { close(self, true, kClosing); },
          nb::sig("def __exit__(self, *error: object) -> None"), "close().");
}

void bind_blocks(nb::class_<KvStoreRef>& bound) {
  bound
      .def(
          "match_keys",
          [](const KvStoreRef& self, const std::vector<nb::bytes>& keys) {
            return match(self, keys, false);
          },
          "keys"_a, "Pins the leading blocks that are in the store.")
      .def(
          "pin",
          [](const KvStoreRef& self, const std::vector<nb::bytes>& keys) {
            return match(self, keys, true);
          },
          "keys"_a, "Pins the blocks that are in the store, also blocks after a missing one.")
      .def(
          "touch",
          [](const KvStoreRef& self, const std::vector<nb::bytes>& keys) {
            const std::shared_ptr<KvOwner> owner = self.owner;
            check_open(*owner);
            const std::vector<kvcache::Key> wanted = keys_of(keys);
            without_gil([&] { owner->store->touch(wanted); });
          },
          "keys"_a, "Counts a use of the blocks in the store: they are evicted later.")
      .def(
          "take_dropped",
          [](const KvStoreRef& self) {
            const std::shared_ptr<KvOwner> owner = self.owner;
            check_open(*owner);
            return bytes_of(without_gil([&] { return owner->store->take_dropped(); }));
          },
          "Keys of blocks that left the store for good since the last call, except by remove() and "
          "clear(); at most 2^20. Empty unless the store was opened with list_dropped=True.")
      .def("store_object", &store, "keys"_a, "source"_a, nb::kw_only(), "layout"_a, "positions"_a,
           "priority"_a, "stream"_a, "Like headrace.kvcache.Store.store().")
      .def("load_object", &load, "keys"_a, "into"_a, nb::kw_only(), "layout"_a, "positions"_a,
           "layer_order"_a, "priority"_a, "deadlines"_a, "promote"_a, "stream"_a,
           "Like headrace.kvcache.Store.load().")
      .def("load_block_objects", &load_blocks, "keys"_a, "into"_a, nb::kw_only(), "layout"_a,
           "positions"_a, "priority"_a, "promote"_a, "stream"_a,
           "Like headrace.kvcache.Store.load_blocks().")
      .def("contains", &contains, "keys"_a,
           "Which of the blocks are there now. Pins nothing, and does not count as a match.")
      .def("sizes", &sizes, "keys"_a, "Like contains(): the bytes of each block, or None.")
      .def(
          "remove",
          [](const KvStoreRef& self, const std::vector<nb::bytes>& keys) {
            const std::shared_ptr<KvOwner> owner = self.owner;
            const std::vector<kvcache::Key> wanted = keys_of(keys);
            return unwrap(without_gil([&] { return owner->store->remove(wanted); }));
          },
          "keys"_a,
          "Removes blocks, also for a later open of the folder; returns the number that were there "
          "or being stored. Pins and copies in progress end normally; until then, blocks with the "
          "same key are refused. flush() makes the removal durable.")
      .def(
          "clear",
          [](const KvStoreRef& self) {
            const std::shared_ptr<KvOwner> owner = self.owner;
            return unwrap(without_gil([&] { return owner->store->clear(); }));
          },
          "remove() of all blocks.")
      .def(
          "stats",
          [](const KvStoreRef& self) {
            const std::shared_ptr<KvOwner> owner = self.owner;
            check_open(*owner);
            const GilRelease release;
            return owner->store->stats();
          },
          "Counts.");
}

void bind_store(nb::module_& m) {
  auto bound =
      nb::class_<KvStoreRef>(m, "KvStore", "headrace.kvcache.Store, with memory given as objects.");
  bound
      .def(
          "__init__",
          [](KvStoreRef* self, const MoverRef& mover, const kvcache::Geometry& geometry,
             const std::vector<MemoryArgument>& memories,
             const std::optional<FolderArgument>& folder, const std::string& eviction,
             Bytes in_flight, Bytes load_ahead, unsigned workers, bool list_dropped, bool shared) {
            OpenArguments arguments{.memories = memories,
                                    .folder = folder,
                                    .eviction = eviction,
                                    .options = {.geometry = geometry,
                                                .in_flight = in_flight,
                                                .load_ahead = load_ahead,
                                                .workers = workers,
                                                .list_dropped = list_dropped,
                                                .shared = shared}};
            new (self) KvStoreRef(open(mover, std::move(arguments)));
          },
          "mover"_a, "geometry"_a, "tiers"_a, "folder"_a.none(), nb::kw_only(), "eviction"_a,
          "in_flight"_a, "load_ahead"_a, "workers"_a, "list_dropped"_a, "shared"_a,
          "Memories: placement, bytes, whether pinned, and whether touched at once. Folders: paths "
          "and bytes, when they are written, what is verified, and whether folders of another "
          "geometry are emptied.")
      .def_prop_ro("geometry", [](const KvStoreRef& self) { return self.owner->store->geometry(); })
      .def_prop_ro(
          "shared_files",
          [](const KvStoreRef& self) -> std::optional<std::tuple<std::optional<int>, int>> {
            check_open(*self.owner);
            const auto files = self.owner->store->shared();
            if (!files) return std::nullopt;
            return std::tuple(files->memory, files->index);
          },
          "Descriptors of the first tier's memory, if that tier is memory, and of the index, for a "
          "KvShared of another process. They belong to the store. None: the store is not shared.");
  bind_blocks(bound);
  bind_closing(bound);
}

}  // namespace

void bind_kv(nb::module_& m) {
  m.def(
      "kv_key", [](const nb::bytes& name) { return bytes_of(keys_of({name})).front(); }, "name"_a,
      "The key of a block from a name that another program gave, such as an engine. A name of 16 "
      "bytes is the key; other lengths are hashed. Stores accept names instead of keys.");
  bind_kv_handles(m);
  bind_store(m);
  bind_kv_jobs(m);
  bind_kv_shared(m);
}

}  // namespace headrace::python
