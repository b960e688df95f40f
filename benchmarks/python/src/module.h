// SPDX-License-Identifier: Apache-2.0
// The parts of the extension headrace_bench._core.
#pragma once

#include <nanobind/nanobind.h>

namespace headrace::python {

namespace nb = nanobind;

void bind_query(nb::module_& m);
void bind_simulated(nb::module_& m);
void bind_layer(nb::module_& m);
void bind_unified_memory(nb::module_& m);

}  // namespace headrace::python
