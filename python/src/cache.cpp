// SPDX-License-Identifier: Apache-2.0
// Cache, Block and Prefetch.
#include <nanobind/ndarray.h>
#include <nanobind/stl/variant.h>

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <variant>

#include "gpu_arrays.h"
#include "handles.h"
#include "record.h"
#include "types.h"
#include "view.h"

namespace headrace::python {

using namespace nb::literals;

namespace {

using ByteView = std::span<const std::byte>;
using MemoryView = nb::ndarray<nb::memview, const std::uint8_t, nb::ndim<1>, nb::c_contig>;

// A node, a placement, or one as people write it.
using CachePlace = std::variant<NodeId, Placement, std::string>;

// "gpu:dram" too, which no memory of its own can have.
Placement parse_place(const Machine& machine, std::string_view text) {
  const std::size_t first = std::min(text.find(':'), text.size());
  Placement placement = unwrap(Placement::parse(machine, text.substr(0, first)));
  for (std::size_t at = first; at < text.size();) {
    const std::size_t end = std::min(text.find(':', at + 1), text.size());
    const Placement next = unwrap(Placement::parse(machine, text.substr(at + 1, end - at - 1)));
    if (next.kind) placement.spill.emplace_back(*next.kind);
    for (const NodeWeight& node : next.nodes) placement.spill.emplace_back(node.node);
    placement.strict = false;
    at = end;
  }
  return placement;
}

PlacementPolicy policy_of(const Machine& machine, const CachePlace& place) {
  if (const auto* const node = std::get_if<NodeId>(&place)) return place::always(*node);
  if (const auto* const text = std::get_if<std::string>(&place)) {
    return place::always(parse_place(machine, *text));
  }
  return place::always(std::get<Placement>(place));
}

CacheRef make_cache(const MoverRef& mover, CacheOptions options,
                    const std::optional<CachePlace>& placement,
                    const std::optional<std::string>& route, const std::string& eviction,
                    const std::optional<std::filesystem::path>& trace) {
  if (placement) options.placement = policy_of(mover.owner->machine, *placement);
  if (route) options.route = unwrap(place::route_policy(*route));
  options.eviction = unwrap(eviction_order(eviction));
  auto owner = std::make_shared<CacheOwner>(mover.owner);
  if (trace) {
    owner->trace = unwrap(CacheTrace::create(*trace));
    options.observer = owner->trace->observer();
  }
  owner->cache =
      unwrap(without_gil([&] { return Cache::create(owner->mover->mover, std::move(options)); }));
  return {std::move(owner)};
}

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
  Access(const Word<Priority>& priority, std::optional<NodeId> initiator, const PrefetchRef* plan,
         Nanoseconds space_timeout)
      : options_{.priority = priority.get(),
                 .initiator = initiator,
                 .plan = plan == nullptr ? nullptr : plan->plan.get(),
                 .space_timeout = space_timeout,
                 .stop = &stop_} {}
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
  const AccessOptions options_;
};

BlockRef access(const CacheRef& self, const ExtentLike& extent, const Word<Priority>& priority,
                std::optional<NodeId> initiator, const PrefetchRef* plan,
                Nanoseconds space_timeout) {
  const std::shared_ptr<CacheOwner> owner = self.owner;
  Access how(priority, initiator, plan, space_timeout);
  remember(*owner, extent);
  Block block = how.run(
      [&](const AccessOptions& options) { return owner->cache->access(extent.get(), options); });
  return {std::make_shared<Pin>(owner, extent.object, extent.borrowed, std::move(block))};
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
                                 const PrefetchRef* plan, Nanoseconds space_timeout) {
  Access how(priority, initiator, plan, space_timeout);
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

void read_to(const CacheRef& self, const ExtentLike& from, std::span<std::byte> to, Bytes block,
             Nanoseconds timeout, const Word<Priority>& priority, const PrefetchRef* plan) {
  const std::shared_ptr<CacheOwner> owner = self.owner;
  Access how(priority, std::nullopt, plan, Nanoseconds{0});
  remember(*owner, from);
  unwrap(how.run([&](const AccessOptions& options) {
    return owner->cache->read(from.get(), to,
                              {.block = block, .timeout = timeout, .access = options});
  }));
}

void readinto(const CacheRef& self, const ExtentLike& from, nb::handle into, Bytes block,
              Nanoseconds timeout, const Word<Priority>& priority, const PrefetchRef* plan) {
  const View to(into, PyBUF_WRITABLE);
  read_to(self, from, to.as<std::byte>(), block, timeout, priority, plan);
}

nb::bytes read(const CacheRef& self, const ExtentLike& from, Bytes block, Nanoseconds timeout,
               const Word<Priority>& priority, const PrefetchRef* plan) {
  const Extent extent = from.get();
  if (!extent.valid()) raise(ErrorCode::invalid, "the extent is outside its object");
  // Nobody else has the new object, so its bytes may be written without the GIL.
  PyObject* const made =
      PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(extent.length.value));
  if (made == nullptr) throw nb::python_error();
  nb::bytes bytes = nb::steal<nb::bytes>(made);
  auto* const begin = reinterpret_cast<std::byte*>(PyBytes_AS_STRING(made));
  read_to(self, from, {begin, extent.length.value}, block, timeout, priority, plan);
  return bytes;
}

PrefetchRef prefetch(const CacheRef& self, const std::vector<ExtentLike>& extents, Nanoseconds lead,
                     Bytes window, std::optional<NodeId> initiator, bool named) {
  const std::shared_ptr<CacheOwner> owner = self.owner;
  const std::vector<Extent> wanted = plain(*owner, extents);
  const PrefetchOptions options{
      .lead = lead, .window = window, .initiator = initiator, .named = named};
  const GilRelease release;
  return {owner, owner->cache->prefetch(wanted, options)};
}

// A pin of the caller's own: the block may be released while it is used.
std::shared_ptr<Pin> pin_of(const BlockRef& self) {
  if (!self.pin) raise(ErrorCode::invalid, "this block was released; access() it again");
  return self.pin;
}

// The bytes once they are there, or where a GPU finds them. A Block is one thread's at a time,
// Python's threads share it: so each waits on a clone of its own, made under the GIL.
template <class T>
Result<T> wait_by(Result<T> (Block::*wait)(Nanoseconds) const, const Pin& pin,
                  Nanoseconds timeout) {
  const Block block = pin.block.clone();
  Result<T> found;
  wait_with_signals(timeout, [&](Nanoseconds slice) {
    found = (block.*wait)(slice);
    return found || found.error().code != ErrorCode::timed_out ||
           block.state() != BlockState::filling;
  });
  return found;
}

ByteView wait_for(const Pin& pin, Nanoseconds timeout) {
  return unwrap(wait_by(&Block::wait, pin, timeout));
}

std::uint64_t wait_on_gpu(const BlockRef& self, Nanoseconds timeout) {
  return unwrap(wait_by(&Block::wait_on_gpu, *pin_of(self), timeout));
}

std::optional<std::uint64_t> device_address(const BlockRef& self) {
  return pin_of(self)->block.device_address();
}

// The copy as memory of a GPU, which holds the pin.
struct OnGpu {
  OnGpu(std::shared_ptr<Pin> p, std::uint64_t address, Bytes size, NodeId node)
      : pin(std::move(p)), range(address, size, node) {}
  std::shared_ptr<Pin> pin;
  DeviceRange range;
};

// Nothing: it is not there. Waits.
Result<ObjectRef> on_gpu(const BlockRef& self) {
  const std::shared_ptr<Pin> pin = pin_of(self);
  auto address = wait_by(&Block::wait_on_gpu, *pin, std::chrono::seconds{60});
  if (!address && address.error().code == ErrorCode::timed_out) unwrap(std::move(address));
  if (!address) return Unexpected(std::move(address).error());
  const Extent extent = pin->block.extent();
  auto copy =
      std::make_shared<OnGpu>(pin, *address, extent.length, pin->block.node().value_or(NodeId{}));
  ObjectRef ref;
  ref.object = ObjectPointer(copy, &copy->range);
  ref.writable = false;
  return ref;
}

nb::dict block_cuda_array(const BlockRef& self) {
  const auto copy = on_gpu(self);
  if (!copy) throw nb::attribute_error(copy.error().message.c_str());
  return cuda_array(*copy);
}

// A read-only view that holds the pin.
MemoryView view_of(const std::shared_ptr<Pin>& pin, ByteView bytes) {
  const nb::capsule owner(new std::shared_ptr<Pin>(pin), [](void* pointer) noexcept {
    delete static_cast<std::shared_ptr<Pin>*>(pointer);
  });
  return MemoryView(reinterpret_cast<const std::uint8_t*>(bytes.data()), {bytes.size()}, owner);
}

MemoryView wait_view(const BlockRef& self, Nanoseconds timeout) {
  const std::shared_ptr<Pin> pin = pin_of(self);
  return view_of(pin, wait_for(*pin, timeout));
}

std::optional<MemoryView> now_view(const BlockRef& self) {
  const std::shared_ptr<Pin> pin = pin_of(self);
  const auto bytes = pin->block.now();
  if (!bytes) return std::nullopt;
  return view_of(pin, *bytes);
}

nb::object block_numpy(const BlockRef& self, nb::handle dtype, Nanoseconds timeout) {
  return as_numpy(nb::cast(wait_view(self, timeout)), dtype);
}

// Py_buffer.internal holds the pin until bf_releasebuffer.
int get_block_buffer(PyObject* self, Py_buffer* view, int flags) noexcept {
  try {
    const BlockRef* block = nullptr;
    if (!nb::try_cast<const BlockRef*>(nb::handle(self), block, false) || block == nullptr) {
      raise(ErrorCode::invalid, "not a block; access() gives one");
    }
    const std::shared_ptr<Pin> pin = pin_of(*block);
    const ByteView bytes = wait_for(*pin, std::chrono::seconds{60});
    if (pin->block.device_address()) {
      PyErr_SetString(PyExc_BufferError,
                      "memory of a GPU, which CPUs do not reach; wait() and numpy() give the "
                      "source");
      throw nb::python_error();
    }
    auto* const data = const_cast<std::byte*>(bytes.data());  // marked read-only
    if (PyBuffer_FillInfo(view, self, data, static_cast<Py_ssize_t>(bytes.size()), 1, flags) != 0) {
      return -1;
    }
    view->internal = new std::shared_ptr<Pin>(pin);
    return 0;
  } catch (nb::python_error& error) {
    error.restore();
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_BufferError, error.what());
  }
  view->obj = nullptr;
  return -1;
}

