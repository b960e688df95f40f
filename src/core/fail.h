// SPDX-License-Identifier: Apache-2.0
// Short ways to create an Error and to return one to the caller.
#pragma once

#include <fmt/core.h>

#include <cerrno>
#include <utility>

#include "headrace/result.h"

namespace headrace {

// return fail(ErrorCode::absent, "no node {}; this machine has {}", 7, "0-1");
template <class... Args>
Unexpected fail(ErrorCode code, fmt::format_string<Args...> text, Args&&... args) {
  return Unexpected(Error{code, fmt::format(text, std::forward<Args>(args)...)});
}

// The Error for std::bad_alloc. Allocates nothing: the text fits into the string object.
inline Unexpected out_of_memory() noexcept {
  return Unexpected(Error{ErrorCode::exhausted, "out of memory"});
}

// The same as fail() for a system call that failed with `error` (an errno value). Sets the matching
// code, and appends the error's description to `what`.
Unexpected fail_errno(int error, std::string_view what);

// The ErrorCode for an errno value; io if no code fits better.
ErrorCode code_of_errno(int error);

}  // namespace headrace

// HEADRACE_TRY(auto file, File::open(path)): declares the value, or returns the error to the
// caller.
#define HEADRACE_TRY(declaration, expression) \
  HEADRACE_TRY_AT(declaration, expression, HEADRACE_JOIN(result_, __LINE__))
// HEADRACE_TRY_STATUS(flush()): returns an error to the caller.
#define HEADRACE_TRY_STATUS(expression)                        \
  if (auto status_ = (expression); !status_) {                 \
    return ::headrace::Unexpected(std::move(status_).error()); \
  }
#define HEADRACE_TRY_AT(declaration, expression, result)      \
  auto result = (expression);                                 \
  if (!result) {                                              \
    return ::headrace::Unexpected(std::move(result).error()); \
  }                                                           \
  declaration = *std::move(result)
#define HEADRACE_JOIN(a, b) HEADRACE_JOIN_AGAIN(a, b)
#define HEADRACE_JOIN_AGAIN(a, b) a##b
