// SPDX-License-Identifier: Apache-2.0
#include "gpu_arrays.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/tuple.h>

#include <array>
#include <chrono>

#include "types.h"

namespace headrace::python {

using namespace nb::literals;

namespace {

// The structures of DLPack 1.0 (dlpack.h), and of earlier releases without a version.
struct DLDevice {
  std::int32_t type;
  std::int32_t id;
};
struct DLDataType {
  std::uint8_t code;
  std::uint8_t bits;
  std::uint16_t lanes;
};
struct DLTensor {
  void* data;
  DLDevice device;
  std::int32_t dimensions;
  DLDataType type;
  std::int64_t* shape;
  std::int64_t* strides;  // in elements; nullptr: in the order of C
  std::uint64_t offset;   // bytes
};
struct DLManagedTensor {
  static constexpr const char* name = "dltensor";
  static constexpr const char* used = "used_dltensor";
  DLTensor tensor;
  void* context;
  void (*deleter)(DLManagedTensor*);
};
struct DLManagedTensorVersioned {
  static constexpr const char* name = "dltensor_versioned";
  static constexpr const char* used = "used_dltensor_versioned";
  std::uint32_t major;
  std::uint32_t minor;
  void* context;
  void (*deleter)(DLManagedTensorVersioned*);
  std::uint64_t flags;  // bit 0: read-only
  DLTensor tensor;
};
static_assert(sizeof(DLTensor) == 48 && sizeof(DLManagedTensor) == 64 &&
              sizeof(DLManagedTensorVersioned) == 80);

constexpr std::int32_t kDLCpu = 1;
constexpr std::int32_t kDLCuda = 2;
constexpr std::uint8_t kDLUInt = 1;
constexpr std::uint64_t kReadOnly = 1;

[[noreturn]] void refuse(const char* why) {
  PyErr_SetString(PyExc_BufferError, why);
  throw nb::python_error();
}

// The owner of a capsule's memory. Its destructor does not use Python.
template <class Managed>
struct Export {
  ObjectPointer object;
  std::int64_t size = 0;
  Managed managed{};
};

template <class Managed>
nb::object capsule_of(const ObjectRef& ref, int ordinal) {
  auto owned = std::make_unique<Export<Managed>>();
  owned->object = ref.object;
  owned->size = static_cast<std::int64_t>(ref.object->size().value);
  Managed& managed = owned->managed;
  managed.tensor = {.data = reinterpret_cast<void*>(*ref.object->device_address()),  // NOLINT
                    .device = {kDLCuda, ordinal},
                    .dimensions = 1,
                    .type = {kDLUInt, 8, 1},
                    .shape = &owned->size,
                    .strides = nullptr,
                    .offset = 0};
  managed.context = owned.get();
  managed.deleter = [](Managed* self) { delete static_cast<Export<Managed>*>(self->context); };
  if constexpr (std::is_same_v<Managed, DLManagedTensorVersioned>) {
    managed.major = 1;
    managed.minor = 0;
    managed.flags = ref.writable ? 0 : kReadOnly;
  }
  // Whoever takes the tensor renames the capsule, and ends it by the deleter.
  PyObject* const capsule = PyCapsule_New(&managed, Managed::name, [](PyObject* self) {
    if (PyCapsule_IsValid(self, Managed::name) == 0) return;
    auto* const left = static_cast<Managed*>(PyCapsule_GetPointer(self, Managed::name));
    left->deleter(left);
  });
  if (capsule == nullptr) throw nb::python_error();
  owned.release();
  return nb::steal(capsule);
}

// Contents of a capsule: type of device, address, shape, strides, bytes of an element, whether the
// memory may be written, and the object that keeps it.
using Contents = std::tuple<std::int32_t, std::uint64_t, std::vector<std::int64_t>,
                            std::optional<std::vector<std::int64_t>>, unsigned, bool, nb::object>;

// Takes the tensor out of its capsule, as the protocol says: who comes after us finds it used. The
// tensor ends with `keeper`.
template <class Managed>
Managed* take(nb::handle capsule, nb::object& keeper) {
  constexpr const char* kTaken = "headrace.dltensor";
  if (PyCapsule_IsValid(capsule.ptr(), Managed::name) == 0) return nullptr;
  auto* const managed = static_cast<Managed*>(PyCapsule_GetPointer(capsule.ptr(), Managed::name));
  PyObject* const made = PyCapsule_New(managed, kTaken, [](PyObject* self) {
    auto* const taken = static_cast<Managed*>(PyCapsule_GetPointer(self, kTaken));
    if (taken->deleter != nullptr) taken->deleter(taken);
  });
  if (made == nullptr) throw nb::python_error();
  PyCapsule_SetName(capsule.ptr(), Managed::used);  // which fails for capsules that are none alone
  keeper = nb::steal(made);
  return managed;
}

Contents take_contents(nb::handle capsule) {
  const DLTensor* tensor = nullptr;
  bool writable = true;
  nb::object keeper;
  if (const auto* const versioned = take<DLManagedTensorVersioned>(capsule, keeper)) {
    if (versioned->major != 1) {
      raise(ErrorCode::unsupported,
            "DLPack " + std::to_string(versioned->major) + ", of which only 0 and 1 are known");
    }
    tensor = &versioned->tensor;
    writable = (versioned->flags & kReadOnly) == 0;
  } else if (const auto* const managed = take<DLManagedTensor>(capsule, keeper)) {
    tensor = &managed->tensor;
  } else {
    raise(ErrorCode::invalid,
          "a __dlpack__() that gives no capsule of DLPack, or one that somebody has used");
  }
  const unsigned bits = static_cast<unsigned>(tensor->type.bits) * tensor->type.lanes;
  if (tensor->dimensions < 0 || bits == 0 || bits % 8 != 0) {
    raise(ErrorCode::unsupported,
          "elements of " + std::to_string(bits) + " bits; give an array of whole bytes");
  }
  const auto count = static_cast<std::size_t>(tensor->dimensions);
  if (count > 0 && tensor->shape == nullptr) {
    raise(ErrorCode::invalid, "a capsule of DLPack without a shape");
  }
  std::optional<std::vector<std::int64_t>> strides;
  if (tensor->strides != nullptr) strides.emplace(tensor->strides, tensor->strides + count);
  // An offset to no memory is no memory.
  const auto address = reinterpret_cast<std::uintptr_t>(tensor->data);
  return {tensor->device.type,
          address == 0 ? 0 : address + tensor->offset,
          std::vector<std::int64_t>(tensor->shape, tensor->shape + count),
          std::move(strides),
          bits / 8,
          writable,
          std::move(keeper)};
}

int ordinal_of(const ObjectRef& ref) {
  return unwrap(
      without_gil([&] { return gpu_ordinal(*ref.object->device_address(), ref.object->size()); }));
}

// An argument of __dlpack__(); none where it is not given, or None.
template <class T>
std::optional<T> option(const nb::kwargs& options, const char* name, const char* what) {
  if (!options.contains(name)) return std::nullopt;
  const nb::object given = options[name];
  T value{};
  if (given.is_none()) return std::nullopt;
  if (nb::try_cast(given, value, false)) return value;
  throw nb::type_error((std::string(name) + "= is " + what + ", or None").c_str());
}

}  // namespace

Machine this_machine() {
  return nb::cast<Machine>(
      call_function("headrace._arrays", "_this_host", nb::make_tuple(nb::none())));
}

std::pair<int, int> dlpack_device(const ObjectRef& ref) {
  if (!ref.object->device_address()) return {kDLCpu, 0};
  return {kDLCuda, ordinal_of(ref)};
}

nb::dict cuda_array(const ObjectRef& ref) {
  const auto address = ref.object->device_address();
  if (!address) throw nb::attribute_error("memory that CPUs reach is no array of a GPU");
  nb::dict array;
  array["shape"] = nb::make_tuple(ref.object->size().value);
  array["typestr"] = "|u1";
  array["data"] = nb::make_tuple(*address, !ref.writable);
  array["strides"] = nb::none();
  array["stream"] = nb::none();
  // 0 is not allowed there; 1 is the default stream, too.
  if (ref.stream) array["stream"] = std::max<std::uint64_t>(*ref.stream, 1);
  array["version"] = 3;
  return array;
}

void wait_for_stream(const ObjectRef& ref, std::uint64_t stream) {
  const StreamWork work =
      unwrap(without_gil([&, gpu = ordinal_of(ref)] { return StreamWork::of(gpu, stream); }));
  unwrap(wait_for(kStreamBound, [&](Nanoseconds slice) { return work.wait(slice); }));
}

// Nothing else is queued on such memory that its copies have not ended: any stream may have it.
nb::object dlpack_of_gpu(const ObjectRef& ref, std::optional<std::uint64_t> stream,
                         const nb::kwargs& options) {
  const auto [type, ordinal] = dlpack_device(ref);
  if (option<bool>(options, "copy", "True or False").value_or(false)) {
    refuse("copies are made by a Mover; leave copy= out");
  }
  const auto device = option<std::pair<int, int>>(options, "dl_device", "two numbers");
  if (device && *device != std::pair(type, ordinal)) {
    refuse("the memory is not there; a Mover copies it to another device");
  }
  const auto its = option<std::int64_t>(options, "stream", "a number");
  if (stream && its != -1) wait_for_stream(ref, *stream);
  const auto version = option<std::pair<int, int>>(options, "max_version", "two numbers");
  if (version && version->first >= 1) return capsule_of<DLManagedTensorVersioned>(ref, ordinal);
  if (!ref.writable) refuse("memory that is read-only; ask with max_version=(1, 0)");
  return capsule_of<DLManagedTensor>(ref, ordinal);
}

void bind_gpu_arrays(nb::module_& m) {
  // For headrace._array_interface alone.
  m.def("_dlpack_take", &take_contents, "capsule"_a.none(),
        "What a capsule of DLPack had: its device's type, address, shape, strides, bytes of an "
        "element, whether it may be written, and what keeps it.");
}

}  // namespace headrace::python
