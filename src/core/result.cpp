// SPDX-License-Identifier: Apache-2.0
#include "headrace/result.h"

#include <cstdio>
#include <cstdlib>
#include <system_error>

#include "core/check.h"
#include "core/fail.h"

namespace headrace {

std::string_view to_string(ErrorCode code) {
  switch (code) {
    case ErrorCode::absent: return "absent";
    case ErrorCode::unsupported: return "unsupported";
    case ErrorCode::denied: return "denied";
    case ErrorCode::exhausted: return "exhausted";
    case ErrorCode::io: return "io";
    case ErrorCode::invalid: return "invalid";
    case ErrorCode::cancelled: return "cancelled";
    case ErrorCode::timed_out: return "timed_out";
  }
  CHECK(false);
  return {};
}

void no_value(const Error& error) {
  std::fprintf(stderr, "value() of a Result without one: %s: %s\n",
               std::string(to_string(error.code)).c_str(), error.message.c_str());
  std::abort();
}

ErrorCode code_of_errno(int error) {
  switch (error) {
    case ENOENT:
    case ENODEV:
    case ENXIO:
    case ENOTDIR: return ErrorCode::absent;
    case EACCES:
    case EPERM:
    case EROFS: return ErrorCode::denied;
    case ENOMEM:
    case ENOSPC:
    case EDQUOT:
    case EMFILE:
    case ENFILE:
    case EAGAIN: return ErrorCode::exhausted;
    case ENOSYS:
    case EOPNOTSUPP: return ErrorCode::unsupported;
    case EINVAL:
    case EISDIR:
    case EFAULT:
    case ERANGE: return ErrorCode::invalid;
    case ECANCELED: return ErrorCode::cancelled;
    case ETIMEDOUT: return ErrorCode::timed_out;
    default: return ErrorCode::io;
  }
}

Unexpected fail_errno(int error, std::string_view what) {
  return fail(code_of_errno(error), "{}: {}", what, std::generic_category().message(error));
}

}  // namespace headrace
