// SPDX-License-Identifier: Apache-2.0
// Things with bytes (Buffer, File, MemoryRange), ranges of them (Extent), and where they are.
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/variant.h>

#include <algorithm>
#include <map>

#include "gpu_arrays.h"
#include "handles.h"
#include "record.h"
#include "types.h"
#include "view.h"

namespace headrace::python {

using namespace nb::literals;

namespace {

// Where most of the pages looked at are: some, evenly spread, since there may be millions.
NodeId node_of_memory(const Py_buffer& view) {
  constexpr std::size_t kLooks = 64;
  const auto* bytes = static_cast<const std::byte*>(view.buf);
  const auto size = static_cast<std::size_t>(view.len);
  if (size == 0) return NodeId{0};
  std::map<NodeId, std::uint64_t> pages;
  for (std::size_t at = 0; at < size; at += std::max<std::size_t>(size / kLooks, 1)) {
    const auto found = where({bytes + at, 1});
    if (!found) continue;
    for (const auto& [node, count] : found->pages) pages[node] += count;
  }
  if (pages.empty()) {
    raise(ErrorCode::invalid,
          "the kernel does not say where this memory is (was it ever written to?); give node=");
  }
  return std::ranges::max_element(pages, {}, [](const auto& each) { return each.second; })->first;
}

// `node`, or where it is found. Releases the view if it is not.
NodeId home_of(Py_buffer& view, std::optional<NodeId> node) {
  try {
    return node ? *node : node_of_memory(view);
  } catch (...) {
    release_buffer(view);
    throw;
  }
}

MemoryRangeRef range_of(std::shared_ptr<Borrowed> borrowed, bool writable, unsigned item_bytes) {
  return {{ObjectPointer(borrowed, &borrowed->object()), writable, borrowed.get()}, item_bytes};
}

// The result of headrace._array_interface.memory_of().
using ArrayMemory = std::tuple<std::uint64_t, Bytes, bool, bool, unsigned,
                               std::optional<std::uint64_t>, nb::object>;

// A view that owns a reference to what keeps the memory. In a tuple: releasing it asks no buffer
// protocol of it.
std::unique_ptr<HeldView> hold(const ArrayMemory& array) {
  auto held = std::make_unique<HeldView>();
  held->view.buf = reinterpret_cast<void*>(std::get<0>(array));  // NOLINT
  held->view.len = static_cast<Py_ssize_t>(std::get<1>(array).value);
  held->view.readonly = std::get<3>(array) ? 0 : 1;
  held->view.obj = nb::make_tuple(std::get<nb::object>(array)).release().ptr();
  return held;
}

MemoryRangeRef borrow_array(const ArrayMemory& array, std::optional<NodeId> node,
                            const Machine* machine, bool wait) {
  const auto& [address, size, on_gpu, writable, item_bytes, stream, keeper] = array;
  if (!on_gpu || size == 0_B) {
    auto held = hold(array);
    const NodeId home = home_of(held->view, node);
    return range_of(std::make_shared<Borrowed>(std::move(held), home), writable, item_bytes);
  }
  const Machine here = machine != nullptr ? *machine : this_machine();
  const NodeId home = unwrap(without_gil(
      [&, at = address, bytes = size]() -> Result<NodeId> { return gpu_node(here, at, bytes); }));
  if (node.value_or(home) != home) {
    raise(ErrorCode::invalid, "the memory is on node " + std::to_string(raw(home)) + ", not on " +
                                  std::to_string(raw(*node)) + "; leave node= out");
  }
  auto range =
      range_of(std::make_shared<Borrowed>(hold(array), home, address), writable, item_bytes);
  if (!wait) {
    range.stream = stream;
  } else if (stream) {
    wait_for_stream(range, *stream);
  }
  return range;
}

MemoryRangeRef borrow_memory(nb::handle memory, std::optional<NodeId> node, const Machine* machine,
                             bool wait) {
  release_borrowed();
  auto held = std::make_unique<HeldView>();
  Py_buffer* const view = &held->view;
  if (get_buffer(memory, *view, PyBUF_WRITABLE) != 0) {
    PyErr_Clear();
    if (get_buffer(memory, *view, PyBUF_SIMPLE) != 0) {
      nb::python_error none;  // of the buffer protocol; it is raised if all else fails
      const nb::object array =
          call_function("headrace._array_interface", "memory_of", nb::make_tuple(memory));
      if (array.is_none()) throw none;
      return borrow_array(nb::cast<ArrayMemory>(array), node, machine, wait);
    }
  }
  const bool writable = view->readonly == 0;
  const auto item_bytes = static_cast<unsigned>(std::max<Py_ssize_t>(view->itemsize, 1));
  const NodeId home = home_of(*view, node);
  return range_of(std::make_shared<Borrowed>(std::move(held), home), writable, item_bytes);
}

// A placement, or one as people write it.
using Place = std::variant<Placement, std::string>;

Placement placement_of(const Machine& machine, const Place& place) {
  if (const auto* placement = std::get_if<Placement>(&place)) return *placement;
  return unwrap(Placement::parse(machine, std::get<std::string>(place)));
}

BufferRef allocate_buffer(const Machine& machine, Bytes bytes, const std::optional<Place>& place) {
  const Placement placement = place ? placement_of(machine, *place) : Placement::on(NodeKind::dram);
  // The driver frees memory of a GPU when all that its streams have is done.
  const std::shared_ptr<Buffer> shared(
      unwrap(without_gil([&] { return allocate(machine, bytes, placement); })).release(),
      [](Buffer* last) { drop_without_gil(std::unique_ptr<Buffer>(last)); });
  return BufferRef{{shared, true}, shared};
}

FileRef open_file(const Machine& machine, const std::filesystem::path& path, bool writable,
                  bool direct) {
  std::shared_ptr<File> shared = unwrap(without_gil(
      [&] { return File::open(machine, path, {.writable = writable, .direct = direct}); }));
  return FileRef{{shared, writable}, shared};
}

ExtentRef make_extent(const ObjectRef& ref, std::uint64_t offset, std::optional<Bytes> length) {
  const Bytes size = ref.object->size();
  ExtentRef extent{ref.object, offset, {}, ref.writable, ref.borrowed, ref.stream};
  if (offset <= size.value) extent.length = length.value_or(size - Bytes{offset});
  if (offset > size.value || !extent.get().valid()) {
    raise(ErrorCode::invalid,
          "bytes from " + std::to_string(offset) +
              (length ? " (" + std::to_string(length->value) + " of them)" : "") +
              " are outside an object of " + std::to_string(size.value) + " bytes");
  }
  return extent;
}

int give_buffer(PyObject* self, Py_buffer* view, int flags) noexcept {
  const ObjectRef* ref = nullptr;
  if (!nb::try_cast<const ObjectRef*>(nb::handle(self), ref, false) || ref == nullptr) {
    PyErr_SetString(PyExc_BufferError, "not an object of Headrace");
    return -1;
  }
  if (ref->object->memory() == nullptr && ref->object->size().value > 0) {
    PyErr_SetString(PyExc_BufferError,
                    "CPUs do not reach this memory; copy it to a buffer on a memory node");
    return -1;
  }
  return PyBuffer_FillInfo(view, self, ref->object->memory(),
                           static_cast<Py_ssize_t>(ref->object->size().value),
                           ref->writable ? 0 : 1, flags);
}

// Without a tp_clear: what these hold is set when they are made, so a cycle has something else in
// it that can be cleared, as with tuples.
template <class Ref>
int traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  if (!nb::inst_ready(self)) return 0;
  const Ref& ref = *nb::inst_ptr<Ref>(self);
  return visit_exporter(ref.object, ref.borrowed, 1, visit, arg);
}

PyType_Slot buffer_slots[] = {{Py_bf_getbuffer, reinterpret_cast<void*>(give_buffer)},
                              {0, nullptr}};
PyType_Slot range_slots[] = {{Py_bf_getbuffer, reinterpret_cast<void*>(give_buffer)},
                             {Py_tp_traverse, reinterpret_cast<void*>(traverse<MemoryRangeRef>)},
                             {0, nullptr}};
PyType_Slot extent_slots[] = {{Py_tp_traverse, reinterpret_cast<void*>(traverse<ExtentRef>)},
                              {0, nullptr}};
PyType_Slot strided_slots[] = {{Py_tp_traverse, reinterpret_cast<void*>(traverse<StridedRef>)},
                               {0, nullptr}};

// The methods of memory that arrays are made from.
template <class Class>
void bind_arrays(Class& type) {
  type.def("numpy", &as_numpy, "dtype"_a = "uint8",
           nb::sig("def numpy(self, dtype: numpy.typing.DTypeLike = 'uint8') -> "
                   "numpy.typing.NDArray[typing.Any]"),
           "Its bytes as an array that shares them and keeps them alive.");
  type.def(
      "__dlpack__",
      [](nb::handle self, const nb::kwargs& options) {
        const auto& ref = nb::cast<const ObjectRef&>(self);
        if (ref.object->device_address()) return dlpack_of_gpu(ref, ref.stream, options);
        return call_method(as_numpy(self, nb::str("uint8")), "__dlpack__", options);
      },
      nb::sig("def __dlpack__(self, **options: typing.Any) -> typing.Any"));
  type.def("__dlpack_device__", &dlpack_device);
  type.def("__len__", [](const ObjectRef& self) { return self.object->size().value; });
}

std::string object_repr(nb::handle self) {
  const auto& ref = nb::cast<const ObjectRef&>(self);
  return nb::cast<std::string>(self.type().attr("__name__")) + "(" + to_string(ref.object->size()) +
         " on node " + std::to_string(raw(ref.object->node())) + ")";
}

void bind_objects(nb::module_& m) {
  nb::class_<ObjectRef>(m, "Object", "A thing with bytes: Buffer, File or MemoryRange.")
      .def_prop_ro(
          "id", [](const ObjectRef& self) { return self.object->id(); },
          "A number that is never used twice in a process.")
      .def_prop_ro(
          "size", [](const ObjectRef& self) { return self.object->size(); }, "Bytes.")
      .def_prop_ro(
          "node", [](const ObjectRef& self) { return self.object->node(); },
          "The node of its bytes; if there are several, the first.")
      .def_ro("writable", &ObjectRef::writable, "Whether it can be copied to.")
      .def_prop_ro(
          "device_address", [](const ObjectRef& self) { return self.object->device_address(); },
          "The address for GPU code; None for memory that CPUs reach.")
      .def_prop_ro("__cuda_array_interface__", &cuda_array,
                   nb::sig("def __cuda_array_interface__(self) -> dict[str, object]"),
                   "Its bytes for PyTorch and CuPy, where they are memory of a GPU.")
      .def("extent", &make_extent, "offset"_a = 0, "length"_a = nb::none(),
           "A range of it; up to its end if no length is given.")
      .def("__repr__", &object_repr);
  nb::class_<ExtentRef>(m, "Extent", nb::type_slots(extent_slots),
                        "A range of an object, which it keeps alive.")
      .def(
          "__init__",
          [](ExtentRef* self, const ObjectRef& object, std::uint64_t offset,
             std::optional<Bytes> length) {
            new (self) ExtentRef(make_extent(object, offset, length));
          },
          "object"_a, "offset"_a = 0, "length"_a = nb::none())
      .def_ro("offset", &ExtentRef::offset, "Bytes from the start of the object.")
      .def_ro("length", &ExtentRef::length, "Bytes.")
      .def_prop_ro(
          "object_id", [](const ExtentRef& self) { return self.object->id(); },
          "The id of its object.")
      .def_ro("stream", &ExtentRef::stream,
              "The GPU stream that was not waited for; None if there is none.")
      .def(
          "__eq__",
          [](const ExtentRef& a, nb::handle other) {
            return nb::isinstance<ExtentRef>(other) && nb::inst_ready(other) &&
                   a.get() == nb::inst_ptr<ExtentRef>(other)->get();
          },
          "other"_a.none(), nb::sig("def __eq__(self, other: object, /) -> bool"))
      .def("__hash__",
           [](const ExtentRef& a) {
             return nb::hash(nb::make_tuple(raw(a.object->id()), a.offset, a.length.value));
           })
      .def("__repr__", [](const ExtentRef& self) {
        return "Extent(object " + std::to_string(raw(self.object->id())) + ", " +
               std::to_string(self.offset) + " + " + std::to_string(self.length.value) + ")";
      });
}

StridedRef make_strided(const ExtentLike& source, Bytes length, std::optional<std::uint64_t> stride,
                        std::optional<std::uint64_t> count) {
  StridedRef all;
  static_cast<ExtentRef&>(all) = source;
  all.stride = stride.value_or(length.value);
  if (length == Bytes{0} || all.stride == 0) {
    raise(ErrorCode::invalid, "extents or a stride of 0 bytes; give at least 1");
  }
  const bool any = source.length >= length;
  const std::uint64_t most = any ? (source.length - length).value / all.stride + 1 : 0;
  all.length = length;
  all.count = count.value_or(most);
  return all;
}

void bind_strided(nb::module_& m) {
  nb::class_<StridedRef>(
      m, "Strided", nb::type_slots(strided_slots),
      "Extents of `length` bytes, one each `stride` bytes (default: `length`) from the start of "
      "`source` on, for a plan: they cost no memory each. `count`: default as many as lie in "
      "`source`. Raises InvalidError if a length or stride is 0.")
      .def(
          "__init__",
          [](StridedRef* self, const ExtentLike& source, Bytes length,
             std::optional<std::uint64_t> stride, std::optional<std::uint64_t> count) {
            new (self) StridedRef(make_strided(source, length, stride, count));
          },
          "source"_a, "length"_a, nb::kw_only(), "stride"_a = nb::none(), "count"_a = nb::none())
      .def_ro("offset", &StridedRef::offset, "Bytes from the start of the object to the first.")
      .def_ro("length", &StridedRef::length, "Bytes of each.")
      .def_ro("stride", &StridedRef::stride, "Bytes from the start of one to that of the next.")
      .def_ro("count", &StridedRef::count, "Extents in all.");
}

void bind_buffer(nb::module_& m) {
  auto buffer = nb::class_<BufferRef, ObjectRef>(
      m, "Buffer", nb::type_slots(buffer_slots),
      "Memory allocated by a placement; released with the last array or transfer that uses it.");
  buffer
      .def_prop_ro(
          "placement", [](const BufferRef& self) { return self.buffer->placement(); },
          "The placement that was asked for.")
      .def_prop_ro(
          "page_size", [](const BufferRef& self) { return self.buffer->page_size(); },
          "The actual page size, in bytes.")
      .def_prop_ro(
          "fallback", [](const BufferRef& self) { return self.buffer->fallback(); },
          "Why the page size is not the one asked for; empty if it is.")
      .def_prop_ro(
          "pinned", [](const BufferRef& self) { return self.buffer->pinned(); },
          "Registered with the driver of GPUs, all of it.");
  bind_arrays(buffer);
  auto range = nb::class_<MemoryRangeRef, ObjectRef>(
      m, "MemoryRange", nb::type_slots(range_slots),
      "Memory of another Python object (an array, a bytearray, a tensor on a GPU), which it keeps "
      "alive.");
  range.def(
      "__init__",
      [](MemoryRangeRef* self, nb::handle memory, std::optional<NodeId> node,
         const Machine* machine,
         bool wait) { new (self) MemoryRangeRef(borrow_memory(memory, node, machine, wait)); },
      "memory"_a, "node"_a = nb::none(), nb::kw_only(), "machine"_a.none() = nb::none(),
      "wait"_a = true,
      nb::sig("def __init__(self, memory: typing_extensions.Buffer | typing.Any, node: int | None "
              "= None, *, machine: Machine | None = None, wait: bool = True) -> None"),
      "`memory`: an object with the buffer protocol, __cuda_array_interface__ or __dlpack__, such "
      "as a tensor of PyTorch. `node`: the memory's node (default: asks the kernel, or for GPUs "
      "the driver and `machine`, this host by default). `wait`: first wait until the GPU stream "
      "that computes the memory has finished.");
  range.def_prop_ro(
      "itemsize", [](const MemoryRangeRef& self) { return self.item_bytes; },
      "Bytes of an element of the array.");
  range.def_prop_ro(
      "stream", [](const MemoryRangeRef& self) { return self.stream; },
      "The GPU stream that was not waited for; None if there is none.");
  bind_arrays(range);
  m.def(
      "allocate", &allocate_buffer, "machine"_a, "size"_a, "placement"_a = nb::none(),
      "Allocates `size` zeroed bytes; on the machine's DRAM if no placement is given. A placement "
      "may be written as Placement.parse() reads it: 'hbm', 'fastest', 'dram=3,cxl=1'.");
  m.def(
      "relocate",
      [](const Machine& machine, const BufferRef& moved, const Place& place) {
        const Placement placement = placement_of(machine, place);
        unwrap(without_gil([&] { return relocate(machine, *moved.buffer, placement); }));
      },
      "machine"_a, "buffer"_a, "placement"_a,
      "Moves a buffer to another placement. Its address and bytes stay, and other threads may use "
      "it meanwhile.");
}

void bind_file(nb::module_& m) {
  nb::class_<FileRef, ObjectRef>(
      m, "File", "A file or block device as an object: its extents can be moved and cached.")
      .def_static("open", &open_file, "machine"_a, "path"_a, nb::kw_only(), "writable"_a = false,
                  "direct"_a = true,
                  "Opens a file or block device, past the page cache (O_DIRECT) if `direct` and "
                  "possible. A `writable` device belongs to this File alone: DeniedError if it is "
                  "mounted, or in use in another way.")
      .def_prop_ro(
          "path", [](const FileRef& self) { return self.file->path(); },
          "The path that open() was given.")
      .def_prop_ro(
          "direct", [](const FileRef& self) { return self.file->direct(); },
          "Whether reads go past the page cache.")
      .def(
          "update_size", [](const FileRef& self) { return unwrap(self.file->update_size()); },
          "Asks for the file's size now; if it has grown, extents of the new part can be moved and "
          "cached. Returns the size.")
      .def(
          "version",
          [](const FileRef& self) {
            const FileVersion now = unwrap(self.file->version());
            return std::tuple(now.inode, now.size, now.modified.count(), now.changed.count());
          },
          nb::sig("def version(self) -> tuple[int, int, int, int]"),
          "Inode, size, and the times of the last write and change in nanoseconds. If it differs "
          "from an earlier one, someone wrote to the file: invalidate() its copies. Two changes "
          "within a tick of the file system's clock (4 ms) may give one version. A block device "
          "has none (UnsupportedError).")
      .def(
          "sync",
          [](const FileRef& self) { unwrap(without_gil([&] { return self.file->sync(); })); },
          "Makes all writes to the file durable (fdatasync).")
      .def(
          "drop_page_cache",
          [](const FileRef& self) {
            unwrap(without_gil([&] { return self.file->drop_page_cache(); }));
          },
          "Drops its clean pages from the page cache, as a cold start needs.")
      .def(
          "page_cache_residency",
          [](const FileRef& self, std::uint64_t offset, std::optional<Bytes> length) {
            const Bytes most = length.value_or(self.file->size());
            return unwrap(
                without_gil([&] { return self.file->page_cache_residency(offset, most); }));
          },
          "offset"_a = 0, "length"_a = nb::none(),
          "Bytes of the file in the page cache now, within `length` bytes from `offset`, a "
          "multiple of the page size. DeniedError: the kernel answers only the file's owner and "
          "users who may write to it.");
}

// The options that most ways to place have.
Placement with(Placement placement, bool strict, const Word<PageSize>& pages, bool touch) {
  placement.strict = strict;
  placement.pages = pages.get();
  placement.touch = touch;
  return placement;
}

Placement place_on(const std::variant<NodeId, Word<NodeKind>>& target, bool strict,
                   const Word<PageSize>& pages, bool touch,
                   const Word<Distribution>& distribution) {
  Placement placement = std::holds_alternative<NodeId>(target)
                            ? Placement::on(std::get<NodeId>(target))
                            : Placement::on(std::get<Word<NodeKind>>(target).get());
  placement.distribution = distribution.get();
  return with(std::move(placement), strict, pages, touch);
}

Placement place_parsed(const Machine& machine, const std::string& text, const Word<PageSize>& pages,
                       bool touch, bool lock, const CpuSet& near, bool pin) {
  Placement placement = unwrap(Placement::parse(machine, text));
  placement.lock = lock;
  placement.pin = pin;
  placement.near = near;
  return with(placement, placement.strict, pages, touch);
}

Placement place_weighted(const std::vector<std::pair<NodeId, unsigned>>& nodes, bool strict,
                         const Word<PageSize>& pages, bool touch) {
  std::vector<NodeWeight> weights;
  for (const auto& [node, weight] : nodes) weights.push_back({node, weight});
  return with(Placement::weighted(std::move(weights)), strict, pages, touch);
}

Placement place_interleaved(const std::variant<std::vector<NodeId>, Word<NodeKind>>& nodes,
                            bool strict, const Word<PageSize>& pages, bool touch) {
  const auto* const kind = std::get_if<Word<NodeKind>>(&nodes);
  return with(kind != nullptr ? Placement::interleave(kind->get())
                              : Placement::interleave(std::get<std::vector<NodeId>>(nodes)),
              strict, pages, touch);
}

// The functions that make one, and what it says of itself.
void bind_ways_to_place(nb::class_<Placement>& type) {
  type.def_static("on", &place_on, "node_or_kind"_a, nb::kw_only(), "strict"_a = true,
                  "pages"_a = "transparent", "touch"_a = true, "distribution"_a = "nearest",
                  "A placement on one node, or on the nearest nodes of one kind.")
      .def_static(
          "parse", &place_parsed, "machine"_a, "text"_a, nb::kw_only(), "pages"_a = "transparent",
          "touch"_a = true, "lock"_a = false, "near"_a = CpuSet{}, "pin"_a = false,
          "Parses a placement: a kind 'hbm', 'hbm_interleave' or 'hbm_first_touch'; a property "
          "'fastest', 'lowest_latency', 'highest_bandwidth' or 'largest'; nodes '0-3,8'; weights "
          "'0=3,8=1' or 'dram=3,cxl=1'. Several, 'hbm:dram', are tried in this order.")
      .def(
          "resolve",
          [](const Placement& self, const Machine& machine, std::optional<NodeId> near) {
            return unwrap(resolve(machine, self, near));
          },
          "machine"_a, "near"_a = nb::none(),
          "The placement with kinds and properties replaced by nodes, nearest first.")
      .def("__str__", &Placement::to_text, "The text that parse() reads.")
      .def_static("weighted", &place_weighted, "nodes"_a, nb::kw_only(), "strict"_a = true,
                  "pages"_a = "transparent", "touch"_a = true,
                  "Pages in turn by weight: [(0, 3), (8, 1)] puts three on 0, one on 8, and so on.")
      .def_static("interleave", &place_interleaved, "nodes"_a, nb::kw_only(), "strict"_a = true,
                  "pages"_a = "transparent", "touch"_a = true,
                  "Page by page in turn over the nodes, or over all of a kind.");
}

void bind_placement(nb::module_& m) {
  nb::class_<Placement> type =
      Record<Placement>(m, "Placement", "A request to allocate(): where memory should be.")
          .computed(
              "nodes",
              [](const Placement& self) {
                std::vector<std::pair<NodeId, unsigned>> nodes;
                for (const NodeWeight& weight : self.nodes)
                  nodes.emplace_back(weight.node, weight.weight);
                return nodes;
              },
              "Nodes with their weights: pages per turn.")
          .field("kind", &Placement::kind, "Instead of nodes: nodes of this kind.")
          .field("distribution", &Placement::distribution,
                 "How pages spread over nodes of the kind. 'nearest': the nearest node and, when "
                 "it is full, the next nearest. 'first_touch': the node nearest to the CPU that "
                 "touches the page first. 'interleave': all in turn.")
          .computed(
              "property",
              [](const Placement& self) -> std::optional<std::string> {
                if (!self.property) return std::nullopt;
                return std::string(to_string(*self.property));
              },
              "Instead of nodes and a kind: a property of the node, such as 'fastest'.")
          .field("strict", &Placement::strict,
                 "Only these nodes: ExhaustedError when they are full.")
          .computed(
              "spill",
              [](const Placement& self) {
                std::vector<std::variant<NodeId, NodeKind>> spill(self.spill.begin(),
                                                                  self.spill.end());
                return spill;
              },
              "Nodes or kinds to use, in this order, when the nodes are full.")
          .field("near", &Placement::near,
                 "The CPUs that will use the memory; empty: the calling CPU.")
          .field("pages", &Placement::pages, "The page size asked for.")
          .field("touch", &Placement::touch, "Touch every page at once, near its node.")
          .field("lock", &Placement::lock, "Keep it in memory (mlock).")
          .field("pin", &Placement::pin, "Register it with the driver of GPUs.")
          .field("reason", &Placement::reason, "Why a policy chose it.")
          .type();
  bind_ways_to_place(type);
}

Residency where_is(nb::handle memory) {
  const View view(memory, PyBUF_SIMPLE);
  return unwrap(without_gil([&] { return where({view.data(), view.size()}); }));
}

void bind_process(nb::module_& m) {
  m.def(
      "set_process_policy",
      [](const Word<MemoryPolicy>& policy, const std::vector<NodeId>& nodes) {
        unwrap(set_process_policy(policy.get(), nodes));
      },
      "policy"_a, "nodes"_a = std::vector<NodeId>{},
      "Sets the memory policy of this thread and of the threads and programs it starts.");
  Record<FreeMemory>(m, "FreeMemory", "Memory that this process can allocate now without swapping.")
      .field("nodes", &FreeMemory::nodes, "Bytes on each node that its cpuset allows.")
      .field("cgroup", &FreeMemory::cgroup,
             "Bytes left by the limits of its memory cgroups; None without a limit.");
  m.def("free_memory", &free_memory, "Free memory now, per node.");
}

}  // namespace

nb::object as_numpy(nb::handle memory, nb::handle dtype) {
  nb::dict keywords;
  keywords["dtype"] = dtype;
  return call_function("numpy", "frombuffer", nb::make_tuple(memory), keywords);
}

int visit_exporter(const ObjectPointer& object, const Borrowed* borrowed, long holders,
                   visitproc visit, void* context) {
  if (borrowed == nullptr || object.use_count() != holders) return 0;
  return visit(borrowed->exporter(), context);
}

void bind_memory(nb::module_& m) {
  bind_process(m);
  bind_placement(m);
  bind_objects(m);
  bind_strided(m);
  bind_buffer(m);
  bind_file(m);
  Record<Residency>(m, "Residency", "Pages per node, as the kernel reports them.")
      .field("pages", &Residency::pages, "4 KiB pages present on each node.")
      .field("absent", &Residency::absent, "4 KiB pages never touched, or swapped out.");
  m.def("where", &where_is, "memory"_a,
        nb::sig("def where(memory: typing_extensions.Buffer) -> Residency"),
        "Where the pages of a buffer or any other memory are now.");
}

}  // namespace headrace::python
