// What Python's objects hold. All of it is held by C++ shared pointers, never by references between
// Python objects, so that no order of garbage collection frees something in use, and nothing that
// an engine's thread drops needs the interpreter.
//
//   Transfer -> mover, both objects until done      Block -> cache, its object
//   Cache    -> mover, the objects it reads         Prefetch -> cache
//   Mover    -> machine, backends                   views (memoryview, arrays) -> buffer or block
#pragma once

#include <nanobind/nanobind.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "headrace/headrace.h"

namespace headrace::python {

namespace nb = nanobind;

using ObjectPointer = std::shared_ptr<const Object>;

struct ObjectRef {
  ObjectPointer object;
  bool writable = true;
};
struct BufferRef : ObjectRef {
  std::shared_ptr<Buffer> buffer;
};
struct FileRef : ObjectRef {
  std::shared_ptr<File> file;
};
struct MemoryRangeRef : ObjectRef {};

// An extent that keeps its object.
struct ExtentRef {
  ObjectPointer object;
  std::uint64_t offset = 0;
  Bytes length;
  bool writable = true;

  Extent get() const { return {object.get(), offset, length}; }
};

// An argument that may be an Extent or a whole Object.
struct ExtentLike : ExtentRef {};

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

// A Cache with everything it borrows. Only touched under the GIL, but for the cache itself.
struct CacheOwner {
  std::shared_ptr<MoverOwner> mover;
  std::map<ObjectId, ObjectPointer> seen;
  std::size_t sweep_at = 64;     // how many are seen when it is time to let some go
  std::unique_ptr<Cache> cache;  // goes first
};
struct CacheRef {
  std::shared_ptr<CacheOwner> owner;
};
// One pin. Shared by the Block and the views made from it.
struct Pin {
  std::shared_ptr<CacheOwner> cache;
  ObjectPointer object;
  Block block;  // goes first
};
struct BlockRef {
  std::shared_ptr<Pin> pin;  // null after release()
};
struct PrefetchRef {
  std::shared_ptr<CacheOwner> cache;
  Prefetch plan;  // goes first
};

// A shared T that is destroyed without the GIL, whoever drops it last: it may wait for copies in
// flight.
template <class T, class... Args>
std::shared_ptr<T> make_shared_without_gil(Args&&... args) {
  return std::shared_ptr<T>(new T(std::forward<Args>(args)...), [](T* pointer) {
    std::optional<nb::gil_scoped_release> release;
    if (PyGILState_Check()) release.emplace();
    delete pointer;
  });
}

// How long a wait goes without looking for signals: Ctrl-C is felt at once by a person.
inline constexpr Nanoseconds kSignalInterval = std::chrono::milliseconds{50};

// Calls `wait(slice)` without the GIL until it returns true or `timeout` has passed; in between
// signals are looked at, and what a handler raises is raised. Requires: the GIL.
bool wait_with_signals(Nanoseconds timeout, const std::function<bool(Nanoseconds)>& wait);

// Runs an experiment without the GIL while Python's callbacks are asked and told, and signals are
// looked at: a handler that raises (Ctrl-C's does by default) stops the experiment and is raised
// from rethrow(); one that only notes it lets `stop` answer true, and the rows so far are returned.
class Interruptible {
 public:
  // Either may be None.
  Interruptible(nb::object stop, nb::object progress)
      : stop_(std::move(stop)), progress_(std::move(progress)) {}

  // True when the work shall end. Called without the GIL.
  bool stop();
  void progress(std::size_t done, std::size_t total);
  ExperimentContext context() {
    return {.stop = [this] { return stop(); },
            .progress = [this](std::size_t done, std::size_t total) { progress(done, total); }};
  }
  // Raises what a callback or a signal handler raised. Requires: the GIL.
  void rethrow();

 private:
  nb::object stop_;
  nb::object progress_;
  std::optional<nb::python_error> raised_;
};

// One per file of this folder.
void bind_machine(nb::module_& m);
void bind_memory(nb::module_& m);
void bind_mover(nb::module_& m);
void bind_cache(nb::module_& m);
void bind_measure(nb::module_& m);
void bind_profile(nb::module_& m);
void bind_query(nb::module_& m);
void bind_workload(nb::module_& m);

}  // namespace headrace::python

namespace nanobind::detail {

template <>
struct type_caster<headrace::python::ExtentLike> {
  NB_TYPE_CASTER(headrace::python::ExtentLike, const_name("_core.Extent | _core.Object"))

  bool from_python(handle source, uint32_t, cleanup_list*) noexcept {
    using namespace headrace::python;
    if (nanobind::isinstance<ExtentRef>(source)) {
      static_cast<ExtentRef&>(value) = *inst_ptr<ExtentRef>(source);
      return true;
    }
    if (!nanobind::isinstance<ObjectRef>(source)) return false;
    ObjectRef* object = nullptr;
    if (!nanobind::try_cast<ObjectRef*>(source, object, false)) return false;
    value.object = object->object;
    value.offset = 0;
    value.length = object->object->size();
    value.writable = object->writable;
    return true;
  }
};

}  // namespace nanobind::detail
