# What Headrace stands on: all from Debian 12, all private to the library.

find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(TBB REQUIRED COMPONENTS tbbmalloc)
find_package(PkgConfig REQUIRED)
pkg_check_modules(hwloc REQUIRED IMPORTED_TARGET hwloc)
pkg_check_modules(liburing REQUIRED IMPORTED_TARGET liburing)
set(HEADRACE_DEPENDENCIES Threads::Threads fmt::fmt nlohmann_json::nlohmann_json
  TBB::tbbmalloc PkgConfig::hwloc PkgConfig::liburing)

if(HEADRACE_TESTS)
  find_package(GTest REQUIRED)
  find_library(rapidcheck_library rapidcheck REQUIRED)
  add_library(rapidcheck INTERFACE)
  target_link_libraries(rapidcheck INTERFACE ${rapidcheck_library})
endif()
if(HEADRACE_BENCHES)
  find_package(benchmark REQUIRED)
endif()
