// SPDX-License-Identifier: Apache-2.0
// Block: a pin on a cached copy, its bytes and views of them.
#include <nanobind/ndarray.h>

#include <algorithm>
#include <mutex>

#include "gpu_arrays.h"
#include "handles.h"
#include "types.h"
#include "view.h"

namespace headrace::python {

using namespace nb::literals;

namespace {

using ByteView = std::span<const std::byte>;
using MemoryView = nb::ndarray<nb::memview, const std::uint8_t, nb::ndim<1>, nb::c_contig>;

// A pin of the caller's own: the block may be released while it is used.
std::shared_ptr<Pin> pin_of(const BlockRef& self) {
  if (!self.pin) raise(ErrorCode::invalid, "this block was released; access() it again");
  return self.pin;
}

// The bytes once they are there, or where a GPU finds them. A Block is one thread's at a time,
// Python's threads share it: so each waits on a clone of its own, made under the GIL.
template <class T>
Result<T> wait_by(Result<T> (Block::*wait)(Nanoseconds) const, Pin& pin, Nanoseconds timeout) {
  const Block copy = pin.write ? Block() : pin.block.clone();
  const Block& block = pin.write ? pin.block : copy;
  Result<T> found;
  wait_with_signals(timeout, [&](Nanoseconds slice) {
    const auto turn = pin.write ? std::unique_lock(pin.turn) : std::unique_lock<std::mutex>();
    found = (block.*wait)(slice);
    return found || found.error().code != ErrorCode::timed_out ||
           block.state() != BlockState::filling;
  });
  return found;
}

ByteView wait_for(Pin& pin, Nanoseconds timeout) {
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

// A writable view that holds the pin.
nb::object write_view(BlockRef& self, Nanoseconds timeout) {
  const std::shared_ptr<Pin> pin = pin_of(self);
  Result<std::span<std::byte>> found;
  wait_with_signals(timeout, [&](Nanoseconds slice) {
    const std::lock_guard turn(pin->turn);
    found = pin->block.wait_to_write(slice);
    return found || found.error().code != ErrorCode::timed_out ||
           pin->block.state() != BlockState::filling;
  });
  const std::span<std::byte> bytes = unwrap(std::move(found));
  const nb::capsule owner(new std::shared_ptr<Pin>(pin), [](void* pointer) noexcept {
    delete static_cast<std::shared_ptr<Pin>*>(pointer);
  });
  nb::object view = nb::cast(nb::ndarray<nb::memview, std::uint8_t, nb::ndim<1>, nb::c_contig>(
      reinterpret_cast<std::uint8_t*>(bytes.data()), {bytes.size()}, owner));
  // Each use of a written page may ask for a view.
  std::erase_if(self.written,
                [](const nb::object& old) { return call_python(old, nb::make_tuple()).is_none(); });
  PyObject* const weak = PyWeakref_NewRef(view.ptr(), nullptr);
  if (weak == nullptr) throw nb::python_error();
  self.written.push_back(nb::steal(weak));
  return view;
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

// Lets go of its pin, and ends its views for writing. The block has none of them any more by the
// time that runs Python code.
void release_block(BlockRef& self) {
  const std::shared_ptr<Pin> pin = std::exchange(self.pin, nullptr);
  const std::vector<nb::object> views = std::exchange(self.written, {});
  for (const nb::object& weak : views) {
    nb::object view = call_python(weak, nb::make_tuple());
    if (view.is_none()) continue;
    try {
      call_method(view, "release");
    } catch (nb::python_error& error) {
      if (!error.matches(PyExc_BufferError)) throw;  // an array uses it
    }
  }
  if (!views.empty() && pin.use_count() > 1) {
    raise(ErrorCode::invalid,
          "a slice or an array of the written bytes is in use, and holds them for writing; drop it "
          "before the block is released");
  }
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

// Protocols by which other libraries take a block without a copy.
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
      .def_prop_ro(
          "device_address", &device_address,
          "The copy's address for GPU code, once it is ready; None for memory that CPUs reach.")
      .def("wait_on_gpu", &wait_on_gpu, "timeout"_a = 60.0,
           "device_address, waiting for the copy at most `timeout` seconds.");
}

}  // namespace

nb::object copy_view(const std::shared_ptr<Pin>& pin, Nanoseconds timeout) {
  if (pin->block.hit()) {
    if (const auto bytes = pin->block.now()) return nb::cast(view_of(pin, *bytes));
  }
  const Result<ByteView> bytes = wait_by(&Block::wait, *pin, timeout);
  if (bytes) return nb::cast(view_of(pin, *bytes));
  if (bytes.error().code == ErrorCode::timed_out) raise(bytes.error());
  return {};
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
      .def("wait", &wait_view, "timeout"_a = 60.0,
           nb::sig("def wait(self, timeout: float = 60.0) -> memoryview"),
           "The copy, after waiting at most `timeout` seconds. If there is none, or only a GPU "
           "reaches it, the source; if the source is a file, the error.")
      .def("write", &write_view, "timeout"_a = 60.0,
           nb::sig("def write(self, timeout: float = 60.0) -> memoryview"), nb::lock_self(),
           "The bytes to change, of a block accessed with write=True; waits for the copy at most "
           "`timeout` seconds. release() ends the view (ValueError from then on), and others see "
           "the changes. InvalidError of release(): a slice or an array of the view is in use, "
           "which holds the bytes for writing.")
      .def("__await__", await_by("ready"),
           nb::sig("def __await__(self) -> typing.Generator[typing.Any, None, memoryview]"),
           "Under asyncio: the result of wait(), without blocking the loop.")
      .def("numpy", &block_numpy, "dtype"_a = "uint8", "timeout"_a = 60.0,
           nb::sig("def numpy(self, dtype: numpy.typing.DTypeLike = 'uint8', timeout: float = 60.0)"
                   " -> numpy.typing.NDArray[typing.Any]"),
           "The bytes of wait() as an array.")
      .def_prop_ro(
          "state", [](const BlockRef& self) { return pin_of(self)->block.state(); },
          "The state of the copy.")
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

}  // namespace headrace::python
