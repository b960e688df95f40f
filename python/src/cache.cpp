// SPDX-License-Identifier: Apache-2.0
// Cache and Prefetch.
#include <nanobind/stl/variant.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <string>
#include <string_view>
#include <variant>

#include "handles.h"
#include "record.h"
#include "types.h"
#include "view.h"

namespace headrace::python {

using namespace nb::literals;

void report_left(const CacheOwner& owner) {
  const Bytes lost = owner.cache != nullptr ? owner.cache->stats().bytes_dirty : Bytes{0};
  if (lost.value == 0) return;
  const std::string line = "headrace: a cache could not end, and " + to_string(lost) +
                           " of changes are lost: a source does not answer\n";
  (void)std::fputs(line.c_str(), stderr);
}

namespace {

// Lets go of the objects that nobody else holds and the cache does not read from: with them their
// copies, which nobody can ask for any more. What goes has left the list before it is dropped, with
// the GIL: that may run Python code, which may call the cache.
void sweep(CacheOwner& owner) {
  std::vector<ObjectPointer> unused;
  std::vector<ObjectPointer> read;
  {
    const GilRelease release;
    unused = owner.seen.take_unused(owner.cache->reading());
    std::erase_if(unused, [&](ObjectPointer& object) {
      if (owner.cache->forget(*object, Nanoseconds{0})) return false;
      read.push_back(std::move(object));
      return true;
    });
    owner.seen.put_back(std::move(read));
  }
  unused.clear();
  release_borrowed();
}

void remember(CacheOwner& owner, const ExtentRef& extent) {
  if (owner.seen.add(extent.object)) sweep(owner);
}

// The options of an access. Its wait for space ends at a signal of Python's.
class Access {
 public:
  // Only the wait for others ends at a signal.
  explicit Access(const AccessOptions& options = {}) : options_(options) { options_.stop = &stop_; }
  Access(const Access&) = delete;
  Access& operator=(const Access&) = delete;

  // Calls `access(options)` without the GIL, then raises what a handler raised.
  template <class Call>
  auto run(const Call& access) {
    auto result = without_gil([&] { return access(options_); });
    signals_.rethrow();
    return result;
  }

