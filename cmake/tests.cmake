# SPDX-License-Identifier: Apache-2.0
# Test programs: how they are compiled, into how many parts ctest runs them, and which of them each
# build of `make test` needs (docs/design/tests.md).

# Test files, and folders of them, that start no thread: not built with TSan. One that does fails.
set(single_threaded ${PROJECT_SOURCE_DIR}/tests/single_threaded.txt)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${single_threaded})
file(STRINGS ${single_threaded} HEADRACE_SINGLE_THREADED REGEX "^[^#]")
# Folders whose tests the release build runs, too, because of races at full speed: without the files
# that start no thread. Then those of kernels in assembly and of all backends; the query's run in
# the guest, too. ASan's build has all other tests.
set(HEADRACE_RACES src/core src/move src/cache/structures src/cache src/cache/shards src/kvcache)
set(HEADRACE_OPTIMISED ${HEADRACE_RACES} src/backend/cpu src/measure/instruments
  src/measure/instruments/traffic tests/conformance benchmarks/query)
# Folders whose threads are tested with TSan by the tests of other folders; benchmarks are, too.
# Their programs have the label `threaded`. All others have `racing` too, which is what `make test`
# builds with TSan, without the folders that none of these programs links. The one thread of
# src/tier/page needs a machine with swap.
set(HEADRACE_NOT_LINKED src/profile src/place/advice src/tier/page src/tier/process src/measure
  src/measure/instruments/counters src/measure/instruments/gpu src/measure/session
  src/measure/experiments src/measure/experiments/dsa src/measure/experiments/gpu
  src/measure/experiments/migrate)
# The simulator runs one thread at a time; tests/conformance has its turns.
set(HEADRACE_NOT_RACING src/core/text src/sim ${HEADRACE_NOT_LINKED})
# Number of parts in which a program is run, so that a long one keeps several cores busy.
set(HEADRACE_TEST_PARTS 4)
if(CMAKE_CROSSCOMPILING)  # each start of a program under an emulator takes half a second
  set(HEADRACE_TEST_PARTS 1)
endif()

if(HEADRACE_TESTS)
  add_custom_target(sanitized)  # what ASan is for: all but benchmarks, which no user links
  add_custom_target(threaded)   # what TSan is for
  add_custom_target(racing)     # what TSan is for first
  add_custom_target(optimised)  # what the release build is for
  add_custom_target(benchmarks)  # tests of the benchmarks; micro-benchmarks, run and not judged
  add_dependencies(optimised headrace)
  add_library(headrace_thread_check OBJECT ${PROJECT_SOURCE_DIR}/tests/single_threaded.cpp)
  list(JOIN HEADRACE_SINGLE_THREADED "," names)
  target_compile_definitions(headrace_thread_check PRIVATE HEADRACE_SINGLE_THREADED="${names},")
  target_compile_options(headrace_thread_check PRIVATE -fPIE ${HEADRACE_TEST_OPTIONS})
  set_target_properties(headrace_thread_check PROPERTIES POSITION_INDEPENDENT_CODE OFF)
  target_link_libraries(headrace_thread_check PRIVATE headrace_warnings ${HEADRACE_DEPENDENCIES}
    GTest::gtest rapidcheck)
  headrace_precompile(headrace_thread_check test)
endif()

# headrace_label(program test label...): the targets `label` build the program; `ctest -L label`
# runs the test.
function(headrace_label program test)
  foreach(label IN LISTS ARGN)
    add_dependencies(${label} ${program})
    set_property(TEST ${test} APPEND PROPERTY LABELS ${label})
  endforeach()
endfunction()

# GCC's warnings are errors in tests too. Clang has more warnings, which are only printed, because
# tests assign to themselves on purpose. Its thread-safety analysis stays an error:
# headrace_warnings, which comes first, names it.
add_library(headrace_test_warnings INTERFACE)
target_compile_options(headrace_test_warnings INTERFACE
  $<$<CXX_COMPILER_ID:Clang>:-Wno-error>
  $<$<CXX_COMPILER_ID:Clang>:-Wno-sign-conversion>)

