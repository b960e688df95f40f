// SPDX-License-Identifier: Apache-2.0
// The C functions of headrace/malloc.h. Each headrace_kind has a heap; kinds near the calling
// thread have one per node with CPUs. Heaps open at first use and never close.

#include "headrace/malloc.h"

#include <fmt/format.h>
#include <malloc.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <vector>

#include "core/check.h"
#include "core/fail.h"
#include "core/fork.h"
#include "headrace/heap.h"
#include "memory/heap/regions.h"

namespace headrace {
namespace {

// Maximum number of nodes with CPUs that have heaps of their own.
constexpr std::size_t kMostPlaces = 64;

template <NodeKind kind>
Result<Placement> strict(const Machine&) {
  return Placement::on(kind);
}

template <NodeKind kind>
Result<Placement> preferred(const Machine&) {
  Placement placement = Placement::on(kind);
  placement.strict = false;
  return placement;
}

template <NodeKind kind>
Result<Placement> interleaved(const Machine&) {
  return Placement::interleave(kind);
}

template <NodeKind kind>
Result<Placement> by_first_touch(const Machine&) {
  return Placement{.kind = kind, .distribution = Distribution::first_touch};
}

// All nodes of the same kind as the best node by `property`.
template <Property property>
Result<Placement> kind_of_best(const Machine& machine) {
  HEADRACE_TRY(const Placement best, resolve(machine, Placement::on(property)));
  return Placement::on(machine.find(best.nodes.front().node)->kind);
}

Result<Placement> all_memory(const Machine& machine) {
  Placement placement;
  for (const Node& node : machine.nodes) {
    if (node.byte_addressable() && node.capacity != 0_B) placement.nodes.push_back({node.id, 1});
  }
  return placement;
}

struct Kind {
  std::string_view name;
  bool near;  // the memory depends on the node of the calling thread
  Result<Placement> (*placement)(const Machine&);
};

// In the order of headrace_kind.
constexpr std::array<Kind, HEADRACE_CXL_FIRST_TOUCH + 1> kKinds = {{
    {"default", false, nullptr},  // the C library's malloc
    {"dram", true, strict<NodeKind::dram>},
    {"hbm", true, strict<NodeKind::hbm>},
    {"cxl", true, strict<NodeKind::cxl>},
    {"dram_preferred", true, preferred<NodeKind::dram>},
    {"hbm_preferred", true, preferred<NodeKind::hbm>},
    {"cxl_preferred", true, preferred<NodeKind::cxl>},
    {"interleave", false, all_memory},
    {"fastest", true, kind_of_best<Property::fastest>},
    {"largest", true, kind_of_best<Property::largest>},
    {"dram_interleave", false, interleaved<NodeKind::dram>},
    {"hbm_interleave", false, interleaved<NodeKind::hbm>},
    {"cxl_interleave", false, interleaved<NodeKind::cxl>},
    {"dram_first_touch", false, by_first_touch<NodeKind::dram>},
    {"hbm_first_touch", false, by_first_touch<NodeKind::hbm>},
    {"cxl_first_touch", false, by_first_touch<NodeKind::cxl>},
}};
static_assert(kKinds[HEADRACE_INTERLEAVE].name == "interleave" &&
              kKinds[HEADRACE_CXL_FIRST_TOUCH].name == "cxl_first_touch");

// The heap of a kind, or why it could not be opened; nullptr: the C library's malloc.
using KindHeap = Result<Heap*>;

// The machine, and for each CPU the index of its node among the nodes with CPUs.
struct Places {
  Result<Machine> machine;
  std::vector<std::uint8_t> of_cpu = {};
  std::array<CpuSet, kMostPlaces> cpus = {};