 private:
  Interruptible signals_{nb::none(), nb::none()};
  Nanoseconds next_look_{0};
  bool stopped_ = false;
  const std::function<bool()> stop_ = [this] {
    const Nanoseconds now = system_clock().now();
    if (stopped_ || now < next_look_) return stopped_;
    next_look_ = now + kSignalInterval;
    return stopped_ = signals_.stop();
  };
  AccessOptions options_;
};

const Prefetch* plan_of(const PrefetchRef* plan) {
  return plan == nullptr ? nullptr : plan->plan.get();
}

// The name of a tenant, or nothing.
using TenantName = std::optional<std::string>;

TenantId tenant_of(const CacheRef& self, const TenantName& name) {
  return name ? unwrap(self.owner->cache->tenant(*name)) : TenantId{};
}

void set_tenant(const CacheRef& self, const ObjectRef& object, const TenantName& tenant) {
  if (self.owner->seen.add(object.object)) sweep(*self.owner);  // its tenant ends with it
  unwrap(self.owner->cache->set_tenant(*object.object, tenant_of(self, tenant)));
}

std::optional<NodeId> known(const CacheRef& self, std::optional<NodeId> initiator) {
  if (initiator) unwrap(self.owner->mover->machine.node(*initiator));
  return initiator;
}

BlockRef access(const CacheRef& self, const ExtentLike& extent, const AccessOptions& wanted) {
  const std::shared_ptr<CacheOwner> owner = self.owner;
  const bool write = wanted.write;
  const bool is_file = extent.object->memory() == nullptr && !extent.object->device_address();
  if (write && !extent.writable && !is_file) {  // the cache itself refuses files
    raise(ErrorCode::denied, "the source is read-only; make it writable");
  }
  Access how(wanted);
  remember(*owner, extent);
  Block block = how.run(
      [&](const AccessOptions& options) { return owner->cache->access(extent.get(), options); });
  return {std::make_shared<Pin>(owner, extent.object, extent.borrowed, std::move(block), write)};
}

std::vector<Extent> plain(CacheOwner& owner, const std::vector<ExtentLike>& extents) {
  std::vector<Extent> result;
  result.reserve(extents.size());
  for (const ExtentLike& extent : extents) {
    remember(owner, extent);
    result.push_back(extent.get());
  }
  return result;
}

std::vector<BlockRef> access_all(const CacheRef& self, const std::vector<ExtentLike>& extents,
                                 const Word<Priority>& priority, std::optional<NodeId> initiator,
                                 const PrefetchRef* plan, Nanoseconds space_timeout,
                                 const Word<Keep>& keep, const TenantName& tenant) {
  Access how({.priority = priority.get(),
              .initiator = known(self, initiator),
              .plan = plan_of(plan),
              .space_timeout = space_timeout,
              .keep = keep.get(),
              .tenant = tenant_of(self, tenant)});
  const std::shared_ptr<CacheOwner> owner = self.owner;
  const std::vector<Extent> wanted = plain(*owner, extents);
  std::vector<Block> blocks = how.run([&](const AccessOptions& options) {
    std::vector<Block> found(wanted.size());
    owner->cache->access(wanted, found, options);
    return found;
  });
  std::vector<BlockRef> result;
  result.reserve(blocks.size());
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    result.push_back({std::make_shared<Pin>(owner, extents[i].object, extents[i].borrowed,
                                            std::move(blocks[i]))});
  }
  return result;
}

// The options of an access that reads.
AccessOptions reading(const CacheRef& self, const Word<Priority>& priority, const PrefetchRef* plan,
                      const Word<Keep>& keep, const TenantName& tenant) {
  return {.priority = priority.get(),
          .plan = plan_of(plan),
          .keep = keep.get(),
          .tenant = tenant_of(self, tenant)};
}

void read_to(const CacheRef& self, const ExtentLike& from, std::span<std::byte> to, Bytes block,
             Nanoseconds timeout, const AccessOptions& wanted) {
  const std::shared_ptr<CacheOwner> owner = self.owner;
  Access how(wanted);
  remember(*owner, from);
  unwrap(how.run([&](const AccessOptions& options) {
    return owner->cache->read(from.get(), to,
                              {.block = block, .timeout = timeout, .access = options});
  }));
}

nb::bytes read(const CacheRef& self, const ExtentLike& from, Bytes block, Nanoseconds timeout,
               const AccessOptions& wanted) {
  const Extent extent = from.get();
  if (!extent.valid()) raise(ErrorCode::invalid, "the extent is outside its object");
  // Nobody else has the new object, so its bytes may be written without the GIL.
  PyObject* const made =
      PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(extent.length.value));
  if (made == nullptr) throw nb::python_error();
  nb::bytes bytes = nb::steal<nb::bytes>(made);
  auto* const begin = reinterpret_cast<std::byte*>(PyBytes_AS_STRING(made));
  read_to(self, from, {begin, extent.length.value}, block, timeout, wanted);
  return bytes;
}

nb::object view(const CacheRef& self, const ExtentLike& from, Nanoseconds timeout,
                const Word<Priority>& priority, const PrefetchRef* plan, const Word<Keep>& keep,
                const TenantName& tenant) {
  const AccessOptions wanted = reading(self, priority, plan, keep, tenant);
  const std::shared_ptr<CacheOwner> owner = self.owner;
  const Extent extent = from.get();
  if (!extent.valid()) raise(ErrorCode::invalid, "the extent is outside its object");
  const auto pin = std::make_shared<Pin>(owner, from.object, from.borrowed);
  pin->viewed = extent.length.value;
  if ((owner->viewed += pin->viewed) <= owner->viewable) {
    Access how(wanted);
    remember(*owner, from);
    pin->block = how.run(
        [&](const AccessOptions& options) { return owner->cache->access(extent, options); });
    nb::object found = copy_view(pin, timeout);
    if (found.is_valid()) return found;
  }
  const nb::bytes copy = read(self, from, 1_MiB, timeout, wanted);
  PyObject* const made = PyMemoryView_FromObject(copy.ptr());
  if (made == nullptr) throw nb::python_error();
  return nb::steal(made);
}

template <class Wanted>
PrefetchRef start_plan(const CacheRef& self, const Wanted& wanted, const PrefetchOptions& options) {
  const std::shared_ptr<CacheOwner> owner = self.owner;
  const GilRelease release;
  return {owner, owner->cache->prefetch(wanted, options)};
}

