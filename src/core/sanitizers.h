// SPDX-License-Identifier: Apache-2.0
// The sanitizer of this build: GCC reports it by macros, clang by features. Thread-safe.
#pragma once

#if defined(__SANITIZE_ADDRESS__)
#define HEADRACE_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define HEADRACE_ASAN 1
#endif
#endif

#if defined(__SANITIZE_THREAD__)
#define HEADRACE_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define HEADRACE_TSAN 1
#endif
#endif
