# SPDX-License-Identifier: Apache-2.0
# headrace-bench-kv: a key-value store as its clients see it (workload/kv). A program of its own:
# hiredis is linked by it alone, and left out where it is not there.

set(kv_bench_dir ${PROJECT_SOURCE_DIR}/workload/kv)
file(GLOB kv_bench_sources CONFIGURE_DEPENDS ${kv_bench_dir}/ycsb/*.cpp ${kv_bench_dir}/model/*.cpp
  ${kv_bench_dir}/live/*.cpp ${kv_bench_dir}/store/*.cpp ${kv_bench_dir}/*.cpp)
set(kv_bench_tests ${kv_bench_sources})
list(FILTER kv_bench_tests INCLUDE REGEX "_test\\.cpp$")
list(REMOVE_ITEM kv_bench_sources ${kv_bench_tests} ${kv_bench_dir}/main.cpp)

set(kv_bench_libraries "")
set(kv_bench_definitions "")
find_library(hiredis_library hiredis)
find_path(hiredis_headers hiredis/hiredis.h)
if(hiredis_library AND hiredis_headers)
  set(kv_bench_libraries ${hiredis_library})
  set(kv_bench_definitions HEADRACE_WITH_HIREDIS)
else()
  message(STATUS "headrace-bench-kv without hiredis asks memcached alone (Debian: libhiredis-dev)")
endif()

add_library(headrace_kv_bench_objects OBJECT EXCLUDE_FROM_ALL ${kv_bench_sources})
target_include_directories(headrace_kv_bench_objects PRIVATE
  ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR})
target_compile_definitions(headrace_kv_bench_objects PRIVATE ${kv_bench_definitions})
target_link_libraries(headrace_kv_bench_objects PRIVATE headrace_warnings ${HEADRACE_DEPENDENCIES})
headrace_precompile(headrace_kv_bench_objects library)

add_executable(headrace-bench-kv
  ${kv_bench_dir}/main.cpp $<TARGET_OBJECTS:headrace_kv_bench_objects>)
target_include_directories(headrace-bench-kv PRIVATE
  ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR})
target_link_libraries(headrace-bench-kv PRIVATE
  ${program_library} ${kv_bench_libraries} headrace_warnings ${HEADRACE_DEPENDENCIES})

if(HEADRACE_TESTS)
  headrace_test(workload_kv_test ${kv_bench_tests} $<TARGET_OBJECTS:headrace_kv_bench_objects>)
  target_link_libraries(workload_kv_test PRIVATE ${kv_bench_libraries})
  target_compile_definitions(workload_kv_test PRIVATE ${kv_bench_definitions}
    HEADRACE_BENCH_KV="$<TARGET_FILE:headrace-bench-kv>")
  add_dependencies(workload_kv_test headrace-bench-kv)
endif()
