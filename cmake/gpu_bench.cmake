# SPDX-License-Identifier: Apache-2.0
# headrace-bench-gpu: the Mover and the KV store beside a GPU's driver alone (workload/gpu).

add_executable(headrace-bench-gpu ${PROJECT_SOURCE_DIR}/workload/gpu/main.cpp)
target_include_directories(headrace-bench-gpu PRIVATE
  ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR})
target_link_libraries(headrace-bench-gpu PRIVATE
  ${program_library} headrace_warnings ${HEADRACE_DEPENDENCIES})

if(HEADRACE_TESTS)
  headrace_test(workload_gpu_test ${PROJECT_SOURCE_DIR}/workload/gpu/main_test.cpp)
  target_compile_definitions(workload_gpu_test PRIVATE
    HEADRACE_BENCH_GPU="$<TARGET_FILE:headrace-bench-gpu>"
    HEADRACE_FAKE_CUDA_STEM="${PROJECT_BINARY_DIR}/libheadrace-fake-cuda")
  add_dependencies(workload_gpu_test headrace-bench-gpu headrace-fake-cuda)
endif()
