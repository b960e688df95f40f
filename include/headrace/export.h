// SPDX-License-Identifier: Apache-2.0
// Marks the exports of the shared library: everything declared in a public header, nothing else.
#pragma once

#if __cplusplus < 202002L
#error "Headrace needs C++20: compile with -std=c++20"
#endif

#define HEADRACE_API [[gnu::visibility("default")]]
