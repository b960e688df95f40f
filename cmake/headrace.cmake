# SPDX-License-Identifier: Apache-2.0
# Warnings and the per-folder rules of the build; those of tests are in tests.cmake.

# The fake backend (tests/support), for tests and benchmarks. It is not installed. The DSA emulator
# (tests/support/dsa), which programs of dsa_sim link too, is not installed either.
if(HEADRACE_TESTS OR HEADRACE_BENCHES)
  add_library(headrace_test_support STATIC EXCLUDE_FROM_ALL)
endif()

add_library(headrace_warnings INTERFACE)
target_compile_options(headrace_warnings INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wconversion $<$<BOOL:${HEADRACE_WERROR}>:-Werror>
  $<$<CXX_COMPILER_ID:Clang>:-Wthread-safety>
  $<$<AND:$<CXX_COMPILER_ID:Clang>,$<BOOL:${HEADRACE_WERROR}>>:-Werror=thread-safety>
  # The stable_sort of libstdc++ 12 calls a function that it deprecates itself; GCC tells ours.
  $<$<CXX_COMPILER_ID:Clang>:-Wno-deprecated-declarations>
  # Statement-free TRY macros and designated initialisers with defaults are meant.
  -Wno-missing-field-initializers
  # GCC 12 sees ghosts in std::optional and std::expected, and in strings put together (its bug
  # 105329).
  $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>
  $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>
  # In a unity build a source file's anonymous namespace looks like a header's.
  $<$<AND:$<COMPILE_LANG_AND_ID:CXX,GNU>,$<BOOL:${CMAKE_UNITY_BUILD}>>:-Wno-subobject-linkage>
  $<$<AND:$<COMPILE_LANG_AND_ID:CXX,Clang>,$<BOOL:${CMAKE_UNITY_BUILD}>>:-Wno-shadow>)

# Clang 19 does not say by these macros what it compiles for, as GCC does.
foreach(sanitizer address thread)
  if(CMAKE_CXX_COMPILER_ID STREQUAL Clang AND CMAKE_CXX_FLAGS MATCHES "-fsanitize=${sanitizer}")
    string(TOUPPER ${sanitizer} name)
    target_compile_definitions(headrace_warnings INTERFACE __SANITIZE_${name}__)
    set(HEADRACE_${name}_SANITIZER ON)
  endif()
endforeach()

# Folders of text, numbers and control, without raw memory or long loops. Optimising them costs
# compile time and gains nothing. Releases compile them at -O1, sanitized builds at -O0, as all
# tests.
set(HEADRACE_PLAIN src/core/text src/host/settings src/topology/discovery src/topology
  src/profile src/place
  src/backend/registry src/measure/instruments/gpu src/measure/session
  src/measure/experiments
  src/measure/experiments/dsa src/measure/experiments/gpu src/measure/experiments/migrate
  src/measure benchmarks/unified_memory benchmarks/query/simulated)
if(HEADRACE_ADDRESS_SANITIZER OR HEADRACE_THREAD_SANITIZER)
  set(HEADRACE_PLAIN_OPTIONS -O0)
else()
  set(HEADRACE_PLAIN_OPTIONS $<$<CONFIG:Release>:-O1>)
endif()
# A test's own code need not be fast; -O0 halves the time to compile it, with clang to a third.
set(HEADRACE_TEST_OPTIONS -O0)
# Folders with long tests: ASan's build compiles them at -O1 and all others at -O0.
set(HEADRACE_BUSY src/core/waiting src/core src/place/advice src/tier src/tier/process src/move
  src/cache/structures src/cache/accounts src/cache/plans src/cache src/cache/shards
  src/measure/instruments)

# headrace_folder(headrace src/core): adds src/core/*.cpp to the library `headrace`, its *_test.cpp
# and *_test.c to the test program core_test and its *_bench.cpp to core_bench. Not recursive: a
# subfolder is a folder of its own.
function(headrace_folder library folder)
  string(REGEX REPLACE "^(src|tests/support)/" "" name ${folder})
  string(REPLACE "/" "_" name ${name})
  set(dir ${PROJECT_SOURCE_DIR}/${folder})
  file(GLOB all CONFIGURE_DEPENDS ${dir}/*.cpp)
  set(sources ${all})
  list(FILTER sources EXCLUDE REGEX "_(test|bench|fuzz)\\.cpp$")
  set(tests ${all})
  list(FILTER tests INCLUDE REGEX "_test\\.cpp$")
  file(GLOB c_tests CONFIGURE_DEPENDS ${dir}/*_test.c)
  set(benches ${all})
  list(FILTER benches INCLUDE REGEX "_bench\\.cpp$")
  if(sources)
    set(objects headrace_${name}_objects)
    add_library(${objects} OBJECT ${sources})
    target_include_directories(${objects} PRIVATE
      ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR})
    target_compile_definitions(${objects} PRIVATE HEADRACE_VERSION="${PROJECT_VERSION}")
    target_link_libraries(${objects} PRIVATE headrace_warnings ${HEADRACE_DEPENDENCIES})
    target_sources(${library} PRIVATE $<TARGET_OBJECTS:${objects}>)
    if(folder IN_LIST HEADRACE_PLAIN OR
        HEADRACE_ADDRESS_SANITIZER AND NOT folder IN_LIST HEADRACE_BUSY)
      target_compile_options(${objects} PRIVATE ${HEADRACE_PLAIN_OPTIONS})
      headrace_precompile(${objects} plain)
    else()
      headrace_precompile(${objects} library)
    endif()
    # Each of these is compiled for several CPUs, and optimised in every release: -O1 leaves loops.
    set(kernels ${sources})
    list(FILTER kernels INCLUDE REGEX "/kernels_")
    set_source_files_properties(${kernels} PROPERTIES
      SKIP_UNITY_BUILD_INCLUSION ON SKIP_PRECOMPILE_HEADERS ON
      COMPILE_OPTIONS "$<$<CONFIG:Release>:-O3>")
    if(CMAKE_SYSTEM_PROCESSOR STREQUAL "x86_64")
      list(FILTER kernels INCLUDE REGEX "_avx2\\.cpp$")  # used only if the CPU has it
      set_property(SOURCE ${kernels} APPEND PROPERTY COMPILE_OPTIONS -mavx2)
    endif()
  endif()
  if(tests AND HEADRACE_TESTS AND NOT folder IN_LIST HEADRACE_UNTESTED)
    headrace_test(${name}_test ${tests} ${c_tests})
  endif()
  if(benches AND HEADRACE_BENCHES)
    add_executable(${name}_bench ${benches})
    target_include_directories(${name}_bench PRIVATE ${PROJECT_SOURCE_DIR}/src
      ${PROJECT_SOURCE_DIR}/tests)
    target_link_libraries(${name}_bench PRIVATE headrace_test_support
      $<TARGET_NAME_IF_EXISTS:headrace_model> headrace headrace_warnings
      ${HEADRACE_DEPENDENCIES} benchmark::benchmark_main)
    if(HEADRACE_TESTS)  # that it runs, not what it says
      add_test(NAME ${name}_bench COMMAND ${name}_bench --benchmark_min_time=0.001)
      headrace_label(${name}_bench ${name}_bench benchmarks)
    endif()
  endif()
endfunction()
