# Test programs: how they are compiled, into how many parts ctest runs them, and which of them each
# build of `make test` needs (docs/design/tests.md). ASan runs them all.

# Folders in which no test starts a thread: not built with TSan. One that does fails.
set(HEADRACE_SINGLE_THREADED src/topology/discovery src/topology src/profile src/place
  src/place/advice
  src/backend dsa_emulator/rates)
# Folders whose tests prove something of optimised code that no sanitized build proves: kernels in
# assembly, a million descriptors, races at full speed, C programs.
set(HEADRACE_OPTIMISED src/core src/backend/cpu src/backend/dsa src/memory/heap src/move
  src/cache/structures src/cache src/measure/instruments dsa_emulator/device workload/query
  tests/conformance)
# Folders of text, numbers and control, without raw memory or long loops. With sanitizers their code
# is compiled as that of all tests is: at -O0, with HEADRACE_NO_SLOW_CHECKS.
set(HEADRACE_PLAIN src/core/text src/topology/discovery src/topology src/profile src/place
  src/place/advice src/backend/registry src/measure/session src/measure/experiments
  src/measure/experiments/dsa src/measure dsa_emulator/rates)
# A program is run in so many parts, so that a long one keeps several cores busy.
set(HEADRACE_TEST_PARTS 4)

if(HEADRACE_TESTS)
  add_custom_target(threaded)   # what TSan is for
  add_custom_target(optimised)  # what the release build is for
  add_dependencies(optimised headrace)
endif()

# headrace_label(program test label...): the targets `label` build the program; `ctest -L label`
# runs the test.
function(headrace_label program test)
  foreach(label IN LISTS ARGN)
    add_dependencies(${label} ${program})
    set_property(TEST ${test} APPEND PROPERTY LABELS ${label})
  endforeach()
endfunction()

# GCC's warnings are errors in tests too; clang has more of them, which are told (tests assign to
# themselves on purpose). Its thread-safety analysis stays an error, being named by itself in
# headrace_warnings, after which this comes.
add_library(headrace_test_warnings INTERFACE)
target_compile_options(headrace_test_warnings INTERFACE
  $<$<CXX_COMPILER_ID:Clang>:-Wno-error>
  $<$<CXX_COMPILER_ID:Clang>:-Wno-sign-conversion>)

# headrace_test_program(name sources...): a GoogleTest program that ctest does not run.
function(headrace_test_program name)
  add_executable(${name} ${ARGN})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/tests
    ${PROJECT_SOURCE_DIR})
  # A test's own code need not be fast; -O0 halves the time to compile it, with clang to a third.
  target_compile_options(${name} PRIVATE $<IF:$<CONFIG:Release>,-O1,-O0>
    ${HEADRACE_NO_SLOW_CHECKS})
  target_compile_definitions(${name} PRIVATE HEADRACE_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  target_link_libraries(${name} PRIVATE headrace_test_support headrace_workload headrace
    headrace_warnings headrace_test_warnings ${HEADRACE_DEPENDENCIES} GTest::gtest_main rapidcheck)
endfunction()

# headrace_test(name sources...): a GoogleTest program, run by ctest. Its folder, that of the first
# source, says in which builds.
function(headrace_test name)
  headrace_test_program(${name} ${ARGN})
  list(GET ARGN 0 first)
  get_filename_component(folder ${first} DIRECTORY)
  file(RELATIVE_PATH folder ${PROJECT_SOURCE_DIR} ${folder})
  set(labels "")
  if(folder IN_LIST HEADRACE_SINGLE_THREADED)
    target_sources(${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests/no_threads.cpp)
  else()
    list(APPEND labels threaded)
  endif()
  if(folder IN_LIST HEADRACE_OPTIMISED)
    list(APPEND labels optimised)
  endif()
  foreach(part RANGE 1 ${HEADRACE_TEST_PARTS})
    math(EXPR index "${part} - 1")
    add_test(NAME ${name}.${part} COMMAND ${name})
    set_tests_properties(${name}.${part} PROPERTIES TIMEOUT 600
      ENVIRONMENT "GTEST_TOTAL_SHARDS=${HEADRACE_TEST_PARTS};GTEST_SHARD_INDEX=${index}")
    headrace_label(${name} ${name}.${part} ${labels})
  endforeach()
  list(JOIN labels " " words)
  set_property(GLOBAL APPEND_STRING PROPERTY headrace_test_programs "${name} ${folder} ${words}\n")
endfunction()

# The test programs with their folders and labels, a line each, for tools/concerned.py.
function(headrace_list_tests)
  get_property(programs GLOBAL PROPERTY headrace_test_programs)
  file(WRITE ${PROJECT_BINARY_DIR}/test_programs.txt "${programs}")
endfunction()
