# SPDX-License-Identifier: Apache-2.0
# Headers that most files include, parsed once for each way of compiling: parsing is a third of the
# work of an optimising build and most of it elsewhere (docs/design/tests.md). The presets dev and
# tidy parse them in each file (CMAKE_DISABLE_PRECOMPILE_HEADERS), so that a missing #include shows.

set(HEADRACE_PRECOMPILED <algorithm> <array> <atomic> <chrono> <cstddef> <cstdint> <expected>
  <filesystem> <fstream> <functional> <map> <memory> <mutex> <optional> <set> <span> <string>
  <string_view> <thread> <utility> <variant> <vector> <fmt/format.h>)

# headrace_precompiled(name (HEADERS header...) (OPTIONS option...) (LIBRARIES library...)): makes
# the headers for headrace_precompile(target name). Both are compiled with the same options.
function(headrace_precompiled name)
  cmake_parse_arguments(PARSE_ARGV 1 with "" "" "HEADERS;OPTIONS;LIBRARIES")
  set(headers ${HEADRACE_PRECOMPILED} ${with_HEADERS})
  list(TRANSFORM headers REPLACE ">$" "$<ANGLE-R>")
  list(TRANSFORM headers REPLACE "^(.+)$" "$<$<COMPILE_LANGUAGE:CXX>:\\1>")
  set(empty ${PROJECT_BINARY_DIR}/generated/${name}.cpp)
  file(WRITE ${empty} "")
  add_library(headrace_precompiled_${name} OBJECT EXCLUDE_FROM_ALL ${empty})
  target_precompile_headers(headrace_precompiled_${name} PRIVATE ${headers})
  target_compile_options(headrace_precompiled_${name} PRIVATE
    ${with_OPTIONS} ${HEADRACE_PRECOMPILED_OPTIONS})
  target_link_libraries(headrace_precompiled_${name} PRIVATE headrace_warnings
    ${HEADRACE_DEPENDENCIES} ${with_LIBRARIES})
endfunction()

# For ccache, which compares contents, not times, and may read what the preprocessor prints.
set(HEADRACE_PRECOMPILED_OPTIONS
  "$<$<COMPILE_LANG_AND_ID:CXX,Clang>:SHELL:-Xclang -fno-pch-timestamp>"
  "$<$<COMPILE_LANG_AND_ID:CXX,GNU>:-fpch-preprocess>")
headrace_precompiled(library HEADERS <nlohmann/json.hpp>)
headrace_precompiled(plain HEADERS <nlohmann/json.hpp> OPTIONS ${HEADRACE_PLAIN_OPTIONS})
if(HEADRACE_TESTS)
  headrace_precompiled(test HEADERS <gtest/gtest.h> <rapidcheck/gtest.h>
    OPTIONS -fPIE ${HEADRACE_TEST_OPTIONS} LIBRARIES GTest::gtest rapidcheck)
  set_target_properties(headrace_precompiled_test PROPERTIES POSITION_INDEPENDENT_CODE OFF)
endif()

# headrace_precompile(target name): gives the target's C++ files the headers made by that name.
function(headrace_precompile target name)
  target_precompile_headers(${target} REUSE_FROM headrace_precompiled_${name})
  target_compile_options(${target} PRIVATE ${HEADRACE_PRECOMPILED_OPTIONS})
endfunction()
