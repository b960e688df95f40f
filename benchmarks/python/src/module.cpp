// SPDX-License-Identifier: Apache-2.0
#include "module.h"

#include "calls.h"
#include "errors.h"
#include "interpreter.h"

// Benchmarks in C++, as Python sees them. Plain values and buffers come from headrace._core; no
// object of its copy of the library is used by the copy of this extension.
NB_MODULE(_core, m) {
  using namespace headrace::python;
#ifdef NDEBUG
  nb::set_leak_warnings(false);  // as in headrace._core
#endif
  m.doc() = "Benchmarks of Headrace.";
  use_errors_of(nb::module_::import_("headrace._core"));
  bind_interpreter(m);
  bind_query(m);
  bind_simulated(m);
  bind_layer(m);
  bind_unified_memory(m);
  m.def("_build_id", &build_id);
  explain_refusals(m);
}
