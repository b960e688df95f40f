// SPDX-License-Identifier: Apache-2.0
// What Python's objects hold. All of it is held by C++ shared pointers, never by references between
// Python objects, so that no order of garbage collection frees something in use, and nothing that
// an engine's thread drops needs the interpreter (the rules of that: interpreter.h). What holds
// memory of a Python object tells the garbage collector where it alone does (visit_exporter).
//
//   Transfer -> mover, both objects until done      Block -> cache, its object
//   Cache    -> mover, the objects it reads         Prefetch -> cache
//   KvStore  -> mover                               KvMatch, KvLoad, KvStored -> their store
//   HotnessSource, PageTier -> the objects whose memory they were given
//   Mover    -> machine, backends                   views (memoryview, arrays) -> buffer or block
#pragma once

#include <nanobind/nanobind.h>

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "borrowed.h"
#include "core/fork.h"
#include "headrace/headrace.h"
#include "headrace/kvcache/store.h"
#include "interpreter.h"
#include "interruptible.h"
#include "seen.h"

namespace headrace::python {

namespace nb = nanobind;

struct ObjectRef {
  ObjectPointer object;
  bool writable = true;
  const Borrowed* borrowed = nullptr;        // what holds `object`, if that is Python's memory
  std::optional<std::uint64_t> stream = {};  // of a GPU, not waited for
};
struct BufferRef : ObjectRef {
  std::shared_ptr<Buffer> buffer;
};
struct FileRef : ObjectRef {
  std::shared_ptr<File> file;
};
struct MemoryRangeRef : ObjectRef {
  unsigned item_bytes = 1;
};

// An extent that keeps its object.
struct ExtentRef {
  ObjectPointer object;
  std::uint64_t offset = 0;
  Bytes length;
  bool writable = true;
  const Borrowed* borrowed = nullptr;        // as of its object
  std::optional<std::uint64_t> stream = {};  // as of its object

  Extent get() const { return {object.get(), offset, length}; }
};

// Extents at equal distances: the first one, the distance, and how many.
struct StridedRef : ExtentRef {
  std::uint64_t stride = 0;
  std::uint64_t count = 0;
};

// An argument that may be an Extent or a whole Object.
struct ExtentLike : ExtentRef {};

// Drops an object whose destructor may wait for copies in flight, without the GIL. In a scope in
// which no Python code may run the GIL stays held, since a thread that released it would wait to
// get it back.
template <class T>
void drop_without_gil(std::unique_ptr<T> dropped) {
  std::optional<GilRelease> release;
  if (!NoPython::here() && holds_gil()) release.emplace();
  dropped.reset();
}

struct MoverOwner;
struct CacheOwner;
void drop_owner(MoverOwner* owner);
void drop_owner(CacheOwner* owner);
inline void report_left(const MoverOwner&) {}
void report_left(const CacheOwner& owner);

// The deleter of owners whose end waits for copies in flight. A thread that reads a UserSource
// leaves that to the interpreter. Once such threads are stuck at its end, the owner lives on, and
// stderr gets a line about changes that are lost.
struct EndOwner {
  template <class T>
  void operator()(T* owner) const {
    if (GilVisit::stuck()) return report_left(*owner);
    if (!GilVisit::here()) return drop_owner(owner);
    leave_to_interpreter(std::shared_ptr<void>(owner, EndOwner()));
  }
};

// A Mover with everything it borrows.
struct MoverOwner {
  const Machine machine;
  const Backends backends;
  Mover mover;

  MoverOwner(Machine m, Backends b, MoverOptions options)
      : machine(std::move(m)), backends(std::move(b)), mover(machine, backends, options) {}
};
struct MoverRef {
  std::shared_ptr<MoverOwner> owner;
};
struct TransferRef {
  std::shared_ptr<MoverOwner> owner;
  Transfer transfer;
};

// A Cache with everything it borrows.
struct CacheOwner {
  const std::shared_ptr<MoverOwner> mover;
  SeenObjects seen;
  std::unique_ptr<CacheTrace> trace;
  std::shared_ptr<Borrowed> log;  // before_write_back, or null
  // Bytes pinned by views, and the most of them: a quarter of the budgets.
  std::atomic<std::uint64_t> viewed = 0;
  std::atomic<std::uint64_t> viewable = 0;
  std::map<NodeId, Bytes> budgets;  // with the GIL
  std::unique_ptr<Cache> cache;     // goes first

  explicit CacheOwner(std::shared_ptr<MoverOwner> m) : mover(std::move(m)) {}
  ~CacheOwner() { drop_without_gil(std::move(cache)); }
  CacheOwner(const CacheOwner&) = delete;
  CacheOwner& operator=(const CacheOwner&) = delete;
  // Requires: the GIL.
  void set_budget(NodeId node, Bytes budget) {
    budgets[node] = budget;
    std::uint64_t sum = 0;
    for (const auto& [each, bytes] : budgets) sum += bytes.value;
    viewable = sum / 4;
  }
};
struct CacheRef {
  std::shared_ptr<CacheOwner> owner;
};
inline void drop_owner(MoverOwner* owner) { drop_without_gil(std::unique_ptr<MoverOwner>(owner)); }
inline void drop_owner(CacheOwner* owner) { delete owner; }

// One pin. Shared by the Block and the views made from it.
struct Pin {
  std::shared_ptr<CacheOwner> cache;
  ObjectPointer object;
  const Borrowed* borrowed = nullptr;  // as of ObjectRef
  Block block;                         // goes first
  // For writing: there is no clone of the block to wait on, so threads take turns.
  bool write = false;
  std::mutex turn = {};
  std::uint64_t viewed = 0;  // counted in CacheOwner::viewed

