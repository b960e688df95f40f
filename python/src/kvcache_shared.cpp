// SPDX-License-Identifier: Apache-2.0
// Blocks of a store that another process has: found and copied without a call to that process.
#include "kvcache.h"
#include "kvcache/client/blocks.h"

namespace headrace::python {

using namespace nb::literals;

namespace {

struct KvSharedRef {
  std::shared_ptr<const kvcache::SharedBlocks> blocks;
};

std::vector<bool> read(const KvSharedRef& self, const std::vector<nb::bytes>& keys,
                       const std::vector<ExtentLike>& into, const Word<kvcache::Layout>& layout,
                       const std::vector<std::size_t>& positions, const MoverRef* mover) {
  if (!std::ranges::all_of(into, &ExtentLike::writable)) {
    raise(ErrorCode::denied, "the destination is read-only; open or make it writable");
  }
  const std::shared_ptr blocks = self.blocks;
  const Memory to(into);
  const std::vector<kvcache::Key> wanted = keys_of(keys);
  const kvcache::Layout order = layout.get();
  const std::shared_ptr owner = mover == nullptr ? nullptr : mover->owner;
  release_borrowed();
  return unwrap(without_gil([&] {
    return blocks->read(wanted, to.extents, order, positions,
                        owner == nullptr ? nullptr : &owner->mover);
  }));
}

void copy(const KvSharedRef& self, const std::vector<bool>& which, const ExtentLike& staging,
          const std::vector<ExtentLike>& user, bool to_user, const Word<kvcache::Layout>& layout,
          const std::vector<std::size_t>& positions) {
  const auto may_write = [](const ExtentLike& each) { return each.writable; };
  if (to_user ? !std::ranges::all_of(user, may_write) : !staging.writable) {
    raise(ErrorCode::denied, "the destination is read-only; open or make it writable");
  }
  const std::shared_ptr blocks = self.blocks;
  const Memory ours({staging});
  const Memory theirs(user);
  const kvcache::Staging staged{
      .bytes = {ours.extents.front().memory(), ours.extents.front().length.value}, .which = which};
  const auto direction = to_user ? kvcache::Direction::to_user : kvcache::Direction::from_user;
  const kvcache::Layout order = layout.get();
  release_borrowed();
  unwrap(without_gil([&] {
    return kvcache::copy_staged(blocks->geometry(), staged, direction, theirs.extents, order,
                                positions);
  }));
}

}  // namespace

void bind_kv_shared(nb::module_& m) {
  nb::class_<KvSharedRef>(
      m, "KvShared",
      "Finds and copies blocks of another process's KvStore without a call to that process. The "
      "store is open with shared=True. Thread-safe. CancelledError: the store is closed. "
      "UnsupportedError: in a child of fork().")
      .def(
          "__init__",
          [](KvSharedRef* self, const kvcache::Geometry& geometry, std::optional<int> memory,
             int index) {
            new (self) KvSharedRef{unwrap(without_gil(
                [&] { return kvcache::SharedBlocks::attach(geometry, memory, index); }))};
          },
          "geometry"_a, "memory"_a.none(), "index"_a,
          "Maps the descriptors of KvStore.shared_files, and leaves them open.")
      .def_prop_ro("geometry", [](const KvSharedRef& self) { return self.blocks->geometry(); })
      .def(
          "contains",
          [](const KvSharedRef& self, const std::vector<nb::bytes>& keys) {
            const std::shared_ptr blocks = self.blocks;
            const std::vector<kvcache::Key> wanted = keys_of(keys);
            return unwrap(without_gil([&] { return blocks->contains(wanted); }));
          },
          "keys"_a, "Which of the blocks the store has now, in any tier.")
      .def("read", &read, "keys"_a, "into"_a, nb::kw_only(), "layout"_a, "positions"_a,
           "mover"_a = nb::none(),
           "Copies the blocks that are in the store's memory; returns true for each of them. The "
           "destination of other blocks may have been overwritten. `mover`: copies from 8 MiB on.")
      .def("copy", &copy, "which"_a, "staging"_a, "user"_a, nb::kw_only(), "to_user"_a, "layout"_a,
           "positions"_a,
           "Copies these blocks between `staging`, where they lie one after the other, and the "
           "user's memory.");
}

}  // namespace headrace::python
