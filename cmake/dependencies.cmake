# SPDX-License-Identifier: Apache-2.0
# The libraries that Headrace uses, all private to it. One error names everything that is missing
# and the command that installs it. Debian 12, Debian 13 and Ubuntu 24.04 have the same package
# names.

# headrace_refuse(what package...): ends the configuration.
function(headrace_refuse what)
  cmake_host_system_information(RESULT system QUERY DISTRIB_PRETTY_NAME DISTRIB_ID DISTRIB_ID_LIKE)
  list(POP_FRONT system name)
  list(JOIN ARGN " " packages)
  if(system MATCHES "debian")
    message(FATAL_ERROR "Headrace needs what is not here: ${what}. On ${name}:\n"
      "  sudo apt install ${packages}")
  endif()
  message(FATAL_ERROR "Headrace needs what is not here: ${what}. Install it with its headers;"
    " Debian's packages of it are:\n  ${packages}")
endfunction()

set(missing "")
set(packages "")
# headrace_need(found what package): notes that something is missing unless the variable `found` is
# true.
macro(headrace_need found what package)
  if(NOT ${found})
    list(APPEND missing "${what}")
    list(APPEND packages ${package})
  endif()
endmacro()

# Without a compiler CMake finds no library either.
include(CheckLanguage)
check_language(CXX)
if(NOT CMAKE_CXX_COMPILER)
  unset(CMAKE_CXX_COMPILER CACHE)  # so that it is looked for again
  headrace_refuse("a C++ compiler, and probably the libraries" g++ ninja-build pkg-config libfmt-dev
    libhwloc-dev liburing-dev libtbb-dev libhwy-dev libxxhash-dev nlohmann-json3-dev)
endif()
enable_language(CXX)
# The first with std::expected.
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 12)
  headrace_need(FALSE "GCC 12 (${CMAKE_CXX_COMPILER} is ${CMAKE_CXX_COMPILER_VERSION})" g++)
endif()
find_package(Threads REQUIRED)
find_package(fmt QUIET)
headrace_need(fmt_FOUND fmt libfmt-dev)
find_package(nlohmann_json QUIET)
headrace_need(nlohmann_json_FOUND nlohmann-json nlohmann-json3-dev)
find_package(TBB QUIET COMPONENTS tbbmalloc)
headrace_need(TBB_FOUND oneTBB libtbb-dev)
find_path(highway_headers hwy/highway.h)  # the headers alone are used
headrace_need(highway_headers Highway libhwy-dev)
find_path(xxhash_headers xxhash.h)
headrace_need(xxhash_headers xxHash libxxhash-dev)
find_package(PkgConfig QUIET)
headrace_need(PKG_CONFIG_FOUND pkg-config pkg-config)
if(PKG_CONFIG_FOUND)
  pkg_check_modules(hwloc QUIET IMPORTED_TARGET hwloc)
  pkg_check_modules(liburing QUIET IMPORTED_TARGET liburing)
  pkg_check_modules(fuse3 QUIET IMPORTED_TARGET fuse3>=3.12)
endif()
headrace_need(hwloc_FOUND hwloc libhwloc-dev)
headrace_need(liburing_FOUND liburing liburing-dev)

if(HEADRACE_TESTS)
  find_package(GTest QUIET)
  headrace_need(GTest_FOUND GoogleTest libgtest-dev)
  find_library(rapidcheck_library rapidcheck)
  headrace_need(rapidcheck_library RapidCheck librapidcheck-dev)
endif()
if(HEADRACE_BENCHES)
  find_package(benchmark QUIET)
  headrace_need(benchmark_FOUND "Google Benchmark" libbenchmark-dev)
endif()

if(missing)
  list(JOIN missing ", " missing)
  headrace_refuse("${missing}" ${packages})
endif()

set(HEADRACE_DEPENDENCIES Threads::Threads fmt::fmt nlohmann_json::nlohmann_json
  TBB::tbbmalloc PkgConfig::hwloc PkgConfig::liburing)
if(HEADRACE_TESTS)
  add_library(rapidcheck INTERFACE)
  target_link_libraries(rapidcheck INTERFACE ${rapidcheck_library})
endif()