  std::size_t of_caller() const {
    const int cpu = ::sched_getcpu();
    const bool known = cpu >= 0 && static_cast<std::size_t>(cpu) < of_cpu.size();
    return known ? of_cpu[static_cast<std::size_t>(cpu)] : 0;
  }
};

const Places& discover_places() {
  Places& places = *new Places{.machine = Machine::discover()};
  std::size_t next = 0;
  for (const Node& node : places.machine ? places.machine->nodes : std::vector<Node>{}) {
    if (node.cpus.empty() || !node.byte_addressable()) continue;
    const std::size_t place = next++ % kMostPlaces;
    if (next <= kMostPlaces) places.cpus[place] = node.cpus;
    places.of_cpu.resize(std::max<std::size_t>(places.of_cpu.size(), node.cpus.back() + 1));
    for (const unsigned cpu : node.cpus) places.of_cpu[cpu] = static_cast<std::uint8_t>(place);
  }
  return places;
}

KindHeap open_kind(const Places& places, const Kind& kind, std::size_t place) {
  if (!places.machine) return Unexpected(places.machine.error());
  HEADRACE_TRY(Placement placement, kind.placement(*places.machine));
  if (kind.near) placement.near = places.cpus[place];
  auto heap = Heap::open(*places.machine, placement);
  if (heap) return heap->release();
  if (heap.error().code == ErrorCode::absent && !placement.strict) return nullptr;
  return Unexpected(std::move(heap).error());
}

GlobalMutex opening_kind{kRankOfKinds};
constinit std::atomic<const Places*> known_places{nullptr};
constinit std::array<std::array<std::atomic<const KindHeap*>, kMostPlaces>, kKinds.size()> opened{};

const KindHeap& heap_of(headrace_kind kind) {
  static const KindHeap& c_library = *new KindHeap(nullptr);
  static const KindHeap& unknown =
      *new KindHeap(fail(ErrorCode::invalid, "no such headrace_kind; use one of its enumerators"));
  const auto index = static_cast<std::size_t>(kind);
  if (kind == HEADRACE_DEFAULT) return c_library;
  if (index >= opened.size()) return unknown;
  const Places* places = known_places;
  if (places == nullptr) {
    const MutexLock lock(opening_kind);
    if (known_places == nullptr) known_places = &discover_places();
    places = known_places;
  }
  const std::size_t place = kKinds[index].near ? places->of_caller() : 0;
  std::atomic<const KindHeap*>& cell = opened[index][place];
  if (const KindHeap* heap = cell) return *heap;
  const MutexLock lock(opening_kind);
  if (const KindHeap* heap = cell) return *heap;
  const auto* heap = new KindHeap(open_kind(*places, kKinds[index], place));
  cell = heap;
  return *heap;
}

// Whether `heap` is of the kind, for any thread.
bool is_of(headrace_kind kind, const Heap* heap) {
  return std::ranges::any_of(opened[static_cast<std::size_t>(kind)], [&](const auto& cell) {
    const KindHeap* const known = cell;
    return known != nullptr && *known && **known == heap;
  });
}

// The thread's headrace_last_error(). Not a std::string, because it may be written after the
// thread's destructors have run.
constinit thread_local std::array<char, 1024> refusal{};

void* refuse(std::string_view why) {
  *fmt::format_to_n(refusal.data(), refusal.size() - 1, "{}", why).out = '\0';
  errno = ENOMEM;
  return nullptr;
}

void* refuse(const Heap& heap) {
  const auto error = heap.last_error();
  return refuse(error ? error->message : "the allocator has no memory for its own records");
}

void* allocate_in(const KindHeap& heap, std::size_t align, std::size_t size) {
  if (!heap) return refuse(heap.error().message);
  if (*heap != nullptr) {
    void* const object = (*heap)->allocate_bytes(size, align);
    return object != nullptr ? object : refuse(**heap);
  }
  void* object = nullptr;
  if (align <= alignof(std::max_align_t)) {
    object = std::malloc(size);
  } else if (::posix_memalign(&object, align, size) != 0) {
    object = nullptr;
  }
  return object != nullptr ? object : refuse("malloc found no memory");
}

}  // namespace
}  // namespace headrace

using headrace::allocate_in;
using headrace::Heap;
using headrace::heap_of;
using headrace::refuse;

void* headrace_malloc(headrace_kind kind, size_t size) {
  return allocate_in(heap_of(kind), alignof(std::max_align_t), size);
}

void* headrace_calloc(headrace_kind kind, size_t count, size_t size) {
  size_t bytes = 0;
  if (__builtin_mul_overflow(count, size, &bytes)) return refuse("more bytes than any machine has");
  const auto& heap = heap_of(kind);
  if (heap && *heap == nullptr) {
    void* const object = std::calloc(count, size);
    return object != nullptr ? object : refuse("calloc found no memory");
  }
  void* const object = allocate_in(heap, alignof(std::max_align_t), bytes);
  // A large object has a buffer of its own, fresh from the kernel and so zero already.
  return object == nullptr || bytes >= headrace::kLargeObject ? object
                                                              : std::memset(object, 0, bytes);
}

void* headrace_realloc(headrace_kind kind, void* pointer, size_t size) {
  if (pointer == nullptr) return headrace_malloc(kind, size);
  if (size == 0) {
    headrace_free(pointer);
    return nullptr;
  }
  const auto& to = heap_of(kind);
  Heap* const from = Heap::owner(pointer);
  if (to && (*to == from || (from != nullptr && headrace::is_of(kind, from)))) {
    void* const object =
        from != nullptr ? from->reallocate(pointer, size) : std::realloc(pointer, size);
    if (object != nullptr) return object;
    return from != nullptr ? refuse(*from) : refuse("realloc found no memory");
  }
  void* const moved = allocate_in(to, alignof(std::max_align_t), size);
  if (moved == nullptr) return nullptr;
  std::memcpy(moved, pointer, std::min(size, headrace_usable_size(pointer)));
  headrace_free(pointer);
  return moved;
}

int headrace_posix_memalign(headrace_kind kind, void** pointer, size_t alignment, size_t size) {
  if (!std::has_single_bit(alignment) || alignment % sizeof(void*) != 0) return EINVAL;
  const int before = errno;
  void* const object = allocate_in(heap_of(kind), alignment, size);
  errno = before;
  if (object == nullptr) return ENOMEM;
  *pointer = object;
  return 0;
}

void headrace_free(void* pointer) {
  if (!Heap::free_if_owned(pointer)) std::free(pointer);
}

size_t headrace_usable_size(void* pointer) {
  Heap* const owner = Heap::owner(pointer);
  return owner != nullptr ? owner->usable_size(pointer) : malloc_usable_size(pointer);
}

int headrace_check_available(headrace_kind kind) {
  const int before = errno;
  void* const object = headrace_malloc(kind, 1);
  headrace_free(object);
  errno = before;
  return object != nullptr ? 0 : ENOMEM;
}

int headrace_parse_kind(const char* name, headrace_kind* kind) {
  const auto& kinds = headrace::kKinds;
  const auto* const found = std::ranges::find(kinds, std::string_view(name), &headrace::Kind::name);
  if (found == kinds.end()) return EINVAL;
  *kind = static_cast<headrace_kind>(found - kinds.begin());
  return 0;
}

const char* headrace_last_error(void) { return headrace::refusal.data(); }
