// SPDX-License-Identifier: Apache-2.0
// Marks what the shared library exports: everything declared in a public header, nothing else.
#pragma once

#define HEADRACE_API [[gnu::visibility("default")]]
