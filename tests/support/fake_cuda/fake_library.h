// SPDX-License-Identifier: Apache-2.0
// The fake driver for one test: its own copy of the library, so that each test of a program has its
// own machine. The copy is loaded at once and then has no name any more in the file system; the
// loader knows it by its path. Sets HEADRACE_LIBCUDA (the library) and HEADRACE_FAKE_CUDA (its
// settings) until the end of the scope.
//
// HEADRACE_TEST_LIBCUDA names a real driver instead (libcuda.so.1). Then every scope uses it,
// whatever its settings. `tools/test.sh gpu` runs the tests that work with it.
//
// Single-thread: it changes the environment.
#pragma once

#include <dlfcn.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>

#include "tests/support/scoped_variable.h"

namespace headrace {

// The real driver that tests must use; nullopt: the fake one.
inline std::optional<std::string> real_cuda() {
  const char* const named = std::getenv("HEADRACE_TEST_LIBCUDA");
  return named == nullptr || *named == '\0' ? std::nullopt : std::optional<std::string>(named);
}

class FakeCudaLibrary {
 public:
  // `settings` as in README.md; `version` is empty for the newest driver,
  // or 12.8, 12.2, 11.0.
  explicit FakeCudaLibrary(const std::string& settings = "", const std::string& version = "")
      : path_(copy_of(version)),
        library_("HEADRACE_LIBCUDA", path_),
        settings_("HEADRACE_FAKE_CUDA", settings) {}
  FakeCudaLibrary(const FakeCudaLibrary&) = delete;
  FakeCudaLibrary& operator=(const FakeCudaLibrary&) = delete;

  const std::string& path() const { return path_; }

 private:
  static std::string copy_of(const std::string& version) {
    static int number = 0;
    if (const auto real = real_cuda()) return *real;
    const std::filesystem::path from =
        std::string(HEADRACE_FAKE_CUDA_STEM) + (version.empty() ? "" : "-" + version) + ".so";
    const auto to =
        std::filesystem::temp_directory_path() /
        ("headrace-fake-cuda-" + std::to_string(getpid()) + "-" + std::to_string(number++) + ".so");
    std::filesystem::copy_file(from, to, std::filesystem::copy_options::overwrite_existing);
    const bool loaded = dlopen(to.c_str(), RTLD_NOW | RTLD_LOCAL) != nullptr;
    std::filesystem::remove(to);
    if (!loaded) std::abort();
    return to;
  }

  std::string path_;
  ScopedVariable library_;
  ScopedVariable settings_;
};

}  // namespace headrace
