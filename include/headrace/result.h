// How functions of Headrace say that they could not do what was asked.
//
// Expected failures (missing hardware, bad input, a full disk) are values: `Result<T>` holds either
// a T or an Error. The library throws nothing of its own. Programmer errors are not Results: they
// end the program through CHECK.
//
// Thread-compatible.
#pragma once

#if __cplusplus <= 202002L
#error "Headrace needs C++23: compile with -std=c++23"
#endif

#include <cstdint>
#include <expected>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "headrace/export.h"

namespace HEADRACE_API headrace {

// The closed set of reasons. Python exceptions and exit codes are mapped from it in one table each
// (python/src/shared/errors.cpp, python/headrace/_cli/exit_codes.py).
enum class ErrorCode : std::uint8_t {
  absent,       // it is not there: a node, an engine, a file, a column
  unsupported,  // it is there and cannot do this
  denied,       // the system refuses permission
  exhausted,    // no room: memory, budget, queue, disk
  io,           // a device or file failed or ended early
  invalid,      // the request makes no sense
  cancelled,    // somebody asked to stop
  timed_out,    // it did not happen within its bound
};

// "absent", "io", ... : the same words as in JSON.
std::string_view to_string(ErrorCode code);

// What went wrong and what to do about it, in one line without a final full stop.
struct Error {
  ErrorCode code;
  std::string message;

  friend bool operator==(const Error&, const Error&) = default;
};

// A T, or the Error that explains why there is none.
template <class T>
class [[nodiscard]] Result : public std::expected<T, Error> {
 public:
  using std::expected<T, Error>::expected;
  using std::expected<T, Error>::operator=;
};

// Success, or the Error that explains why not.
using Status = Result<void>;

static_assert(std::is_nothrow_move_constructible_v<Result<int>>);

}  // namespace HEADRACE_API headrace
