# headrace-bench-kv: a key-value store as its clients see it (workload/kv). A program of its own:
# hiredis is linked by it alone, and left out where it is not there.

set(kv_bench_dir ${PROJECT_SOURCE_DIR}/workload/kv)
file(GLOB kv_bench_sources CONFIGURE_DEPENDS ${kv_bench_dir}/*.cpp)
set(kv_bench_tests ${kv_bench_sources})
list(FILTER kv_bench_tests INCLUDE REGEX "_test\\.cpp$")
list(REMOVE_ITEM kv_bench_sources ${kv_bench_tests} ${kv_bench_dir}/main.cpp)

add_library(headrace_kv_bench_objects OBJECT EXCLUDE_FROM_ALL ${kv_bench_sources})
target_include_directories(headrace_kv_bench_objects PRIVATE
  ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR})
target_link_libraries(headrace_kv_bench_objects PRIVATE headrace_warnings ${HEADRACE_DEPENDENCIES})

add_executable(headrace-bench-kv
  ${kv_bench_dir}/main.cpp $<TARGET_OBJECTS:headrace_kv_bench_objects>)
target_include_directories(headrace-bench-kv PRIVATE
  ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR})
target_link_libraries(headrace-bench-kv PRIVATE
  ${emulator_library} headrace_warnings ${HEADRACE_DEPENDENCIES})

if(HEADRACE_TESTS)
  headrace_test(workload_kv_test ${kv_bench_tests} $<TARGET_OBJECTS:headrace_kv_bench_objects>)
  target_compile_definitions(workload_kv_test PRIVATE
    HEADRACE_BENCH_KV="$<TARGET_FILE:headrace-bench-kv>")
  add_dependencies(workload_kv_test headrace-bench-kv)
endif()
