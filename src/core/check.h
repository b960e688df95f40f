// SPDX-License-Identifier: Apache-2.0
// CHECK ends the program on a programmer error, in every build; DCHECK only in debug builds.
//
// Not for bad input, missing hardware or a full disk, which are Results. Thread-safe.
#pragma once

namespace headrace {

// Prints "file:line: CHECK failed: condition" to stderr and aborts.
[[noreturn]] void check_failed(const char* file, int line, const char* condition);

}  // namespace headrace

#define CHECK(condition) \
  ((condition) ? void() : ::headrace::check_failed(__FILE__, __LINE__, #condition))

#ifdef NDEBUG
#define DCHECK(condition) ((true || (condition)) ? void() : void())
#else
#define DCHECK(condition) CHECK(condition)
#endif
