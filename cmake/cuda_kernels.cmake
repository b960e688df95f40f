# SPDX-License-Identifier: Apache-2.0
# The PTX of the kernels (tools/make_ptx.sh) as a string: the objects headrace_cuda_kernels.

set(kernels_ptx ${PROJECT_SOURCE_DIR}/src/backend/cuda/kernels.ptx)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${kernels_ptx})
file(READ ${kernels_ptx} HEADRACE_KERNELS_PTX)
configure_file(${PROJECT_SOURCE_DIR}/src/backend/cuda/kernels_ptx.cpp.in
  ${PROJECT_BINARY_DIR}/kernels_ptx.cpp @ONLY)
add_library(headrace_cuda_kernels OBJECT ${PROJECT_BINARY_DIR}/kernels_ptx.cpp)
target_include_directories(headrace_cuda_kernels PRIVATE ${PROJECT_SOURCE_DIR}/src
  ${PROJECT_SOURCE_DIR}/include)
