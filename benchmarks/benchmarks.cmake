# SPDX-License-Identifier: Apache-2.0
# Benchmarks (HEADRACE_BENCHMARKS): nothing of them is in the library or in its wheel.
#
# headrace_benchmarks: the measured loops of the extension headrace_bench._core.
# headrace-bench-cache: the cache beside others. oneTBB's containers and RocksDB are linked by this
#   program alone, and left out if they are not installed.
# headrace-bench-kv: a key-value server as its clients see it. hiredis is linked by this program
#   alone; without it only memcached and our own server are asked.
# headrace-bench-gpu: the Mover and the KV store beside a GPU's driver alone.

add_library(headrace_benchmarks STATIC EXCLUDE_FROM_ALL)
target_link_libraries(headrace_benchmarks PUBLIC headrace_sim headrace_model ${program_library}
  PRIVATE ${HEADRACE_DEPENDENCIES})
foreach(folder query/input query query/simulated kvcache histogram layer unified_memory)
  headrace_folder(headrace_benchmarks benchmarks/${folder})
endforeach()

# headrace_benchmark_objects(name SOURCES source... (LIBRARIES library...)
# (DEFINITIONS definition...))
function(headrace_benchmark_objects name)
  cmake_parse_arguments(PARSE_ARGV 1 with "" "" "SOURCES;LIBRARIES;DEFINITIONS")
  add_library(${name} OBJECT EXCLUDE_FROM_ALL ${with_SOURCES})
  target_include_directories(${name} PRIVATE
    ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR})
  target_link_libraries(${name} PRIVATE
    ${with_LIBRARIES} headrace_warnings ${HEADRACE_DEPENDENCIES})
  target_compile_definitions(${name} PRIVATE ${with_DEFINITIONS})
  headrace_precompile(${name} library)
endfunction()

# headrace_benchmark(name (FOLDERS folder...) (LIBRARIES library...) (DEFINITIONS definition...)):
# the program headrace-bench-NAME, and the test program of its folders. The first folder has
# main.cpp.
function(headrace_benchmark name)
  cmake_parse_arguments(PARSE_ARGV 1 with "" "" "FOLDERS;LIBRARIES;DEFINITIONS")
  set(program headrace-bench-${name})
  set(objects headrace_benchmark_${name}_objects)
  list(GET with_FOLDERS 0 folder)
  set(dir ${PROJECT_SOURCE_DIR}/benchmarks)
  list(TRANSFORM with_FOLDERS REPLACE "(.+)" "${dir}/\\1/*.cpp")
  file(GLOB sources CONFIGURE_DEPENDS ${with_FOLDERS})
  set(tests ${sources})
  list(FILTER tests INCLUDE REGEX "_test\\.cpp$")
  list(REMOVE_ITEM sources ${tests} ${dir}/${folder}/main.cpp)
  headrace_benchmark_objects(${program}-main SOURCES ${dir}/${folder}/main.cpp
    LIBRARIES ${with_LIBRARIES})
  add_executable(${program} $<TARGET_OBJECTS:${program}-main>)
  target_link_libraries(${program} PRIVATE
    ${program_library} ${with_LIBRARIES} ${HEADRACE_DEPENDENCIES})
  if(sources)
    headrace_benchmark_objects(${objects} SOURCES ${sources}
      LIBRARIES ${with_LIBRARIES} DEFINITIONS ${with_DEFINITIONS})
    target_sources(${program} PRIVATE $<TARGET_OBJECTS:${objects}>)
    list(APPEND tests $<TARGET_OBJECTS:${objects}>)
  endif()
  if(HEADRACE_TESTS)
    string(TOUPPER HEADRACE_BENCH_${name} variable)
    headrace_test(benchmarks_${folder}_test ${tests})
    target_compile_definitions(benchmarks_${folder}_test PRIVATE ${with_DEFINITIONS}
      ${variable}="$<TARGET_FILE:${program}>")
    target_link_libraries(benchmarks_${folder}_test PRIVATE ${with_LIBRARIES})
    add_dependencies(benchmarks_${folder}_test ${program})
  endif()
endfunction()

set(libraries "")
set(definitions "")
# Beside tbbmalloc, which the library needs, and from the same package.
find_library(tbb_library tbb)
if(tbb_library)
  list(APPEND libraries ${tbb_library})
  list(APPEND definitions HEADRACE_WITH_TBB)
endif()
find_library(rocksdb_library rocksdb)
find_path(rocksdb_headers rocksdb/cache.h)
if(rocksdb_library AND rocksdb_headers)
  list(APPEND libraries ${rocksdb_library})
  list(APPEND definitions HEADRACE_WITH_ROCKSDB)
else()
  message(STATUS "headrace-bench-cache without RocksDB's cache (Debian: librocksdb-dev)")
endif()
headrace_benchmark(cache FOLDERS cache cache/stores
  LIBRARIES ${libraries} DEFINITIONS ${definitions})

find_library(hiredis_library hiredis)
find_path(hiredis_headers hiredis/hiredis.h)
set(kv_folders keyvalue keyvalue/ycsb keyvalue/live keyvalue/store)
if(hiredis_library AND hiredis_headers)
  headrace_benchmark(kv FOLDERS ${kv_folders}
    LIBRARIES ${hiredis_library} DEFINITIONS HEADRACE_WITH_HIREDIS)
else()
  message(STATUS "headrace-bench-kv without hiredis asks memcached alone (Debian: libhiredis-dev)")
  headrace_benchmark(kv FOLDERS ${kv_folders})
endif()

headrace_benchmark(gpu FOLDERS gpu)