PrefetchRef prefetch(const CacheRef& self, const std::vector<ExtentLike>& extents, Nanoseconds lead,
                     Bytes window, std::optional<NodeId> initiator, bool named,
                     const TenantName& tenant) {
  const std::vector<Extent> wanted = plain(*self.owner, extents);
  return start_plan(self, wanted,
                    {.lead = lead,
                     .window = window,
                     .initiator = known(self, initiator),
                     .named = named,
                     .tenant = tenant_of(self, tenant)});
}

PrefetchRef prefetch_strided(const CacheRef& self, const StridedRef& extents, Nanoseconds lead,
                             Bytes window, std::optional<NodeId> initiator, bool named,
                             const TenantName& tenant) {
  remember(*self.owner, extents);
  const Strided wanted{.object = extents.object.get(),
                       .offset = extents.offset,
                       .length = extents.length,
                       .stride = extents.stride,
                       .count = extents.count};
  return start_plan(self, wanted,
                    {.lead = lead,
                     .window = window,
                     .initiator = known(self, initiator),
                     .named = named,
                     .tenant = tenant_of(self, tenant)});
}

// Other plans go on in its space, for which memory may be allocated: seconds.
void cancel(const PrefetchRef& self) {
  const GilRelease release;
  self.plan->cancel();
}

void bind_prefetch(nb::module_& m) {
  Record<Prefetch::Progress>(m, "PrefetchProgress", "Progress of a plan.")
      .field("planned", &Prefetch::Progress::planned, "Extents in all.")
      .field("started", &Prefetch::Progress::started, "Copy started, or found in the cache.")
      .field("used", &Prefetch::Progress::used, "Extents accessed at least once since.")
      .field("invalid", &Prefetch::Progress::invalid, "Not inside their object, so never fetched.")
      .field("cancelled", &Prefetch::Progress::cancelled, "Whether the plan was cancelled.");
  nb::class_<PrefetchRef>(m, "Prefetch", "A running prefetch plan. Dropping it cancels it.")
      .def(
          "cancel", [](const PrefetchRef& self) { cancel(self); },
          "Starts no more copies and lets those not yet used be evicted.")
      .def("progress", [](const PrefetchRef& self) { return self.plan->progress(); })
      .def(
          "__enter__", [](nb::handle self) { return nb::borrow(self); },
          nb::sig("def __enter__(self) -> Prefetch"))
      .def(
          "__exit__", [](const PrefetchRef& self, const nb::args&) { cancel(self); },
          nb::sig("def __exit__(self, *error: object) -> None"));
}

CacheExplanation explain(const CacheRef& self, const ExtentLike& extent,
                         std::optional<NodeId> initiator) {
  const std::shared_ptr<CacheOwner> owner = self.owner;
  const auto from = known(self, initiator);
  return unwrap(without_gil([&] { return owner->cache->explain(extent.get(), from); }));
}

void bind_explanation(nb::module_& m) {
  Record<CacheExplanation>(m, "CacheExplanation", "Why an extent is or is not cached.")
      .field("state", &CacheExplanation::state, "State of its block: absent, filling or ready.")
      .field("dirty", &CacheExplanation::dirty, "Newer than its source.")
      .field("node", &CacheExplanation::node, "Node of its block, or of the copy to be made.")
      .field("planned", &CacheExplanation::planned,
             "Whether a plan will use an extent that lies in it.")
      .field("next_use", &CacheExplanation::next_use,
             "Seconds until that use. None: none is planned, the consumer has paused, or its pace "
             "is not known yet (before three uses).")
      .field("copy_time", &CacheExplanation::copy_time, "Seconds; None: not measured.")
      .field("saved_per_use", &CacheExplanation::saved_per_use,
             "Seconds by which a use of the copy is shorter; None: not measured.")
      .field("uses_to_pay", &CacheExplanation::uses_to_pay,
             "Uses that save the time of the copy; None: unknown, or never.")
      .field("text", &CacheExplanation::text, "One line of all that.")
      .computed(
          "refusal",
          [](const CacheExplanation& all) {
            return all.refusal ? std::optional(all.refusal->message) : std::nullopt;
          },
          "Why an access would make no copy; None: it would, or there is one.");
}

