#include "gpu_arrays.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <array>
#include <chrono>

#include "types.h"

namespace headrace::python {

using namespace nb::literals;

namespace {

// The structures of DLPack 1.0 (dlpack.h), and of those before that had no version.
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
  DLTensor tensor;
  void* context;
  void (*deleter)(DLManagedTensor*);
};
struct DLManagedTensorVersioned {
  static constexpr const char* name = "dltensor_versioned";
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

// What a capsule owns. Its end needs nothing of Python.
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

// Address, shape, strides, bytes of an element, writable.
using Contents = std::tuple<std::uint64_t, std::vector<std::int64_t>,
                            std::optional<std::vector<std::int64_t>>, unsigned, bool>;

Contents contents_of(nb::handle capsule) {
  const DLTensor* tensor = nullptr;
  bool writable = true;
  if (PyCapsule_IsValid(capsule.ptr(), DLManagedTensorVersioned::name) != 0) {
    const auto* const managed = static_cast<const DLManagedTensorVersioned*>(
        PyCapsule_GetPointer(capsule.ptr(), DLManagedTensorVersioned::name));
    if (managed->major != 1) {
      raise(ErrorCode::unsupported,
            "DLPack " + std::to_string(managed->major) + ", of which only 0 and 1 are known");
    }
    tensor = &managed->tensor;
    writable = (managed->flags & kReadOnly) == 0;
  } else if (PyCapsule_IsValid(capsule.ptr(), DLManagedTensor::name) != 0) {
    tensor = &static_cast<const DLManagedTensor*>(
                  PyCapsule_GetPointer(capsule.ptr(), DLManagedTensor::name))
                  ->tensor;
  } else {
    raise(ErrorCode::invalid, "no capsule of DLPack that is still to be used");
  }
  const unsigned bits = static_cast<unsigned>(tensor->type.bits) * tensor->type.lanes;
  if (tensor->dimensions < 0 || bits == 0 || bits % 8 != 0) {
    raise(ErrorCode::unsupported,
          "elements of " + std::to_string(bits) + " bits; give an array of whole bytes");
  }
  const auto count = static_cast<std::size_t>(tensor->dimensions);
  std::optional<std::vector<std::int64_t>> strides;
  if (tensor->strides != nullptr) strides.emplace(tensor->strides, tensor->strides + count);
  return {reinterpret_cast<std::uintptr_t>(tensor->data) + tensor->offset,
          std::vector<std::int64_t>(tensor->shape, tensor->shape + count), std::move(strides),
          bits / 8, writable};
}

int ordinal_of(const ObjectRef& ref) {
  auto found = [&] {
    const GilRelease release;
    return gpu_ordinal(*ref.object->device_address(), ref.object->size());
  }();
  return unwrap(std::move(found));
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

void wait_for_stream(const ObjectRef& ref, std::uint64_t stream) {
  auto made = [&, gpu = ordinal_of(ref)] {
    const GilRelease release;
    return StreamWork::of(gpu, stream);
  }();
  const StreamWork work = unwrap(std::move(made));
  Status outcome;
  wait_with_signals(kStreamBound, [&](Nanoseconds slice) {
    outcome = work.wait(slice);
    return outcome || outcome.error().code != ErrorCode::timed_out;
  });
  unwrap(std::move(outcome));
}

// Nothing else is queued on such memory that its copies have not ended: any stream may have it.
nb::object dlpack_of_gpu(const ObjectRef& ref, std::optional<std::uint64_t> stream,
                         const nb::kwargs& options) {
  const auto [type, ordinal] = dlpack_device(ref);
  const auto option = [&](const char* name) -> nb::object {
    return options.contains(name) ? nb::object(options[name]) : nb::none();
  };
  if (const nb::object copy = option("copy"); !copy.is_none() && nb::cast<bool>(copy)) {
    refuse("copies are made by a Mover; leave copy= out");
  }
  if (const nb::object device = option("dl_device"); !device.is_none()) {
    if (nb::cast<std::pair<int, int>>(device) != std::pair(type, ordinal)) {
      refuse("the memory is not there; a Mover copies it to another device");
    }
  }
  const nb::object its = option("stream");
  const bool asked_not_to = !its.is_none() && nb::cast<std::int64_t>(its) == -1;
  if (stream && !asked_not_to) wait_for_stream(ref, *stream);
  const nb::object version = option("max_version");
  if (!version.is_none() && nb::cast<std::pair<int, int>>(version).first >= 1) {
    return capsule_of<DLManagedTensorVersioned>(ref, ordinal);
  }
  if (!ref.writable) refuse("memory that is read-only; ask with max_version=(1, 0)");
  return capsule_of<DLManagedTensor>(ref, ordinal);
}

void bind_gpu_arrays(nb::module_& m) {
  // For headrace._foreign alone.
  m.def("_dlpack_contents", &contents_of, "capsule"_a,
        "What a capsule of DLPack has: address, shape, strides, bytes of an element, whether it "
        "may be written.");
}

}  // namespace headrace::python
