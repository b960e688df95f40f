// SPDX-License-Identifier: Apache-2.0
// Keeps tests/single_threaded.txt true: a test of what is listed there fails when it starts a
// thread. Part of every test program but TSan's, which leaves those files out.

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <pthread.h>

#include <cstdio>
#include <cstdlib>
#include <string_view>

using Start = void* (*)(void*);

// ASan's own, in its builds.
extern "C" [[gnu::weak]] int __interceptor_pthread_create(pthread_t*, const pthread_attr_t*, Start,
                                                          void*);

namespace {

bool is_listed(std::string_view name) {
  for (std::string_view rest = HEADRACE_SINGLE_THREADED; !rest.empty();) {
    const auto end = rest.find(',');  // after each, the last too
    if (rest.substr(0, end) == name) return true;
    rest.remove_prefix(end + 1);
  }
  return false;
}

// Path in the tree of the test that runs; that of its suite's first test while the suite is set up;
// "" outside of tests.
std::string_view file_of_test() {
  const auto& tests = *testing::UnitTest::GetInstance();
  const auto* test = tests.current_test_info();
  if (test == nullptr && tests.current_test_suite() != nullptr) {
    test = tests.current_test_suite()->GetTestInfo(0);
  }
  return test == nullptr ? "" : test->file();
}

}  // namespace

// Stands in front of libc's for the whole program, shared libraries included.
extern "C" [[gnu::visibility("default")]] int pthread_create(pthread_t* thread,
                                                             const pthread_attr_t* attributes,
                                                             Start start, void* argument) noexcept {
  const auto file = file_of_test();
  if (is_listed(file) || is_listed(file.substr(0, file.rfind('/')))) {
    std::fprintf(stderr, "%.*s starts a thread: take it, or its folder, from %s\n",
                 static_cast<int>(file.size()), file.data(), "tests/single_threaded.txt");
    std::abort();
  }
  static const auto libc =
      reinterpret_cast<decltype(&__interceptor_pthread_create)>(dlsym(RTLD_NEXT, "pthread_create"));
  const auto create = __interceptor_pthread_create != nullptr ? __interceptor_pthread_create : libc;
  return create(thread, attributes, start, argument);
}