void bind_accesses(nb::class_<CacheRef>& cache) {
  cache
      .def(
          "access",
          [](const CacheRef& self, const ExtentLike& extent, const Word<Priority>& priority,
             std::optional<NodeId> initiator, const PrefetchRef* plan, Nanoseconds space_timeout,
             bool write, Nanoseconds lock_timeout, const Word<Keep>& keep,
             const TenantName& tenant) {
            return access(self, extent,
                          {.priority = priority.get(),
                           .initiator = known(self, initiator),
                           .plan = plan_of(plan),
                           .space_timeout = space_timeout,
                           .write = write,
                           .keep = keep.get(),
                           .tenant = tenant_of(self, tenant),
                           .lock_timeout = lock_timeout});
          },
          "extent"_a, nb::kw_only(), "priority"_a = "demand", "initiator"_a = nb::none(),
          "plan"_a.none() = nb::none(), "space_timeout"_a = 0.0, "write"_a = false,
          "lock_timeout"_a = 60.0, "keep"_a = "normal", "tenant"_a = nb::none(),
          "The block of an extent: a pin on a copy that is ready, in flight, or started now. "
          "Waits for no copy; a miss may allocate memory. `plan`: the plan of this access; once a "
          "plan was named, only accesses that name it count as its uses. `space_timeout`: seconds "
          "to wait for space while blocks hold the whole budget; then the block refers to the "
          "source. `write`: in a writable cache, lock the bytes for writing; no other block holds "
          "them meanwhile. `lock_timeout`: seconds to wait for other blocks with these bytes. In "
          "a writable cache a block without a copy has no bytes, because the source may be older. "
          "`keep`: a copy that this access starts survives a scan ('longer') or is evicted first "
          "('shorter'). `tenant`: whose access it is, a name of the cache's `tenants`.")
      .def("access_all", &access_all, "extents"_a, nb::kw_only(), "priority"_a = "demand",
           "initiator"_a = nb::none(), "plan"_a.none() = nb::none(), "space_timeout"_a = 0.0,
           "keep"_a = "normal", "tenant"_a = nb::none(),
           "access() for many extents at once; each miss waits up to `space_timeout` on its own.");
}

void bind_reads(nb::class_<CacheRef>& cache) {
  cache
      .def(
          "read",
          [](const CacheRef& self, const ExtentLike& from, Bytes block, Nanoseconds timeout,
             const Word<Priority>& priority, const PrefetchRef* plan, const Word<Keep>& keep,
             const TenantName& tenant) {
            return read(self, from, block, timeout, reading(self, priority, plan, keep, tenant));
          },
          "extent"_a, nb::kw_only(), "block"_a = 1 << 20, "timeout"_a = 60.0,
          "priority"_a = "demand", "plan"_a.none() = nb::none(), "keep"_a = "normal",
          "tenant"_a = nb::none(),
          "The bytes of an extent, read through aligned cached blocks of 64 KiB to `block` bytes, "
          "which reads share wherever they begin. Reads of very different lengths may keep bytes "
          "in "
          "blocks of several sizes; block=65536 avoids that. Waits at most `timeout` seconds for "
          "each block. Releases the GIL.")
      .def(
          "readinto",
          [](const CacheRef& self, const ExtentLike& from, nb::handle into, Bytes block,
             Nanoseconds timeout, const Word<Priority>& priority, const PrefetchRef* plan,
             const Word<Keep>& keep, const TenantName& tenant) {
            const View to(into, PyBUF_WRITABLE);
            read_to(self, from, to.as<std::byte>(), block, timeout,
                    reading(self, priority, plan, keep, tenant));
          },
          "extent"_a, "into"_a, nb::kw_only(), "block"_a = 1 << 20, "timeout"_a = 60.0,
          "priority"_a = "demand", "plan"_a.none() = nb::none(), "keep"_a = "normal",
          "tenant"_a = nb::none(),
          nb::sig("def readinto(self, extent: Extent | Object, into: _Buffer, *, "
                  "block: int = 1048576, timeout: float = 60.0, "
                  "priority: typing.Literal['demand', 'prefetch', 'migration'] = 'demand', "
                  "plan: Prefetch | None = None, "
                  "keep: typing.Literal['normal', 'longer', 'shorter'] = 'normal', "
                  "tenant: str | None = None) -> None"),
          "Like read(), into a writable buffer of the same length.")
      .def("view", &view, "extent"_a, nb::kw_only(), "timeout"_a = 60.0, "priority"_a = "demand",
           "plan"_a.none() = nb::none(), "keep"_a = "normal", "tenant"_a = nb::none(),
           nb::sig("def view(self, extent: Extent | Object, *, timeout: float = 60.0, "
                   "priority: typing.Literal['demand', 'prefetch', 'migration'] = 'demand', "
                   "plan: Prefetch | None = None, "
                   "keep: typing.Literal['normal', 'longer', 'shorter'] = 'normal', "
                   "tenant: str | None = None) -> memoryview"),
           "Returns the bytes of an extent, read-only and without a copy: the view pins the block "
           "of this extent. If views pin a quarter of the budgets already, or there is no space, "
           "returns a copy by read(). Waits at most `timeout` seconds.")
      .def("prefetch", &prefetch, "extents"_a, nb::kw_only(), "lead"_a = 0.05,
           "window"_a = 64 << 20, "initiator"_a = nb::none(), "named"_a = false,
           "tenant"_a = nb::none(),
           "Plans the use of extents in this order, and fetches them `lead` seconds before use, "
           "with at most `window` unused bytes at a time. `named`: only accesses with `plan=` "
           "count as uses, from the beginning.")
      .def("prefetch", &prefetch_strided, "extents"_a, nb::kw_only(), "lead"_a = 0.05,
           "window"_a = 64 << 20, "initiator"_a = nb::none(), "named"_a = false,
           "tenant"_a = nb::none(),
           "The same for extents at equal distances. Those that do not lie in their object are not "
           "fetched (PrefetchProgress.invalid).");
}

