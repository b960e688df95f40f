# Headers that most files include, parsed once for each way of compiling in builds with sanitizers:
# their code is hardly optimised, so parsing is most of the work (docs/design/tests.md). All other
# builds parse them in each file, so that a missing #include shows.

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
  # ccache compares contents, not times.
  target_compile_options(headrace_precompiled_${name} PRIVATE ${with_OPTIONS}
    "SHELL:-Xclang -fno-pch-timestamp")
  target_link_libraries(headrace_precompiled_${name} PRIVATE headrace_warnings
    ${HEADRACE_DEPENDENCIES} ${with_LIBRARIES})
endfunction()

if(HEADRACE_NO_SLOW_CHECKS)  # a sanitizer
  headrace_precompiled(library HEADERS <nlohmann/json.hpp>)
  headrace_precompiled(plain HEADERS <nlohmann/json.hpp> OPTIONS -O0 ${HEADRACE_NO_SLOW_CHECKS})
  headrace_precompiled(test HEADERS <gtest/gtest.h> <rapidcheck/gtest.h>
    OPTIONS -fPIE -O0 ${HEADRACE_NO_SLOW_CHECKS} LIBRARIES GTest::gtest rapidcheck)
  set_target_properties(headrace_precompiled_test PROPERTIES POSITION_INDEPENDENT_CODE OFF)
endif()

# headrace_precompile(target name): gives the target's C++ files the headers made by that name, if
# they are made.
function(headrace_precompile target name)
  if(TARGET headrace_precompiled_${name})
    target_precompile_headers(${target} REUSE_FROM headrace_precompiled_${name})
    target_compile_options(${target} PRIVATE "SHELL:-Xclang -fno-pch-timestamp")
  endif()
endfunction()
