# SPDX-License-Identifier: Apache-2.0
# headrace-bench-cache: the cache beside others (workload/cache). A program of its own: oneTBB's
# containers and RocksDB are linked by it alone, and left out where they are not there.

set(cache_bench_dir ${PROJECT_SOURCE_DIR}/workload/cache)
file(GLOB cache_bench_sources CONFIGURE_DEPENDS
  ${cache_bench_dir}/stores/*.cpp ${cache_bench_dir}/*.cpp)
set(cache_bench_tests ${cache_bench_sources})
list(FILTER cache_bench_tests INCLUDE REGEX "_test\\.cpp$")
list(REMOVE_ITEM cache_bench_sources ${cache_bench_tests} ${cache_bench_dir}/main.cpp)

set(cache_bench_peers "")
set(cache_bench_definitions "")
# Beside tbbmalloc, which the library needs, and from the same package.
find_library(tbb_library tbb)
if(tbb_library)
  list(APPEND cache_bench_peers ${tbb_library})
  list(APPEND cache_bench_definitions HEADRACE_WITH_TBB)
endif()
find_library(rocksdb_library rocksdb)
find_path(rocksdb_headers rocksdb/cache.h)
if(rocksdb_library AND rocksdb_headers)
  list(APPEND cache_bench_peers ${rocksdb_library})
  list(APPEND cache_bench_definitions HEADRACE_WITH_ROCKSDB)
else()
  message(STATUS "headrace-bench-cache without RocksDB's cache (Debian: librocksdb-dev)")
endif()

add_library(headrace_cache_bench_objects OBJECT EXCLUDE_FROM_ALL ${cache_bench_sources})
target_include_directories(headrace_cache_bench_objects PRIVATE
  ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR})
target_compile_definitions(headrace_cache_bench_objects PUBLIC ${cache_bench_definitions})
target_link_libraries(headrace_cache_bench_objects
  PUBLIC ${cache_bench_peers} PRIVATE headrace_warnings ${HEADRACE_DEPENDENCIES})
headrace_precompile(headrace_cache_bench_objects library)

add_executable(headrace-bench-cache
  ${cache_bench_dir}/main.cpp $<TARGET_OBJECTS:headrace_cache_bench_objects>)
target_include_directories(headrace-bench-cache PRIVATE
  ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR})
target_link_libraries(headrace-bench-cache PRIVATE
  ${program_library} ${cache_bench_peers} headrace_warnings ${HEADRACE_DEPENDENCIES})

if(HEADRACE_TESTS)
  headrace_test(workload_cache_test
    ${cache_bench_tests} $<TARGET_OBJECTS:headrace_cache_bench_objects>)
  target_compile_definitions(workload_cache_test PRIVATE ${cache_bench_definitions}
    HEADRACE_BENCH_CACHE="$<TARGET_FILE:headrace-bench-cache>")
  target_link_libraries(workload_cache_test PRIVATE ${cache_bench_peers})
  add_dependencies(workload_cache_test headrace-bench-cache)
endif()