  ~Pin() { cache->viewed -= viewed; }
};
struct BlockRef {
  std::shared_ptr<Pin> pin;              // null after release()
  std::vector<nb::object> written = {};  // weak references to the views of write()
};
struct PrefetchRef {
  std::shared_ptr<CacheOwner> cache;
  std::unique_ptr<Prefetch> plan;  // goes first

  PrefetchRef(std::shared_ptr<CacheOwner> c, Prefetch p)
      : cache(std::move(c)), plan(std::make_unique<Prefetch>(std::move(p))) {}
  PrefetchRef(PrefetchRef&&) = default;
  ~PrefetchRef() { drop_without_gil(std::move(plan)); }
};

// A store of KV blocks with everything it borrows.
struct KvOwner {
  const Origin origin;
  const std::shared_ptr<MoverOwner> mover;
  std::unique_ptr<kvcache::Store> store;  // goes first

  explicit KvOwner(std::shared_ptr<MoverOwner> m) : mover(std::move(m)) {}
  ~KvOwner() { drop_without_gil(std::move(store)); }
  KvOwner(const KvOwner&) = delete;
  KvOwner& operator=(const KvOwner&) = delete;
};
struct KvStoreRef {
  std::shared_ptr<KvOwner> owner;
};
struct KvMatchRef {
  std::shared_ptr<KvOwner> owner;
  std::shared_ptr<kvcache::Match> match;  // goes first; null after release()
};
struct KvLoadRef {
  std::shared_ptr<KvOwner> owner;
  kvcache::Load load;
  std::size_t blocks = 0;
};
struct KvLayerRef {
  std::shared_ptr<KvOwner> owner;
  kvcache::Load load;
  unsigned layer = 0;
};
struct KvStoredRef {
  std::shared_ptr<KvOwner> owner;
  kvcache::Stored stored;
};

// Time between two checks for signals during a wait: short enough for Ctrl-C to seem immediate.
inline constexpr Nanoseconds kSignalInterval = std::chrono::milliseconds{50};

// Calls `wait(slice)` without the GIL until it returns true or `timeout` has passed, a pause of the
// process not counted; in between signals are looked at, and what a handler raises is raised.
// Requires: the GIL.
bool wait_with_signals(Nanoseconds timeout, const std::function<bool(Nanoseconds)>& wait);

// The same for a wait that gives a Result: that of the last slice, which is no time-out or the end.
template <class Wait>
auto wait_for(Nanoseconds timeout, const Wait& wait) {
  auto outcome = wait(Nanoseconds{0});
  if (outcome || outcome.error().code != ErrorCode::timed_out) return outcome;
  wait_with_signals(timeout, [&](Nanoseconds slice) {
    outcome = wait(slice);
    return outcome || outcome.error().code != ErrorCode::timed_out;
  });
  return outcome;
}

// This host, discovered once (headrace._arrays).
Machine this_machine();

// A read-only memoryview of a pin's bytes, which holds the pin; waits for the copy. Null: there is
// no copy.
nb::object copy_view(const std::shared_ptr<Pin>& pin, Nanoseconds timeout);

// CacheOptions::before_write_back by `owner.log`.
Status call_log(CacheOwner& owner, const Extent& extent, std::span<const std::byte> bytes);

// The bytes of an object with the buffer protocol as an array of NumPy, which keeps it.
nb::object as_numpy(nb::handle memory, nb::handle dtype);

// For tp_traverse: the Python object whose memory `object` is, if `holders` are all that hold it.
int visit_exporter(const ObjectPointer& object, const Borrowed* borrowed, long holders,
                   visitproc visit, void* context);

// One per file of this folder.
void bind_machine(nb::module_& m);
void bind_memory(nb::module_& m);
void bind_mover(nb::module_& m);
void bind_completions(nb::module_& m);
void bind_advice(nb::module_& m);
void bind_cache(nb::module_& m);
void bind_block(nb::module_& m);
void bind_cache_options(nb::class_<CacheRef>& cache);
void bind_cache_tenant(nb::module_& m);
void bind_cache_stats(nb::module_& m);
void bind_gpu_arrays(nb::module_& m);
void bind_user_source(nb::module_& m);
void bind_kv(nb::module_& m);
void bind_measure(nb::module_& m);
void bind_profile(nb::module_& m);
void bind_arenas(nb::module_& m);
void bind_tier(nb::module_& m);
void bind_process_tier(nb::module_& m);
void bind_safetensors(nb::module_& m);

}  // namespace headrace::python

namespace nanobind::detail {

template <>
struct type_caster<headrace::python::ExtentLike> {
  NB_TYPE_CASTER(headrace::python::ExtentLike, const_name("_core.Extent | _core.Object"))

  bool from_python(handle source, uint32_t, cleanup_list*) noexcept {
    using namespace headrace::python;
    ExtentRef* extent = nullptr;
    if (nanobind::try_cast<ExtentRef*>(source, extent, false) && extent != nullptr) {
      static_cast<ExtentRef&>(value) = *extent;
      return true;
    }
    ObjectRef* object = nullptr;
    if (!nanobind::try_cast<ObjectRef*>(source, object, false) || object == nullptr) return false;
    value.object = object->object;
    value.offset = 0;
    value.length = object->object->size();
    value.writable = object->writable;
    value.borrowed = object->borrowed;
    value.stream = object->stream;
    return true;
  }
};

}  // namespace nanobind::detail
