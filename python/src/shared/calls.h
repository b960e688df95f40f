// SPDX-License-Identifier: Apache-2.0
// What goes wrong before a bound function is reached: an argument of the wrong type, or one for
// which there was no memory.
#pragma once

#include <nanobind/nanobind.h>

namespace headrace::python {

namespace nb = nanobind;

// From now on each function and method of `m` that refuses its arguments says so in one line
// (headrace._argument_errors) instead of nanobind's list of signatures, and raises MemoryError
// where there was no memory for one. Called when all are bound. Requires: the GIL.
void explain_refusals(nb::module_& m);

// A hash of the headers that this extension was compiled with (cmake/build_id.cmake).
const char* build_id();

}  // namespace headrace::python
