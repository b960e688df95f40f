// SPDX-License-Identifier: Apache-2.0
// Which memory is hot, and a tier that keeps the hot of it: sources, heat, PageTier.
#include <nanobind/stl/unique_ptr.h>

#include <algorithm>
#include <bit>
#include <memory>
#include <vector>

#include "handles.h"
#include "record.h"
#include "types.h"

namespace headrace::python {

using namespace nb::literals;

namespace {

// A source or a tier with the objects whose memory it was given; `kept` is guarded by the GIL.
template <class T>
struct Keeping {
  std::unique_ptr<T> inside;
  std::vector<ObjectPointer> kept;

  explicit Keeping(std::unique_ptr<T> i) : inside(std::move(i)) {}
  ~Keeping() { drop_without_gil(std::move(inside)); }
  Keeping(const Keeping&) = delete;
  Keeping& operator=(const Keeping&) = delete;

  // Calls `work` without the GIL.
  auto call(const auto& work) {
    return unwrap(without_gil([&] { return work(*inside); }));
  }
  // The same where the object is kept from then on, unless it fails.
  auto call_and_keep(const ObjectPointer& object, const auto& work) {
    kept.push_back(object);
    try {
      return call(work);
    } catch (...) {
      forget(object);
      throw;
    }
  }
  void forget(const ObjectPointer& object) {
    const auto found = std::ranges::find(kept, object);
    if (found == kept.end()) return;
    // Dropping the object may run Python code, so the list is changed first.
    const ObjectPointer dropped = std::move(*found);
    kept.erase(found);
  }
};

using Source = Keeping<HotnessSource>;
using Tier = Keeping<PageTier>;

std::span<const std::byte> memory_of(const ObjectRef& ref) {
  if (ref.object->memory() == nullptr) {
    raise(ErrorCode::invalid, "this object is not in memory; give a Buffer or a MemoryRange");
  }
  return {ref.object->memory(), ref.object->size().value};
}

std::unique_ptr<Source> open_source(const Word<HotnessKind>& kind, Bytes chunk,
                                    Nanoseconds least_interval) {
  const HotnessKind chosen = kind.get();
  return std::make_unique<Source>(unwrap(without_gil(
      [&] { return open_hotness(chosen, {.chunk = chunk, .least_interval = least_interval}); })));
}

void bind_source(nb::module_& m) {
  Record<Touch>(m, "Touch", "A range in which memory was touched.")
      .computed(
          "begin",
          [](const Touch& self) { return reinterpret_cast<std::uintptr_t>(self.range.data()); },
          "Its address.")
      .computed(
          "size", [](const Touch& self) { return self.range.size(); }, "Bytes.")
      .field("touched", &Touch::touched, "Bytes of it that were touched, in whole pages.");
  Record<HotnessSample>(m, "HotnessSample", "The result of one look.")
      .field("touches", &HotnessSample::touches,
             "Ranges in ascending order; memory in none of them was not touched.")
      .field("covered", &HotnessSample::covered, "Seconds since the look before.")
      .field("unseen", &HotnessSample::unseen, "Tracked bytes whose accesses could not be seen.")
      .field("why_unseen", &HotnessSample::why_unseen,
             "Why some bytes are unseen; empty if none are.");
  Record<Tracking>(m, "Tracking", "How a range is tracked.")
      .field("granularity", &Tracking::granularity,
             "The unit in which touches are seen, in bytes: a page or a chunk.")
      .field("note", &Tracking::note,
             "Why the granularity is not the requested one; empty if it is.");
  nb::class_<Source>(m, "HotnessSource",
                     "Finds memory of this process that was touched between two looks.")
      .def_prop_ro(
          "traits", [](const Source& self) { return self.inside->traits(); },
          "The accesses it sees, and its cost.")
      .def(
          "track",
          [](Source& self, const ObjectRef& memory) {
            const auto bytes = memory_of(memory);
            return self.call_and_keep(memory.object,
                                      [&](HotnessSource& source) { return source.track(bytes); });
          },
          "memory"_a,
          "Starts tracking a Buffer or MemoryRange of whole pages, and keeps it alive until "
          "untrack().")
      .def(
          "untrack",
          [](Source& self, const ObjectRef& memory) {
            const auto bytes = memory_of(memory);
            self.call([&](HotnessSource& source) { return source.untrack(bytes); });
            self.forget(memory.object);
          },
          "memory"_a, "Stops tracking the memory.")
      .def(
          "look",
          [](Source& self) {
            return self.call([](HotnessSource& source) { return source.look(); });
          },
          "Memory touched since the last look. ExhaustedError: called again within the least "
          "interval.");
  m.def("open_hotness", &open_source, "kind"_a, nb::kw_only(),
        "chunk"_a = HotnessOptions{}.chunk.value,
        "least_interval"_a = seconds(HotnessOptions{}.least_interval),
        "Opens a source, and tests that it sees accesses. `chunk`: granularity of 'referenced' in "
        "bytes. UnsupportedError, DeniedError: the source does not work here, with the reason. "
        "ExhaustedError: this process already has a 'referenced'.");
}

void bind_heat(nb::module_& m) {
  Record<HotChunk>(m, "HotChunk", "A chunk and its heat.")
      .field("begin", &HotChunk::begin, "Its address.")
      .field("heat", &HotChunk::heat, "0 to 1.");
  nb::class_<Hotness>(m, "Hotness",
                      "The heat of memory by chunks: the share that was touched between two looks, "
                      "averaged with weights that halve every half-life.")
      .def(
          "__init__",
          [](Hotness* self, Nanoseconds half_life, Bytes chunk) {
            if (half_life.count() <= 0 || !std::has_single_bit(chunk.value)) {
              raise(ErrorCode::invalid,
                    "give a half-life above 0 and a chunk that is a power of two of bytes");
            }
            new (self) Hotness({.half_life = half_life, .chunk = chunk});
          },
          nb::kw_only(), "half_life"_a = seconds(HeatOptions{}.half_life),
          "chunk"_a = HeatOptions{}.chunk.value)
      .def("add", &Hotness::add, "sample"_a, "Adds the result of a look.")
      .def(
          "heat",
          [](const Hotness& self, std::uintptr_t address) {
            return self.heat(reinterpret_cast<const void*>(address));
          },
          "address"_a, "Heat of the chunk that holds the address; 0 if it was never touched.")
      .def("hottest", &Hotness::hottest, "All chunks that are warm, the hottest first.");
}

std::unique_ptr<Tier> open_tier(Bytes budget, const std::vector<NodeId>& fast,
                                const std::vector<NodeId>& slow, double hysteresis,
                                double least_heat, Bytes per_second, Bytes chunk,
                                Nanoseconds half_life, Nanoseconds least_interval, double guard) {
  return std::make_unique<Tier>(unwrap(without_gil([&] {
    return PageTier::open({.policy = {.budget = budget,
                                      .hysteresis = hysteresis,
                                      .least_heat = least_heat,
                                      .per_second = per_second},
                           .fast = fast,
                           .slow = slow,
                           .chunk = chunk,
                           .half_life = half_life,
                           .least_interval = least_interval,
                           .guard = guard});
  })));
}

void bind_tier_step(nb::module_& m) {
  Record<TierDecision>(m, "TierDecision",
                       "A chunk of memory that was demoted or promoted, and why.")
      .field("begin", &TierDecision::begin, "Its address.")
      .field("comes_in", &TierDecision::in, "True: promoted. False: demoted.")
      .field("bytes", &TierDecision::bytes, "Bytes to move.")
      .field("heat", &TierDecision::heat, "From 0, not used, to 1.")
      .field("reason", &TierDecision::reason, "In plain words.");
  Record<TierStep>(m, "TierStep", "The result of one step.")
      .field("decisions", &TierStep::decisions, "In the order in which they were carried out.")
      .field("resident", &TierStep::resident,
             "Bytes of managed memory in the fast tier after the step.")
      .field("out", &TierStep::out,
             "Bytes of managed memory in swap, or on nodes other than the fast ones.")
      .field("refused", &TierStep::refused,
             "Bytes that could not move: pinned, shared with a child made by fork, or no space at "
             "the destination. With swap also: locked, or touched again at once.")
      .field("backed_off", &TierStep::backed_off,
             "Resident bytes of chunks that could not move before and were not tried again.")
      .field("undone", &TierStep::undone, "Moves that the guard undid, and why; empty if none.");
}

void bind_page_tier(nb::module_& m) {
  const PageTierOptions defaults;
  nb::class_<Tier>(m, "PageTier",
                   "Tiers memory of this process between DRAM and swap, or between fast and slow "
                   "nodes: hot memory stays within a budget, cold memory is demoted.")
      .def_static(
          "open", &open_tier, "budget"_a, nb::kw_only(), "fast"_a = defaults.fast,
          "slow"_a = defaults.slow, "hysteresis"_a = defaults.policy.hysteresis,
          "least_heat"_a = defaults.policy.least_heat,
          "per_second"_a = defaults.policy.per_second.value, "chunk"_a = defaults.chunk.value,
          "half_life"_a = seconds(defaults.half_life),
          "least_interval"_a = seconds(defaults.least_interval), "guard"_a = defaults.guard,
          "`budget`: bytes that may be resident, in DRAM or on the nodes `fast`. `slow`: nodes for "
          "cold memory (default: swap). `guard`: the share by which moves may reduce the work per "
          "second that step() is given; if they reduce it more, the last moves are undone. "
          "UnsupportedError: there is no swap or it is full, with what to do. AbsentError, "
          "DeniedError, ExhaustedError: nothing can move to one of the nodes.")
      .def(
          "add",
          [](Tier& self, const ObjectRef& memory) {
            const auto bytes = memory_of(memory);
            self.call_and_keep(memory.object, [&](PageTier& tier) { return tier.add(bytes); });
          },
          "memory"_a,
          "Manages a Buffer or MemoryRange of whole pages, private and anonymous, which it keeps "
          "alive until remove().")
      .def(
          "remove",
          [](Tier& self, const ObjectRef& memory) {
            const auto bytes = memory_of(memory);
            self.call([&](PageTier& tier) { return tier.remove(bytes); });
            self.forget(memory.object);
          },
          "memory"_a,
          "Stops managing the memory. Demoted pages stay where they are: in swap until they are "
          "touched, on a node for good.")
      .def(
          "step",
          [](Tier& self, std::optional<std::uint64_t> work) {
            return self.call([&](PageTier& tier) { return tier.step(work); });
          },
          "work"_a = nb::none(),
          "Looks, decides and moves; call it about once a second. `work`: operations that the "
          "program has done since its start, of a kind that it always does as fast as it can; "
          "without it there is no guard. ExhaustedError: called again within the least interval.")
      .def(
          "decisions", [](const Tier& self) { return self.inside->decisions(); },
          "The last decisions, at most 1000, oldest first.");
  m.def(
      "least_heat_that_pays",
      [](Nanoseconds move, Nanoseconds saved, Nanoseconds half_life) {
        return unwrap(least_heat_that_pays(move, saved, half_life));
      },
      "move"_a, "saved"_a, "half_life"_a,
      "The least heat, and hysteresis, for PageTier at which a page pays for its move: `move` is "
      "seconds for a page in and one out, `saved` seconds that a page in the fast tier saves per "
      "second that it is in use. InvalidError: none pays.");
}

}  // namespace

void bind_tier(nb::module_& m) {
  bind_source(m);
  bind_heat(m);
  bind_tier_step(m);
  bind_page_tier(m);
  Record<HotnessTraits>(m, "HotnessTraits",
                        "The accesses that a source of hotness sees, and its cost.")
      .field("kind", &HotnessTraits::kind, "Its name.")
      .field("sees_reads", &HotnessTraits::sees_reads, "Whether memory that is read counts.")
      .field("sees_writes", &HotnessTraits::sees_writes, "Whether memory that is written counts.")
      .field("by_page", &HotnessTraits::by_page,
             "True: sees single pages. False: sees how much of each chunk was touched.")
      .field("needs_root", &HotnessTraits::needs_root, "Whether it takes root.")
      .field("memory", &HotnessTraits::memory, "Which memory it can track.")
      .field("cost", &HotnessTraits::cost, "The cost for the program, in words.");
  Record<HotnessCost>(m, "HotnessCost", "The cost of a source on this machine; medians.")
      .field("look_ns_per_page", &HotnessCost::look_ns_per_page,
             "A look at memory of which each page was touched, ns per page.")
      .field("access_ns", &HotnessCost::access_ns, "An access to a page while nobody looks, ns.")
      .field("first_access_ns", &HotnessCost::first_access_ns,
             "The first access to a page after a look, ns.")
      .field("pages", &HotnessCost::pages, "Number of pages that were tracked.");
  m.def(
      "hotness_sources",
      [] {
        std::vector<HotnessTraits> all;
        std::ranges::transform(kHotnessKinds, std::back_inserter(all), traits_of);
        return all;
      },
      "All sources for memory of the calling process, whether they work here or not.");
  m.def(
      "measure_hotness_cost",
      [](const Word<HotnessKind>& kind, Bytes memory) {
        const HotnessKind chosen = kind.get();
        return unwrap(without_gil([&] { return measure_hotness_cost(chosen, memory); }));
      },
      "kind"_a, "memory"_a = (16_MiB).value,
      "Opens and tests a source, and measures its cost on memory of its own, in less than half a "
      "second. UnsupportedError, DeniedError: the source does not work here, with the reason.");
}

}  // namespace headrace::python
