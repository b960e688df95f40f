# SPDX-License-Identifier: Apache-2.0
# explore_test: production code compiled for ThreadSanitizer, but linked with a runtime of our own,
# under which one thread runs at a time (explore.h). In builds without a sanitizer, on x86-64.

if(HEADRACE_ADDRESS_SANITIZER OR HEADRACE_THREAD_SANITIZER OR
    NOT CMAKE_SYSTEM_PROCESSOR STREQUAL "x86_64" OR NOT CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  return()
endif()

# The code whose threads are explored, by folder. Everything else comes from the library.
set(explored_sources "")
foreach(folder src/core/waiting src/core src/move src/cache/structures
               src/cache/accounts src/cache
               src/cache/shards src/kvcache/state src/kvcache)
  file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${folder}/*.cpp)
  list(FILTER sources EXCLUDE REGEX "_(test|bench|fuzz)\\.cpp$")
  string(REPLACE "/" "_" name explored_${folder})
  add_library(${name} OBJECT ${sources})
  list(APPEND explored ${name})
endforeach()
# Thousands of counters that order nothing.
set_source_files_properties(${PROJECT_SOURCE_DIR}/src/core/histogram.cpp PROPERTIES
  SKIP_UNITY_BUILD_INCLUSION ON COMPILE_OPTIONS -fno-sanitize=thread)
file(GLOB scenarios CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/*_test.cpp)
add_library(explored_scenarios OBJECT ${scenarios}
  ${PROJECT_SOURCE_DIR}/tests/support/fake_backend.cpp)
list(APPEND explored explored_scenarios)
foreach(name IN LISTS explored)
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/include
    ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR})
  target_compile_definitions(${name} PRIVATE HEADRACE_VERSION="${PROJECT_VERSION}")
  # With DCHECK. Hits use the asymmetric fence, as in a release: no build for ThreadSanitizer.
  target_compile_options(${name} PRIVATE -O1 -g1 -UNDEBUG -fsanitize=thread -U__SANITIZE_THREAD__
    -Wno-tsan)
  target_link_libraries(${name} PRIVATE headrace_warnings headrace_test_warnings
    ${HEADRACE_DEPENDENCIES} GTest::gtest)
endforeach()

file(GLOB runtime CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/*.cpp)
list(FILTER runtime EXCLUDE REGEX "_test\\.cpp$")
add_executable(explore_test ${runtime} ${PROJECT_SOURCE_DIR}/src/sim/scheduler.cpp)
foreach(name IN LISTS explored)
  target_sources(explore_test PRIVATE $<TARGET_OBJECTS:${name}>)
endforeach()
# libstdc++ calls these functions, too.
target_compile_options(explore_test PRIVATE -fvisibility=default -O2 -g1)
target_include_directories(explore_test PRIVATE ${PROJECT_SOURCE_DIR}/include
  ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR})
target_link_libraries(explore_test PRIVATE headrace headrace_warnings headrace_test_warnings
  ${HEADRACE_DEPENDENCIES} GTest::gtest_main)
set_target_properties(explore_test PROPERTIES UNITY_BUILD OFF)
foreach(part RANGE 1 ${HEADRACE_TEST_PARTS})
  math(EXPR index "${part} - 1")
  add_test(NAME explore_test.${part} COMMAND explore_test)
  set_tests_properties(explore_test.${part} PROPERTIES TIMEOUT 600
    ENVIRONMENT "GTEST_TOTAL_SHARDS=${HEADRACE_TEST_PARTS};GTEST_SHARD_INDEX=${index}")
  headrace_label(explore_test explore_test.${part} optimised)
endforeach()
