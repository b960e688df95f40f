// SPDX-License-Identifier: Apache-2.0
// Named heaps, whose memory arrays are made of.
#include "headrace/tier/arena.h"

#include "handles.h"
#include "record.h"
#include "types.h"

namespace headrace::python {

using namespace nb::literals;

namespace {

struct ArenasOwner {
  const Machine machine;
  std::unique_ptr<Arenas> arenas;

  explicit ArenasOwner(Machine m) : machine(std::move(m)) {}
  ~ArenasOwner() { drop_without_gil(std::move(arenas)); }
  ArenasOwner(const ArenasOwner&) = delete;
  ArenasOwner& operator=(const ArenasOwner&) = delete;
};
struct ArenasRef {
  std::shared_ptr<ArenasOwner> owner;
};
struct ArenaRef {
  std::shared_ptr<ArenasOwner> owner;
  Heap* heap;
  std::string name;
};

// An object of an arena's heap.
struct ArenaMemory {
  ArenaMemory(std::shared_ptr<ArenasOwner> o, Heap& h, std::span<std::byte> bytes, NodeId node)
      : owner(std::move(o)), heap(h), range(bytes, node) {}
  // Frees it without the GIL: that unmaps, and waits while this memory is cut into mappings.
  ~ArenaMemory() {
    std::optional<GilRelease> release;
    if (holds_gil()) release.emplace();
    heap.free(range.memory());
  }
  ArenaMemory(const ArenaMemory&) = delete;
  ArenaMemory& operator=(const ArenaMemory&) = delete;

  const std::shared_ptr<ArenasOwner> owner;
  Heap& heap;
  const MemoryRange range;
};

ArenasRef open_arenas(const Machine& machine, std::string_view plan, const std::string& otherwise,
                      std::optional<Nanoseconds> look_every) {
  ArenasOptions options{.plan = plan.empty() ? ArenaPlan{} : unwrap(ArenaPlan::parse(plan)),
                        .otherwise = unwrap(Placement::parse(machine, otherwise)),
                        .look_every = look_every};
  auto owner = std::make_shared<ArenasOwner>(machine);
  owner->arenas = unwrap(without_gil([&] { return Arenas::open(owner->machine, options); }));
  return {std::move(owner)};
}

ArenaRef arena_of(const ArenasRef& self, const std::string& name) {
  return {self.owner, unwrap(without_gil([&] { return self.owner->arenas->heap(name); })), name};
}

// The memory of this host that has the pages of a file, where that is what the heap is on.
NodeId node_of(const ArenaRef& arena) {
  const Machine& machine = arena.owner->machine;
  if (storage_of(machine, arena.heap->placement()) == nullptr) {
    return arena.heap->placement().nodes.front().node;
  }
  return machine.of_kind(NodeKind::dram).front()->id;
}

MemoryRangeRef allocate_in(const ArenaRef& self, Bytes bytes) {
  constexpr std::size_t kLine = 64;
  if (bytes.value == 0) raise(ErrorCode::invalid, "no bytes; ask for one at least");
  void* const begin = without_gil([&] { return self.heap->allocate_bytes(bytes.value, kLine); });
  if (begin == nullptr) {
    const auto error = self.heap->last_error();
    raise(error ? error->code : ErrorCode::exhausted,
          "arena " + self.name + ": " + (error ? error->message : std::string("no room")));
  }
  const std::span memory(static_cast<std::byte*>(begin), bytes.value);
  auto object = std::make_shared<ArenaMemory>(self.owner, *self.heap, memory, node_of(self));
  return MemoryRangeRef{{ObjectPointer(object, &object->range), true, nullptr}};
}

std::string plan_text(const std::vector<ArenaUse>& uses,
                      const std::vector<std::pair<std::string, std::optional<Bytes>>>& tiers) {
  std::vector<ArenaTier> memory;
  for (const auto& [place, room] : tiers) memory.push_back({place, room.value_or(Bytes{})});
  return unwrap(plan_arenas(uses, memory)).to_text();
}

// The uses of arenas that a plan was made from.
std::vector<ArenaUse> uses_in(std::string_view plan) {
  std::vector<ArenaUse> uses;
  for (ArenaPlace& each : unwrap(ArenaPlan::parse(plan)).arenas) {
    uses.push_back({.name = std::move(each.name),
                    .most = each.most,
                    .heat = each.heat.value_or(0),
                    .looks = each.heat ? 1u : 0u,
                    .why_unseen = std::move(each.note)});
  }
  return uses;
}

}  // namespace

void bind_arenas(nb::module_& m) {
  Record<ArenaUse>(m, "ArenaUse", "The observed use of an arena.")
      .field("name", &ArenaUse::name, "Its name.")
      .field("most", &ArenaUse::most, "The most bytes of memory it had at once.")
      .field("heat", &ArenaUse::heat, "Share of its memory touched between two looks; 0 to 1.")
      .field("looks", &ArenaUse::looks,
             "Number of looks that saw any of the arena. If it is 0, `heat` means nothing.")
      .field("why_unseen", &ArenaUse::why_unseen, "Why some of it was not seen; '' if all was.");
  nb::class_<ArenaRef>(m, "Arena", "A named heap. Memory from it keeps it alive.")
      .def_prop_ro(
          "name", [](const ArenaRef& self) { return self.name; }, "Its name.")
      .def_prop_ro(
          "placement", [](const ArenaRef& self) { return self.heap->placement(); },
          "The placement asked for its memory.")
      .def("allocate", &allocate_in, "bytes"_a,
           "Memory of this arena, not zeroed, freed with the last array or transfer that uses it. "
           "ExhaustedError: no room.")
      .def("__repr__", [](const ArenaRef& self) { return "Arena('" + self.name + "')"; });
  nb::class_<ArenasRef>(m, "Arenas", "The named heaps of a process, watched and placed by a plan.")
      .def(
          "__init__",
          [](ArenasRef* self, const Machine& machine, std::string_view plan,
             const std::string& otherwise, std::optional<Nanoseconds> look_every) {
            new (self) ArenasRef(open_arenas(machine, plan, otherwise, look_every));
          },
          "machine"_a, nb::kw_only(), "plan"_a = "", "otherwise"_a = "dram",
          "look_every"_a = nb::none(),
          "`plan`: the text of a plan with the place of each arena. `otherwise`: the place of "
          "arenas that the plan does not name. `look_every`: seconds between looks of a thread "
          "that watches the arenas (default: no thread).")
      .def("arena", &arena_of, "name"_a,
           "The arena of this name, opened when it is first asked for.")
      .def(
          "look",
          [](const ArenasRef& self) {
            unwrap(without_gil([&] { return self.owner->arenas->look(); }));
          },
          "Looks now. UnsupportedError: the arenas are not watched.")
      .def(
          "uses",
          [](const ArenasRef& self) {
            const GilRelease release;
            return self.owner->arenas->uses();
          },
          "The observed use of each arena, by name.");
  m.def("plan_arenas", &plan_text, "uses"_a, "tiers"_a,
        "The text of a plan. Arenas are placed in order of falling heat. Each goes as a whole to "
        "the first of `tiers` with enough space; the last tier takes the rest. `tiers`: pairs of "
        "place and bytes, fastest first.");
  m.def("arenas_in_plan", &uses_in, "plan"_a, "The observed uses that the plan was made from.");
}

}  // namespace headrace::python
