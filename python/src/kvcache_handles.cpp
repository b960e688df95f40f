// SPDX-License-Identifier: Apache-2.0
// What a store of KV blocks gives: geometries, counts, matches, loads and stores.
#include "kvcache.h"

#include "handles.h"
#include "record.h"

namespace headrace::python {

using namespace nb::literals;

std::vector<nb::bytes> bytes_of(std::span<const kvcache::Key> keys) {
  std::vector<nb::bytes> result;
  result.reserve(keys.size());
  for (const kvcache::Key& key : keys)
    result.emplace_back(reinterpret_cast<const char*>(&key), sizeof key);
  return result;
}

namespace {

const kvcache::Match& held(const KvMatchRef& self) {
  if (!self.match) raise(ErrorCode::invalid, "this match was released; match() again");
  return *self.match;
}

void release_match(KvMatchRef& self) {
  std::shared_ptr<kvcache::Match> match = std::exchange(self.match, nullptr);
  const GilRelease release;
  match.reset();
}

void wait_layer(const kvcache::Load& load, unsigned layer, Nanoseconds timeout) {
  unwrap(wait_for(timeout, [&](Nanoseconds slice) { return load.wait_layer(layer, slice); }));
}

void bind_geometry(nb::module_& m) {
  nb::class_<kvcache::Geometry>(m, "KvGeometry", "The model, layout and size of KV blocks.")
      .def(
          "__init__",
          [](kvcache::Geometry* self, const std::string& model, unsigned layers, unsigned kv_heads,
             unsigned head_dim, unsigned element_bytes, unsigned block_tokens, unsigned tensors,
             const std::string& revision, bool any_size) {
            kvcache::Geometry geometry{.model = model,
                                       .revision = revision,
                                       .layers = layers,
                                       .kv_heads = kv_heads,
                                       .head_dim = head_dim,
                                       .element_bytes = element_bytes,
                                       .block_tokens = block_tokens,
                                       .tensors = tensors,
                                       .any_size = any_size};
            unwrap(kvcache::check(geometry));
            new (self) kvcache::Geometry(std::move(geometry));
          },
          "model"_a, nb::kw_only(), "layers"_a, "kv_heads"_a, "head_dim"_a, "element_bytes"_a = 2,
          "block_tokens"_a = 16, "tensors"_a = 2, "revision"_a = "", "any_size"_a = false,
          "`tensors`: 2 for keys and values, 1 if one latent vector holds both. `revision`: "
          "anything else the bytes depend on, such as the weights. `any_size`: blocks have any "
          "size up to 1 GiB, and no layers; a block takes a whole number of units of block_bytes.")
      .def_ro("model", &kvcache::Geometry::model, "Part of each key.")
      .def_ro("revision", &kvcache::Geometry::revision, "Part of each key.")
      .def_ro("layers", &kvcache::Geometry::layers, "")
      .def_ro("kv_heads", &kvcache::Geometry::kv_heads, "")
      .def_ro("head_dim", &kvcache::Geometry::head_dim, "")
      .def_ro("element_bytes", &kvcache::Geometry::element_bytes, "")
      .def_ro("block_tokens", &kvcache::Geometry::block_tokens, "")
      .def_ro("tensors", &kvcache::Geometry::tensors, "")
      .def_ro("any_size", &kvcache::Geometry::any_size, "")
      .def_prop_ro("fragment_bytes", &kvcache::Geometry::fragment, "One layer of a block.")
      .def_prop_ro("block_bytes", &kvcache::Geometry::block, "All layers.")
      .def(
          "keys",
          [](const kvcache::Geometry& self, const std::vector<std::uint32_t>& tokens,
             const std::string& salt) { return bytes_of(kvcache::keys(self, tokens, salt)); },
          "tokens"_a, nb::kw_only(), "salt"_a = "",
          "The keys of the whole blocks of a prompt, 16 bytes each: BLAKE2b over the previous key "
          "and the block's tokens. `salt`: an adapter or tenant that shares the store; other salts "
          "give other keys.")
      .def(
          "__eq__",
          [](const kvcache::Geometry& self, nb::handle other) {
            const kvcache::Geometry* geometry = nullptr;
            return nb::try_cast<const kvcache::Geometry*>(other, geometry, false) &&
                   geometry != nullptr && *geometry == self;
          },
          "other"_a.none(), nb::sig("def __eq__(self, other: object, /) -> bool"))
      .def("__hash__",
           [](const kvcache::Geometry& self) {
             return std::hash<std::string>{}(self.model) ^ (self.layers << 8U);
           })
      .def("__repr__", [](const kvcache::Geometry& self) {
        return "KvGeometry('" + self.model + "', " + std::to_string(self.layers) + " layers of " +
               to_string(self.fragment()) + ")";
      });
}

void bind_store_stats(nb::module_& m) {
  Record<kvcache::StoredCounts>(m, "KvStoredCounts", "The outcome of a store(), in blocks.")
      .field("stored", &kvcache::StoredCounts::stored, "")
      .field("present", &kvcache::StoredCounts::present, "Blocks that were there already.")
      .field("refused", &kvcache::StoredCounts::refused,
             "No room: too much in flight, or all pinned.")
      .field("failed", &kvcache::StoredCounts::failed, "Blocks whose copy failed.");
  Record<kvcache::TierStats>(m, "KvTierStats", "One tier.")
      .field("name", &kvcache::TierStats::name, "The kind of memory, or the folder.")
      .field("budget", &kvcache::TierStats::budget, "Bytes, whole blocks.")
      .field("used", &kvcache::TierStats::used, "Bytes of blocks now.")
      .field("blocks", &kvcache::TierStats::blocks, "Blocks now.")
      .field("hits", &kvcache::TierStats::hits, "Blocks loaded from it.")
      .field("loaded", &kvcache::TierStats::loaded, "Bytes loaded from it.")
      .field("arrived", &kvcache::TierStats::arrived, "Blocks that came from another tier.")
      .field("evicted", &kvcache::TierStats::evicted, "Blocks that left it; another tier has them.")
      .field("dropped", &kvcache::TierStats::dropped, "Blocks that left it and are gone.");
  Record<kvcache::StoreStats>(m, "KvStats", "Counts since the store was opened.")
      .field("tiers", &kvcache::StoreStats::tiers, "From fast to slow.")
      .field("matched", &kvcache::StoreStats::matched, "Blocks found by match().")
      .field("missed", &kvcache::StoreStats::missed, "Blocks it did not find.")
      .field("stores", &kvcache::StoreStats::stores, "The outcome of all blocks given to store().")
      .field("failed", &kvcache::StoreStats::failed,
             "Blocks that could not be written to a slower tier.")
      .field("damaged", &kvcache::StoreStats::damaged,
             "Copies dropped: unreadable, or other bytes.")
      .field("reopened", &kvcache::StoreStats::reopened, "Blocks found when the store was opened.")
      .field("in_flight", &kvcache::StoreStats::in_flight, "Bytes of stores now.")
      .field("pinned", &kvcache::StoreStats::pinned,
             "Bytes of blocks held by matches and loads now.")
      .field("last_error", &kvcache::StoreStats::last_error,
             "The last error of a tier; empty if there was none.")
      .field("last_error_age", &kvcache::StoreStats::last_error_age,
             "Seconds since `last_error`; stays small while the error persists.");
}

void bind_match(nb::module_& m) {
  nb::class_<KvMatchRef>(m, "KvMatch",
                         "Blocks that are in the store, pinned where they are until release(), the "
                         "end of `with`, or until this object is dropped.")
      .def_prop_ro(
          "keys", [](const KvMatchRef& self) { return bytes_of(held(self).keys()); },
          "Keys of the blocks, for load().")
      .def_prop_ro(
          "tiers",
          [](const KvMatchRef& self) {
            const auto tiers = held(self).tiers();
            return std::vector<unsigned>(tiers.begin(), tiers.end());
          },
          "The number of the fastest tier that has each block.")
      .def("__len__", [](const KvMatchRef& self) { return held(self).size(); })
      .def("release", &release_match, nb::lock_self(), "Unpins the blocks.")
      .def(
          "__enter__",
          [](nb::handle self) {
            held(nb::cast<const KvMatchRef&>(self));
            return nb::borrow(self);
          },
          nb::sig("def __enter__(self) -> KvMatch"))
      .def(
          "__exit__", [](KvMatchRef& self, const nb::args&) { release_match(self); },
          nb::lock_self(), nb::sig("def __exit__(self, *error: object) -> None"));
}

void bind_load_layer(nb::module_& m) {
  nb::class_<KvLayerRef>(m, "KvLayer", "One layer of a load: await it, or wait for it.")
      .def(
          "done", [](const KvLayerRef& self) { return self.load.poll(self.layer).has_value(); },
          "True once the layer is loaded and verified, or has failed.")
      .def(
          "wait",
          [](const KvLayerRef& self, Nanoseconds timeout) {
            const KvLayerRef mine = self;
            wait_layer(mine.load, mine.layer, timeout);
          },
          "timeout"_a = 60.0,
          "Makes the layer urgent, and waits at most `timeout` seconds. IoError: blocks of the "
          "layer could not be read or were damaged; KvLoad.leading counts the leading blocks that "
          "are left.")
      .def(
          "urgent",
          [](const KvLayerRef& self) {
            const KvLayerRef mine = self;
            const GilRelease release;
            mine.load.urgent(mine.layer);
          },
          "Makes the layer urgent: from now on it is read with priority \"demand\".")
      .def("__await__", await_by("layer_ready"),
           nb::sig("def __await__(self) -> typing.Generator[typing.Any, None, None]"),
           "Under asyncio: as wait(), without blocking the loop.");
}

void bind_load(nb::module_& m) {
  nb::class_<KvLoadRef>(
      m, "KvLoad",
      "A load in progress. The destination memory is kept alive until the blocks are there.")
      .def_prop_ro("layers", [](const KvLoadRef& self) { return self.load.layers(); })
      .def(
          "layer",
          [](const KvLoadRef& self, unsigned layer) {
            if (layer >= self.load.layers()) {
              raise(ErrorCode::invalid, "no layer " + std::to_string(layer) + " of " +
                                            std::to_string(self.load.layers()));
            }
            return KvLayerRef{self.owner, self.load, layer};
          },
          "layer"_a, "One layer, to be awaited.")
      .def(
          "done", [](const KvLoadRef& self) { return self.load.done(); },
          "True once nothing more will be written.")
      .def(
          "wait",
          [](const KvLoadRef& self, Nanoseconds timeout) {
            const KvLoadRef mine = self;
            unwrap(wait_for(timeout, [&](Nanoseconds slice) { return mine.load.wait(slice); }));
          },
          "timeout"_a = 60.0,
          "Waits for all layers at most `timeout` seconds; raises the first error of any.")
      .def("__await__", await_by("load_ready"),
           nb::sig("def __await__(self) -> typing.Generator[typing.Any, None, None]"),
           "Under asyncio: as wait(), without blocking the loop.")
      .def_prop_ro(
          "leading", [](const KvLoadRef& self) { return self.load.leading(); },
          "How many leading blocks are not missing and have not failed so far.")
      .def_prop_ro(
          "loaded",
          [](const KvLoadRef& self) {
            if (!self.load.done()) {
              raise(ErrorCode::invalid, "the load has not ended; wait() for it first");
            }
            std::vector<bool> loaded(self.blocks);
            for (std::size_t i = 0; i < self.blocks; ++i) loaded[i] = self.load.loaded(i);
            return loaded;
          },
          "For each block of load(): whether it was loaded and verified. InvalidError: not done().")
      .def(
          "cancel",
          [](const KvLoadRef& self) {
            const GilRelease release;
            self.load.cancel();
          },
          "Requests a stop; layers that are loaded stay.");
}

void bind_stored(nb::module_& m) {
  nb::class_<KvStoredRef>(m, "KvStored",
                          "A store in progress. The source memory is kept alive; it must not "
                          "change until the blocks are stored.")
      .def("done", [](const KvStoredRef& self) { return self.stored.done(); })
      .def(
          "wait",
          [](const KvStoredRef& self, Nanoseconds timeout) {
            const KvStoredRef mine = self;
            return unwrap(
                wait_for(timeout, [&](Nanoseconds slice) { return mine.stored.wait(slice); }));
          },
          "timeout"_a = 60.0, "Waits at most `timeout` seconds. Returns the outcome, in blocks.")
      .def("__await__", await_by("stored"),
           nb::sig("def __await__(self) -> typing.Generator[typing.Any, None, KvStoredCounts]"),
           "Under asyncio: as wait(), without blocking the loop.");
}

}  // namespace

void bind_kv_handles(nb::module_& m) {
  bind_geometry(m);
  bind_store_stats(m);
  bind_match(m);
  bind_load_layer(m);
  bind_load(m);
  bind_stored(m);
}

}  // namespace headrace::python