// The wait ends at a signal of Python's.
Status write_back(const CacheRef& self, const std::optional<ExtentLike>& extent,
                  Nanoseconds timeout, Status (Cache::*call)(const WriteBackOptions&)) {
  const std::shared_ptr<CacheOwner> owner = self.owner;
  Access how;
  return how.run([&](const AccessOptions& options) {
    const auto range = extent ? std::optional(extent->get()) : std::nullopt;
    return (*owner->cache.*call)({.extent = range, .timeout = timeout, .stop = options.stop});
  });
}

void bind_writes(nb::class_<CacheRef>& cache) {
  cache
      .def(
          "write_back",
          [](const CacheRef& self, const std::optional<ExtentLike>& extent, Nanoseconds timeout) {
            unwrap(write_back(self, extent, timeout, &Cache::write_back));
          },
          "extent"_a = nb::none(), "timeout"_a = 60.0,
          "Writes the blocks that are dirty now, or those that overlap `extent`, to their sources, "
          "and waits at most `timeout` seconds. They stay cached. What could not be written stays "
          "dirty: the next call tries again.")
      .def(
          "sync",
          [](const CacheRef& self, const std::optional<ExtentLike>& extent, Nanoseconds timeout) {
            unwrap(write_back(self, extent, timeout, &Cache::sync));
          },
          "extent"_a = nb::none(), "timeout"_a = 60.0,
          "write_back(), then fdatasync() of each file that was written: durable.")
      .def(
          "discard",
          [](const CacheRef& self, const ExtentLike& extent, Nanoseconds timeout) {
            unwrap(without_gil([&] { return self.owner->cache->discard(extent.get(), timeout); }));
          },
          "extent"_a, "timeout"_a = 60.0,
          "Drops the copies of an extent, also dirty ones: their changes are lost.");
}

void bind_drops(nb::class_<CacheRef>& cache) {
  cache
      .def(
          "invalidate",
          [](const CacheRef& self, const ExtentLike& extent) {
            const GilRelease release;
            return self.owner->cache->invalidate(extent.get());
          },
          "extent"_a,
          "Announces a changed source: later accesses do not see bytes read before this call. "
          "False: blocks that are dirty or held for writing stay; discard() drops them.")
      .def(
          "flush",
          [](const CacheRef& self) {
            const std::shared_ptr<CacheOwner> owner = self.owner;
            without_gil([&] { owner->cache->flush(); });
            sweep(*owner);
          },
          "Drops all copies that nobody holds and no plan protects.")
      .def(
          "clear",
          [](const CacheRef& self) {
            const std::shared_ptr<CacheOwner> owner = self.owner;
            without_gil([&] { owner->cache->clear(); });
            sweep(*owner);
          },
          "Drops all copies and cancels plans; blocks that are held keep their bytes.");
}

