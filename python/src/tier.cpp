// What this host has to find out which memory is hot.
#include "headrace/tier/hotness.h"

#include <algorithm>

#include "handles.h"
#include "record.h"
#include "types.h"

namespace headrace::python {

using namespace nb::literals;

void bind_tier(nb::module_& m) {
  Record<HotnessTraits>(m, "HotnessTraits", "What a source of hotness sees, and at what price.")
      .field("kind", &HotnessTraits::kind, "Its name.")
      .field("sees_reads", &HotnessTraits::sees_reads, "Whether memory that is read counts.")
      .field("sees_writes", &HotnessTraits::sees_writes, "Whether memory that is written counts.")
      .field("by_page", &HotnessTraits::by_page, "Tells pages apart; else bytes of each chunk.")
      .field("needs_root", &HotnessTraits::needs_root, "Whether root has to ask.")
      .field("memory", &HotnessTraits::memory, "Which memory it can track.")
      .field("cost", &HotnessTraits::cost, "What it does to the program, in words.");
  Record<HotnessCost>(m, "HotnessCost", "What a source costs on this machine; medians.")
      .field("look_ns_per_page", &HotnessCost::look_ns_per_page,
             "A look at memory of which each page was touched, ns per page.")
      .field("access_ns", &HotnessCost::access_ns, "An access to a page while nobody looks, ns.")
      .field("first_access_ns", &HotnessCost::first_access_ns,
             "The first access to a page after a look, ns.")
      .field("pages", &HotnessCost::pages, "Those that were tracked.");
  m.def(
      "hotness_sources",
      [] {
        std::vector<HotnessTraits> all;
        std::ranges::transform(kHotnessKinds, std::back_inserter(all), traits_of);
        return all;
      },
      "The sources for memory of one's own process, whether they are there or not.");
  m.def(
      "measure_hotness_cost",
      [](const Word<HotnessKind>& kind, Bytes memory) {
        const HotnessKind chosen = kind.get();
        auto cost = [&] {
          const GilRelease release;
          return measure_hotness_cost(chosen, memory);
        }();
        return unwrap(std::move(cost));
      },
      "kind"_a, "memory"_a = (16_MiB).value,
      "Opens a source, tries it, and measures it on memory of its own, in less than half a "
      "second. UnsupportedError, DeniedError: it is not there, with the reason.");
}

}  // namespace headrace::python
