// SPDX-License-Identifier: Apache-2.0
// The solver of machine models, from JSON to JSON.

#include <string>

#include "errors.h"
#include "interruptible.h"
#include "model/json.h"
#include "module.h"
#include "types.h"

namespace headrace::python {

using namespace nb::literals;

void bind_model(nb::module_& m) {
  m.def(
      "solve",
      [](const std::string& machine, const std::string& flows) {
        auto solution = [&] {
          const GilRelease release;
          return solve_json(machine, flows);
        }();
        return unwrap(std::move(solution));
      },
      "machine"_a, "flows"_a,
      "Rates and latencies of flows that share a machine's ceilings; all three texts are JSON, in "
      "the form that src/model/json.h describes. The same texts give the same answer.");
}

}  // namespace headrace::python
