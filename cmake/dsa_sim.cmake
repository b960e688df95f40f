# SPDX-License-Identifier: Apache-2.0
# Programs with emulated DSA devices (dsa_sim). The emulator itself is in tests/support/dsa. The
# library and the wheel have neither, and only headrace-dsa-sim links libfuse and CLI11.
#
# headrace-dsa-sim: emulated devices as files, by FUSE.

set(dsa_sim_dir ${PROJECT_SOURCE_DIR}/dsa_sim)
file(GLOB dsa_sim_sources CONFIGURE_DEPENDS ${dsa_sim_dir}/driver/*.cpp)
file(GLOB dsa_sim_program CONFIGURE_DEPENDS ${dsa_sim_dir}/fuse/*.cpp)
set(dsa_sim_tests ${dsa_sim_sources} ${dsa_sim_program})
list(FILTER dsa_sim_tests INCLUDE REGEX "_test\\.cpp$")
list(REMOVE_ITEM dsa_sim_sources ${dsa_sim_tests})
list(REMOVE_ITEM dsa_sim_program ${dsa_sim_tests})

# Hidden functions of the library are called. A shared library does not export them: then its
# objects are linked.
set(program_library headrace)
if(BUILD_SHARED_LIBS)
  get_target_property(objects headrace SOURCES)
  add_library(headrace_objects STATIC EXCLUDE_FROM_ALL ${objects})
  set(program_library headrace_objects)
endif()

# headrace_dsa_sim_library(name (SOURCES source...) (LIBRARIES library...))
function(headrace_dsa_sim_library name)
  cmake_parse_arguments(PARSE_ARGV 1 with "" "" "SOURCES;LIBRARIES")
  add_library(${name} OBJECT EXCLUDE_FROM_ALL ${with_SOURCES})
  target_include_directories(${name} PRIVATE
    ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR})
  target_link_libraries(${name} PRIVATE
    headrace_warnings ${HEADRACE_DEPENDENCIES} ${with_LIBRARIES})
  target_compile_options(${name} PRIVATE ${HEADRACE_PLAIN_OPTIONS})
  headrace_precompile(${name} plain)
endfunction()

# headrace_dsa_sim_program(name (SOURCES source...) (LIBRARIES library...))
function(headrace_dsa_sim_program name)
  cmake_parse_arguments(PARSE_ARGV 1 with "" "" "SOURCES;LIBRARIES")
  headrace_dsa_sim_library(${name}-objects SOURCES ${with_SOURCES} LIBRARIES ${with_LIBRARIES})
  add_executable(${name} $<TARGET_OBJECTS:${name}-objects>
    $<TARGET_OBJECTS:headrace_dsa_sim_objects>)
  target_link_libraries(${name} PRIVATE headrace_dsa_emulator ${program_library}
    ${HEADRACE_DEPENDENCIES} ${with_LIBRARIES})
  set_target_properties(${name} PROPERTIES HEADRACE_RACING ON)
endfunction()

headrace_dsa_sim_library(headrace_dsa_sim_objects SOURCES ${dsa_sim_sources})
find_package(CLI11 2.1 QUIET)
if(fuse3_FOUND AND CLI11_FOUND)
  headrace_dsa_sim_program(headrace-dsa-sim SOURCES ${dsa_sim_program}
    LIBRARIES PkgConfig::fuse3 CLI11::CLI11)
else()
  message(STATUS "No headrace-dsa-sim, for want of fuse3 or CLI11 (Debian: libfuse3-dev, "
    "libcli11-dev)")
endif()

if(HEADRACE_TESTS)
  headrace_test(dsa_sim_test ${dsa_sim_tests} $<TARGET_OBJECTS:headrace_dsa_sim_objects>)
  if(TARGET headrace-dsa-sim)
    add_dependencies(dsa_sim_test headrace-dsa-sim)
    target_compile_definitions(dsa_sim_test PRIVATE
      HEADRACE_DSA_SIM="$<TARGET_FILE:headrace-dsa-sim>")
  endif()
endif()
