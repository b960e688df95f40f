// SPDX-License-Identifier: Apache-2.0
// What Linux lets a process have and set, for headrace._tiering and headrace._doctor.
#pragma once

#include <nanobind/nanobind.h>

namespace headrace::python {

void bind_host(nanobind::module_& m);

}  // namespace headrace::python
