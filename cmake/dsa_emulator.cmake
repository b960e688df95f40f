# SPDX-License-Identifier: Apache-2.0
# headrace-dsa-sim: emulated DSA devices as files, by FUSE (dsa_emulator/driver and /fuse). A
# program of its own: the library has none of it and links neither libfuse nor CLI11.

set(emulator_dir ${PROJECT_SOURCE_DIR}/dsa_emulator)
file(GLOB emulator_sources CONFIGURE_DEPENDS ${emulator_dir}/driver/*.cpp)
file(GLOB emulator_program CONFIGURE_DEPENDS ${emulator_dir}/fuse/*.cpp)
set(emulator_tests ${emulator_sources} ${emulator_program})
list(FILTER emulator_tests INCLUDE REGEX "_test\\.cpp$")
list(REMOVE_ITEM emulator_sources ${emulator_tests})
list(REMOVE_ITEM emulator_program ${emulator_tests})

function(headrace_emulator_target name)
  target_include_directories(${name} PRIVATE
    ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR})
  target_link_libraries(${name} PRIVATE headrace_warnings ${HEADRACE_DEPENDENCIES})
endfunction()

# What tests see of the program; options.cpp is all that knows CLI11.
find_package(CLI11 2.1 QUIET)
if(CLI11_FOUND)
  list(APPEND emulator_sources ${emulator_dir}/fuse/options.cpp)
else()
  list(REMOVE_ITEM emulator_tests ${emulator_dir}/fuse/options_test.cpp)
endif()
list(REMOVE_ITEM emulator_program ${emulator_dir}/fuse/options.cpp)
add_library(headrace_dsa_emulator_objects OBJECT EXCLUDE_FROM_ALL ${emulator_sources})
headrace_emulator_target(headrace_dsa_emulator_objects)
target_compile_options(headrace_dsa_emulator_objects PRIVATE ${HEADRACE_PLAIN_OPTIONS})
headrace_precompile(headrace_dsa_emulator_objects plain)
if(CLI11_FOUND)
  target_link_libraries(headrace_dsa_emulator_objects PRIVATE CLI11::CLI11)
endif()

# What it uses of the library is hidden in a shared one: then its objects as an archive.
set(emulator_library headrace)
if(BUILD_SHARED_LIBS)
  get_target_property(objects headrace SOURCES)
  add_library(headrace_objects STATIC EXCLUDE_FROM_ALL ${objects})
  set(emulator_library headrace_objects)
endif()

if(fuse3_FOUND AND CLI11_FOUND)
  add_executable(headrace-dsa-sim
    ${emulator_program} $<TARGET_OBJECTS:headrace_dsa_emulator_objects>)
  headrace_emulator_target(headrace-dsa-sim)
  target_link_libraries(headrace-dsa-sim PRIVATE ${emulator_library} PkgConfig::fuse3)
else()
  message(STATUS "No headrace-dsa-sim, for want of fuse3 or CLI11 (Debian: libfuse3-dev, "
    "libcli11-dev)")
endif()

if(HEADRACE_TESTS)
  headrace_test(dsa_emulator_fuse_test
    ${emulator_tests} $<TARGET_OBJECTS:headrace_dsa_emulator_objects>)
  if(TARGET headrace-dsa-sim)
    add_dependencies(dsa_emulator_fuse_test headrace-dsa-sim)
    target_compile_definitions(dsa_emulator_fuse_test PRIVATE
      HEADRACE_DSA_SIM="$<TARGET_FILE:headrace-dsa-sim>")
  endif()
endif()