void release_block_buffer(PyObject*, Py_buffer* view) noexcept {
  delete static_cast<std::shared_ptr<Pin>*>(view->internal);
}

// Lets go of its pin. The block has none any more by the time that runs Python code.
void release_block(BlockRef& self) {
  const std::shared_ptr<Pin> pin = std::exchange(self.pin, nullptr);
}

// The cache holds the object too, and lets it go when nobody else does: that does not count.
int traverse_block(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  if (!nb::inst_ready(self)) return 0;
  const auto& pin = nb::inst_ptr<BlockRef>(self)->pin;
  if (pin == nullptr || pin.use_count() != 1 || pin->borrowed == nullptr) return 0;
  const long holders = pin->cache->seen.holds(pin->object->id()) ? 2 : 1;
  return visit_exporter(pin->object, pin->borrowed, holders, visit, arg);
}

PyType_Slot block_slots[] = {{Py_tp_traverse, reinterpret_cast<void*>(traverse_block)},
                             {Py_bf_getbuffer, reinterpret_cast<void*>(get_block_buffer)},
                             {Py_bf_releasebuffer, reinterpret_cast<void*>(release_block_buffer)},
                             {0, nullptr}};

// What other libraries take it by.
void bind_block_arrays(nb::class_<BlockRef>& block) {
  block
      .def(
          "__dlpack__",
          [](const BlockRef& self, const nb::kwargs& options) {
            if (const auto copy = on_gpu(self)) return dlpack_of_gpu(*copy, std::nullopt, options);
            const nb::object array = block_numpy(self, nb::str("uint8"), std::chrono::seconds{60});
            return call_method(array, "__dlpack__", options);
          },
          nb::sig("def __dlpack__(self, **options: typing.Any) -> typing.Any"))
      .def("__dlpack_device__",
           [](const BlockRef& self) {
             const auto copy = on_gpu(self);
             return copy ? dlpack_device(*copy) : std::pair(1, 0);
           })
      .def_prop_ro("__cuda_array_interface__", &block_cuda_array,
                   nb::sig("def __cuda_array_interface__(self) -> dict[str, object]"),
                   "The copy for PyTorch and CuPy, read-only, where it is in memory that only a "
                   "GPU reaches; "
                   "waits for it. The array does not hold the pin: the block must live as long.")
      .def_prop_ro("device_address", &device_address,
                   "Where code of a GPU finds the copy once it is ready; None for what CPUs reach.")
      .def("wait_on_gpu", &wait_on_gpu, "timeout"_a = 60.0,
           "device_address, waiting for the copy at most `timeout` seconds.");
}

