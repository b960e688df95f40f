// SPDX-License-Identifier: Apache-2.0
// Expected failures become Python exceptions here, by one table.
#pragma once

#include <nanobind/nanobind.h>

#include <utility>

#include "headrace/result.h"

namespace headrace::python {

namespace nb = nanobind;

// Adds headrace.Error and its subclasses, one per ErrorCode.
void bind_errors(nb::module_& m);

// Raises those of headrace._core from now on: for another extension.
void use_errors_of(nb::handle core);

// Raises the exception of the error's code. Requires: the GIL.
[[noreturn]] void raise(const Error& error);
[[noreturn]] void raise(ErrorCode code, const std::string& message);

// The value, or the exception.
template <class T>
T unwrap(Result<T>&& result) {
  if (!result) raise(result.error());
  if constexpr (!std::is_void_v<T>) return *std::move(result);
}

}  // namespace headrace::python
