// SPDX-License-Identifier: Apache-2.0
// The solver of machine models, from JSON to JSON.
#include <string>

#include "casters.h"
#include "errors.h"
#include "interruptible.h"
#include "model/json.h"
#include "module.h"
#include "types.h"

namespace headrace::python {

using namespace nb::literals;

void bind_model(nb::module_& m) {
  nb::class_<JsonSolver>(m, "Solver", "A machine's model, read once. Thread-safe.")
      .def_static(
          "create", [](const std::string& machine) { return unwrap(JsonSolver::create(machine)); },
          "machine"_a, "Errors: those of `headrace.Machine.from_json()`, and of its model.")
      .def(
          "solve",
          [](const JsonSolver& solver, const std::string& flows) {
            auto solution = [&] {
              const GilRelease release;
              return solver.solve(flows);
            }();
            return unwrap(std::move(solution));
          },
          "flows"_a,
          "Rates and latencies of flows that share the machine's ceilings, as JSON, in the form "
          "that src/model/json.h describes. The same texts give the same answer.");
}

}  // namespace headrace::python
