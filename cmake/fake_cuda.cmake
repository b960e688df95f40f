# SPDX-License-Identifier: Apache-2.0
# libheadrace-fake-cuda*.so: a software libcuda.so.1 for tests (tests/support/fake_cuda/README.md).
# One library per driver version that matters: what an older driver lacks is not in it. They use
# nothing of libheadrace but headers.

set(fake_cuda_dir ${PROJECT_SOURCE_DIR}/tests/support/fake_cuda)
file(GLOB fake_cuda_sources CONFIGURE_DEPENDS ${fake_cuda_dir}/*.cpp)
set(fake_cuda_tests ${fake_cuda_sources})
list(FILTER fake_cuda_tests INCLUDE REGEX "_test\\.cpp$")
list(REMOVE_ITEM fake_cuda_sources ${fake_cuda_tests} ${fake_cuda_dir}/versioned.cpp)

# headrace_fake_cuda_objects(name sources...): the dependencies are the precompiled headers'.
function(headrace_fake_cuda_objects name)
  add_library(${name} OBJECT EXCLUDE_FROM_ALL ${ARGN})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/include
    ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/tests)
  target_link_libraries(${name} PRIVATE headrace_warnings ${HEADRACE_DEPENDENCIES})
  headrace_precompile(${name} library)
endfunction()
headrace_fake_cuda_objects(headrace_fake_cuda_objects ${fake_cuda_sources})

# headrace_fake_cuda(suffix version)
function(headrace_fake_cuda suffix version)
  set(name headrace-fake-cuda${suffix})
  headrace_fake_cuda_objects(${name}-objects ${fake_cuda_dir}/versioned.cpp)
  target_compile_definitions(${name}-objects PRIVATE HEADRACE_FAKE_DRIVER=${version})
  add_library(${name} SHARED $<TARGET_OBJECTS:${name}-objects>
    $<TARGET_OBJECTS:headrace_fake_cuda_objects>)
  # Nothing but the driver's functions is seen, and its threads outlive a dlclose().
  target_link_options(${name} PRIVATE -Wl,-z,nodelete
    -Wl,--version-script=${fake_cuda_dir}/exports.map)
  set_target_properties(${name} PROPERTIES LINK_DEPENDS ${fake_cuda_dir}/exports.map)
endfunction()
headrace_fake_cuda("" 13000)
headrace_fake_cuda("-12.8" 12080)
headrace_fake_cuda("-12.2" 12020)
headrace_fake_cuda("-11.0" 11000)  # the oldest that is used

# headrace_with_fake_cuda(program): a test program that opens them by
# tests/support/fake_cuda/fake_library.h.
function(headrace_with_fake_cuda program)
  add_dependencies(${program} headrace-fake-cuda headrace-fake-cuda-12.8 headrace-fake-cuda-12.2
    headrace-fake-cuda-11.0)
  target_compile_definitions(${program} PRIVATE
    HEADRACE_FAKE_CUDA_STEM="${PROJECT_BINARY_DIR}/libheadrace-fake-cuda")
endfunction()

if(HEADRACE_TESTS)
  headrace_test(fake_cuda_test ${fake_cuda_tests})
  headrace_with_fake_cuda(fake_cuda_test)
  foreach(program backend_cuda_test backend_cuda_engines_test cache_shards_test kvcache_test
      kvcache_client_test
      kvcache_state_test memory_device_test move_test topology_discovery_test)
    headrace_with_fake_cuda(${program})
  endforeach()
  add_dependencies(optimised headrace-fake-cuda)  # which Python's tests open
endif()
