// SPDX-License-Identifier: Apache-2.0
// JSON documents as Python objects and back, without a text between them.
#pragma once

#include <nanobind/nanobind.h>

#include <nlohmann/json.hpp>

namespace headrace::python {

namespace nb = nanobind;

// A dict as a document has it.
using Dict = nb::typed<nb::dict, nb::str, nb::any>;

Dict dict_of(const nlohmann::ordered_json& document);
// Raises InvalidError for what no JSON document holds.
nlohmann::ordered_json document_of(nb::handle object);

}  // namespace headrace::python