# headrace_test_program(name sources...): a GoogleTest program that ctest does not run.
function(headrace_test_program name)
  add_executable(${name} ${ARGN})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/tests
    ${PROJECT_SOURCE_DIR})
  target_compile_options(${name} PRIVATE ${HEADRACE_TEST_OPTIONS})
  target_compile_definitions(${name} PRIVATE HEADRACE_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  target_link_libraries(${name} PRIVATE headrace_test_support
    $<TARGET_NAME_IF_EXISTS:headrace_dsa_emulator> $<TARGET_NAME_IF_EXISTS:headrace_sim>
    $<TARGET_NAME_IF_EXISTS:headrace_model> headrace
    headrace_warnings headrace_test_warnings ${HEADRACE_DEPENDENCIES} GTest::gtest_main rapidcheck)
  if(NOT "${ARGN}" MATCHES "\\.c(;|$)")  # CMake would want headers for C as well
    headrace_precompile(${name} test)
  endif()
endfunction()

# headrace_without_single_threaded(sources...): gives in `left` those that TSan is for.
function(headrace_without_single_threaded)
  set(left "")
  foreach(source IN LISTS ARGN)
    cmake_path(RELATIVE_PATH source BASE_DIRECTORY ${PROJECT_SOURCE_DIR} OUTPUT_VARIABLE file)
    cmake_path(GET file PARENT_PATH folder)
    if(NOT file IN_LIST HEADRACE_SINGLE_THREADED AND NOT folder IN_LIST HEADRACE_SINGLE_THREADED)
      list(APPEND left ${source})
    endif()
  endforeach()
  set(left ${left} PARENT_SCOPE)
endfunction()

# headrace_test(name sources...): a GoogleTest program, run by ctest. Its folder, that of the first
# source, and tests/single_threaded.txt say in which builds.
function(headrace_test name)
  list(GET ARGN 0 first)
  get_filename_component(folder ${first} DIRECTORY)
  file(RELATIVE_PATH folder ${PROJECT_SOURCE_DIR} ${folder})
  set(labels "")
  set(sources ${ARGN})
  headrace_without_single_threaded(${ARGN})
  if(left MATCHES "\\.cpp(;|$)")
    list(APPEND labels threaded)
    if(NOT folder IN_LIST HEADRACE_NOT_RACING AND NOT folder MATCHES "^benchmarks")
      list(APPEND labels racing)
    endif()
    if(HEADRACE_THREAD_SANITIZER OR
        CMAKE_BUILD_TYPE STREQUAL Release AND folder IN_LIST HEADRACE_RACES)
      set(sources ${left})
    endif()
  endif()
  if(NOT HEADRACE_THREAD_SANITIZER)
    list(APPEND sources $<TARGET_OBJECTS:headrace_thread_check>)
  endif()
  headrace_test_program(${name} ${sources})
  if(folder MATCHES "^benchmarks")
    target_link_libraries(${name} PRIVATE headrace_benchmarks)
  endif()
  if(folder IN_LIST HEADRACE_OPTIMISED)
    list(APPEND labels optimised)
  endif()
  if(folder MATCHES "^benchmarks")
    if(NOT folder IN_LIST HEADRACE_OPTIMISED)
      list(APPEND labels benchmarks)
    endif()
  else()
    list(APPEND labels sanitized)
  endif()
  if("racing" IN_LIST labels)
    set_target_properties(${name} PROPERTIES HEADRACE_RACING ON)
  endif()
  foreach(part RANGE 1 ${HEADRACE_TEST_PARTS})
    math(EXPR index "${part} - 1")
    add_test(NAME ${name}.${part} COMMAND ${name})
    set_tests_properties(${name}.${part} PROPERTIES TIMEOUT 600
      ENVIRONMENT "GTEST_TOTAL_SHARDS=${HEADRACE_TEST_PARTS};GTEST_SHARD_INDEX=${index}")
    headrace_label(${name} ${name}.${part} ${labels})
  endforeach()
endfunction()