void bind_block(nb::module_& m) {
  auto block = nb::class_<BlockRef>(
      m, "Block", nb::type_slots(block_slots),
      "A pin on the cached copy of one extent. Arrays and memoryviews made from it share its "
      "bytes, "
      "are read-only and hold the pin too; release() (or `with`) lets go of the block's own.");
  block
      .def("now", &now_view, nb::sig("def now(self) -> memoryview | None"),
           "The best bytes at this moment, without waiting: the copy once it is ready, unless only "
           "a "
           "GPU reaches it, else the source if a CPU can address it, else None.")
      .def(
          "wait", &wait_view, "timeout"_a = 60.0,
          nb::sig("def wait(self, timeout: float = 60.0) -> memoryview"),
          "The copy, waiting at most `timeout` seconds; if it cannot be had, or only a GPU reaches "
          "it, the source, and for a file the error.")
      .def("__await__", await_by("ready"),
           nb::sig("def __await__(self) -> typing.Generator[typing.Any, None, memoryview]"),
           "Under asyncio: what wait() gives, without blocking the loop.")
      .def("numpy", &block_numpy, "dtype"_a = "uint8", "timeout"_a = 60.0,
           nb::sig("def numpy(self, dtype: numpy.typing.DTypeLike = 'uint8', timeout: float = 60.0)"
                   " -> numpy.typing.NDArray[typing.Any]"),
           "wait() as an array.")
      .def_prop_ro(
          "state", [](const BlockRef& self) { return pin_of(self)->block.state(); },
          "Where the copy is in its life.")
      .def_prop_ro(
          "hit", [](const BlockRef& self) { return pin_of(self)->block.hit(); },
          "Whether the copy was there already when access() was called.")
      .def_prop_ro(
          "node", [](const BlockRef& self) { return pin_of(self)->block.node(); },
          "The node of the copy once it is ready, else the one that now() would read, or None.")
      .def_prop_ro(
          "extent",
          [](const BlockRef& self) {
            const std::shared_ptr<Pin> pin = pin_of(self);
            const Extent extent = pin->block.extent();
            return ExtentRef{pin->object, extent.offset, extent.length, false, pin->borrowed};
          },
          "The extent asked for.")
      .def(
          "clone",
          [](const BlockRef& self) {
            const std::shared_ptr<Pin> pin = pin_of(self);
            return BlockRef{
                std::make_shared<Pin>(pin->cache, pin->object, pin->borrowed, pin->block.clone())};
          },
          "Another pin on the same copy.")
      .def("release", &release_block, nb::lock_self(),
           "Lets go of the pin; views made from it still hold theirs.")
      .def("__len__",
           [](const BlockRef& self) { return pin_of(self)->block.extent().length.value; })
      .def(
          "__enter__", [](nb::handle self) { return nb::borrow(self); },
          nb::sig("def __enter__(self) -> Block"))
      .def(
          "__exit__", [](BlockRef& self, const nb::args&) { release_block(self); }, nb::lock_self(),
          nb::sig("def __exit__(self, *error: object) -> None"))
      .def("__repr__", [](const BlockRef& self) {
        const std::shared_ptr<Pin> pin = self.pin;
        if (!pin) return std::string("Block(released)");
        return "Block(" + to_string(pin->block.extent().length) + ", " +
               std::string(to_string(pin->block.state())) + ")";
      });
  bind_block_arrays(block);
}