int traverse_cache(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  if (!nb::inst_ready(self)) return 0;
  const auto& owner = nb::inst_ptr<CacheRef>(self)->owner;
  if (owner == nullptr || owner.use_count() != 1 || owner->log == nullptr) return 0;
  return visit(owner->log->exporter(), arg);
}

// The garbage collector is about to clear a cycle with the log, such as `self.cache` whose log is a
// method of self: write back while the log still has what it needs.
void finalize_cache(PyObject* self) {
  if (!nb::inst_ready(self)) return;
  const std::shared_ptr<CacheOwner> owner = nb::inst_ptr<CacheRef>(self)->owner;
  if (owner == nullptr || owner->log == nullptr) return;
  const nb::error_scope kept;
  const Status written = [&] {
    const GilRelease release;
    return owner->cache->write_back();
  }();
  if (written) return;  // else the destructor tries again, with what is left of the log's owner
  PyErr_SetString(PyExc_OSError, written.error().message.c_str());
  PyErr_WriteUnraisable(self);
}

PyType_Slot cache_slots[] = {{Py_tp_traverse, reinterpret_cast<void*>(traverse_cache)},
                             {Py_tp_finalize, reinterpret_cast<void*>(finalize_cache)},
                             {0, nullptr}};

void bind_cache_class(nb::module_& m) {
  nb::class_<CacheRef> cache(
      m, "Cache", nb::type_slots(cache_slots),
      "Keeps copies of extents in fast memory, fetches planned ones ahead of their use, and never "
      "serves old bytes. It keeps an object alive while it reads from it, and while changes are "
      "not written back (for a file: not made durable by sync()). Copies of an object that nobody "
      "else holds are freed with it, sooner or later.");
  bind_cache_options(cache);
  bind_accesses(cache);
  bind_reads(cache);
  bind_writes(cache);
  bind_drops(cache);
  cache
      .def(
          "resize",
          [](const CacheRef& self, NodeId node, Bytes budget) {
            unwrap(without_gil([&] { return self.owner->cache->resize(node, budget); }));
            self.owner->set_budget(node, budget);
          },
          "node"_a, "budget"_a, "Changes the budget of a node.")
      .def("set_tenant", &set_tenant, "object"_a, "tenant"_a.none(),
           "From now on, accesses to an object and plans of it that name no tenant are those of "
           "`tenant`, a name of the cache's `tenants`. None ends this. Copies keep their tenant.")
      .def(
          "stats", [](const CacheRef& self) { return self.owner->cache->stats(); }, "Counts.")
      .def(
          "miss_ratio_curve",
          [](const CacheRef& self) {
            std::vector<std::pair<Bytes, double>> points;
            for (const auto& [budget, misses] : unwrap(self.owner->cache->miss_ratio_curve())) {
              points.emplace_back(budget, misses);
            }
            return points;
          },
          "The miss ratio of LRU as (bytes, ratio), from the smallest budget on; a larger budget "
          "than the last one would not help. Needs `curve`. Empty before an extent was accessed "
          "twice.")
      .def(
          "explain", &explain, "extent"_a, nb::kw_only(), "initiator"_a = nb::none(),
          "Why an extent is or is not cached, its next planned use, and after how many uses a copy "
          "pays, by the machine's measured speeds. No access, and no copy.")
      .def(
          "metrics",
          [](const CacheRef& self, const std::string& name) {
            return openmetrics(self.owner->cache->stats(), name);
          },
          "name"_a = "cache",
          "The counts as OpenMetrics text for Prometheus, with the label cache=`name`.");
}

}  // namespace

void bind_cache(nb::module_& m) {
  bind_cache_stats(m);
  bind_block(m);
  bind_prefetch(m);
  bind_explanation(m);
  bind_cache_tenant(m);
  bind_cache_class(m);
}

}  // namespace headrace::python
