# Warnings and the per-folder rules of the build.

add_library(headrace_warnings INTERFACE)
target_compile_options(headrace_warnings INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Werror
  $<$<CXX_COMPILER_ID:Clang>:-Wthread-safety -Werror=thread-safety>
  # Statement-free TRY macros and designated initialisers with defaults are meant.
  -Wno-missing-field-initializers
  # GCC 12 sees ghosts in std::optional and std::expected.
  $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>
  # In a unity build a source file's anonymous namespace looks like a header's.
  $<$<AND:$<COMPILE_LANG_AND_ID:CXX,GNU>,$<BOOL:${CMAKE_UNITY_BUILD}>>:-Wno-subobject-linkage>)

# headrace_folder(core): adds src/core/*.cpp to the library, its *_test.cpp and *_test.c to the test
# program core_test and its *_bench.cpp to core_bench. Not recursive: a subfolder is a folder of its
# own.
function(headrace_folder folder)
  string(REPLACE "/" "_" name ${folder})
  set(dir ${PROJECT_SOURCE_DIR}/src/${folder})
  file(GLOB all CONFIGURE_DEPENDS ${dir}/*.cpp)
  set(sources ${all})
  list(FILTER sources EXCLUDE REGEX "_(test|bench|fuzz)\\.cpp$")
  set(tests ${all})
  list(FILTER tests INCLUDE REGEX "_test\\.cpp$")
  file(GLOB c_tests CONFIGURE_DEPENDS ${dir}/*_test.c)
  set(benches ${all})
  list(FILTER benches INCLUDE REGEX "_bench\\.cpp$")
  if(sources)
    add_library(headrace_${name} OBJECT ${sources})
    target_include_directories(headrace_${name} PRIVATE
      ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src)
    target_compile_definitions(headrace_${name} PRIVATE HEADRACE_VERSION="${PROJECT_VERSION}"
      HEADRACE_SOURCE_MACHINES="${PROJECT_SOURCE_DIR}/machines")
    target_link_libraries(headrace_${name} PRIVATE headrace_warnings ${HEADRACE_DEPENDENCIES})
    target_sources(headrace PRIVATE $<TARGET_OBJECTS:headrace_${name}>)
    # Each of these is compiled for a CPU of its own.
    set(kernels ${sources})
    list(FILTER kernels INCLUDE REGEX "/kernels_")
    set_source_files_properties(${kernels} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  endif()
  if(tests AND HEADRACE_TESTS)
    headrace_test(${name}_test ${tests} ${c_tests})
  endif()
  if(benches AND HEADRACE_BENCHES)
    add_executable(${name}_bench ${benches})
    target_include_directories(${name}_bench PRIVATE ${PROJECT_SOURCE_DIR}/src)
    target_link_libraries(${name}_bench PRIVATE headrace headrace_warnings ${HEADRACE_DEPENDENCIES}
      benchmark::benchmark_main)
    if(HEADRACE_TESTS)  # that it runs, not what it says
      add_test(NAME ${name}_bench COMMAND ${name}_bench --benchmark_min_time=0.001)
    endif()
  endif()
endfunction()

# headrace_test_program(name sources...): a GoogleTest program that ctest does not run.
function(headrace_test_program name)
  add_executable(${name} ${ARGN})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/tests
    ${PROJECT_SOURCE_DIR})
  # A test's own code need not be fast; this halves the time to compile it.
  target_compile_options(${name} PRIVATE $<$<CONFIG:Release>:-O1>)
  target_compile_definitions(${name} PRIVATE HEADRACE_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  target_link_libraries(${name} PRIVATE headrace headrace_warnings ${HEADRACE_DEPENDENCIES}
    GTest::gtest_main rapidcheck)
endfunction()

# headrace_test(name sources...): a GoogleTest program, run by ctest.
function(headrace_test name)
  headrace_test_program(${name} ${ARGN})
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES TIMEOUT 600)
endfunction()