// Other plans go on in its space, for which memory may be allocated: seconds.
void cancel(const PrefetchRef& self) {
  const GilRelease release;
  self.plan->cancel();
}

void bind_prefetch(nb::module_& m) {
  Record<Prefetch::Progress>(m, "PrefetchProgress", "How far a plan has come.")
      .field("planned", &Prefetch::Progress::planned, "Extents in all.")
      .field("started", &Prefetch::Progress::started, "Copy started, or found in the cache.")
      .field("used", &Prefetch::Progress::used, "Accessed at least once since.")
      .field("invalid", &Prefetch::Progress::invalid, "Not inside their object, so never fetched.")
      .field("cancelled", &Prefetch::Progress::cancelled, "Whether it was.");
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

constexpr const char* kOptionsOfCache =
    "`budgets`: bytes of copies per node. `placement`: always this node or placement ('gpu', "
    "'gpu:dram': where the first has no space, the next) instead of the nearest "
    "fast one. `eviction`: s3-fifo, sieve or clock. `reserve`: all memory is made now and kept, so "
    "that no access pays for its first touch. `shards`: parts with a lock and an equal share of "
    "each budget, a power of two; 0: one for each two CPUs, each with at least 256 MiB. `trace`: a "
    "file for the lives of blocks, which ui.perfetto.dev shows; it is whole when the cache is "
    "gone.";

void bind_accesses(nb::class_<CacheRef>& cache) {
  cache
      .def("access", &access, "extent"_a, nb::kw_only(), "priority"_a = "demand",
           "initiator"_a = nb::none(), "plan"_a.none() = nb::none(), "space_timeout"_a = 0.0,
           "The block of an extent: a pin on a ready copy, on one in flight, or on one started "
           "now. Waits for no copy; a miss may allocate memory. `plan`: whose extent this uses; a "
           "plan that was named once counts only accesses that name it. `space_timeout`: seconds "
           "to wait for space while blocks hold all of the budget; then the block stands for the "
           "source.")
      .def("access_all", &access_all, "extents"_a, nb::kw_only(), "priority"_a = "demand",
           "initiator"_a = nb::none(), "plan"_a.none() = nb::none(), "space_timeout"_a = 0.0,
           "The same for many at once; each miss waits `space_timeout` for itself.")
      .def("read", &read, "extent"_a, nb::kw_only(), "block"_a = 1 << 20, "timeout"_a = 60.0,
           "priority"_a = "demand", "plan"_a.none() = nb::none(),
           "The bytes of an extent, read through blocks of `block` bytes on a grid from the "
           "object's start, so that reads of any shape share copies. Waits at most `timeout` "
           "seconds for each. Other threads run meanwhile.")
      .def("readinto", &readinto, "extent"_a, "into"_a, nb::kw_only(), "block"_a = 1 << 20,
           "timeout"_a = 60.0, "priority"_a = "demand", "plan"_a.none() = nb::none(),
           nb::sig("def readinto(self, extent: Extent | Object, into: _Buffer, *, "
                   "block: int = 1048576, timeout: float = 60.0, "
                   "priority: typing.Literal['demand', 'prefetch', 'migration'] = 'demand', "
                   "plan: Prefetch | None = None) -> None"),
           "As read(), into a writable buffer of the same length.")
      .def("prefetch", &prefetch, "extents"_a, nb::kw_only(), "lead"_a = 0.05,
           "window"_a = 64 << 20, "initiator"_a = nb::none(), "named"_a = false,
           "Plans the use of extents in this order and fetches them ahead: `lead` seconds before "
           "use, at most `window` bytes unused at a time. `named`: only accesses with `plan=` are "
           "uses of it, from the beginning.");
}

void bind_cache_class(nb::module_& m) {
  nb::class_<CacheRef> cache(
      m, "Cache",
      "Keeps copies of extents in fast memory, fetches planned ones ahead of their "
      "use, and never serves old bytes. Keeps an object alive while it reads from it; the "
      "copies "
      "of "
      "one that nobody else holds go with it, sooner or later.");
  cache.def(
      "__init__",
      [](CacheRef* self, const MoverRef& mover, const std::map<NodeId, Bytes>& budgets,
         const std::optional<CachePlace>& placement, const std::optional<std::string>& route,
         const std::string& eviction, Bytes slab, const Word<PageSize>& pages, bool reserve,
         std::size_t shards, const std::optional<std::filesystem::path>& trace) {
        CacheOptions options{.budgets = {budgets.begin(), budgets.end()},
                             .slab = slab,
                             .pages = pages.get(),
                             .reserve = reserve,
                             .shards = shards};
        new (self)
            CacheRef(make_cache(mover, std::move(options), placement, route, eviction, trace));
      },
      "mover"_a, "budgets"_a, nb::kw_only(), "placement"_a = nb::none(), "route"_a = nb::none(),
      "eviction"_a = "s3-fifo", "slab"_a = 32 << 20, "pages"_a = "transparent", "reserve"_a = false,
      "shards"_a = 0, "trace"_a = nb::none(), kOptionsOfCache);
  bind_accesses(cache);
  cache
      .def(
          "invalidate",
          [](const CacheRef& self, const ExtentLike& extent) {
            const GilRelease release;
            self.owner->cache->invalidate(extent.get());
          },
          "extent"_a,
          "Announces a changed source: no access after it sees bytes read before it was "
          "called.")
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
          "Drops all copies and cancels plans; blocks held keep what they have.")
      .def(
          "resize",
          [](const CacheRef& self, NodeId node, Bytes budget) {
            unwrap(without_gil([&] { return self.owner->cache->resize(node, budget); }));
          },
          "node"_a, "budget"_a, "Changes the budget of a node.")
      .def(
          "stats", [](const CacheRef& self) { return self.owner->cache->stats(); }, "Counts.")
      .def(
          "metrics",
          [](const CacheRef& self, const std::string& name) {
            return openmetrics(self.owner->cache->stats(), name);
          },
          "name"_a = "cache",
          "The counts as OpenMetrics text, with the label cache=`name`: the answer to Prometheus.");
}

}  // namespace

void bind_cache(nb::module_& m) {
  bind_cache_stats(m);
  bind_block(m);
  bind_prefetch(m);
  bind_cache_class(m);
}

}  // namespace headrace::python
