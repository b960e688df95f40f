# SPDX-License-Identifier: Apache-2.0
# What an install tree holds: the libraries, the public headers, find_package(headrace), pkg-config,
# and, if it was built, headrace-dsa-sim.

include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

file(GLOB_RECURSE public_headers CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/include/headrace/*.h)
target_sources(headrace PUBLIC FILE_SET HEADERS
  BASE_DIRS ${PROJECT_SOURCE_DIR}/include FILES ${public_headers})
# `ninja headrace_verify_interface_header_sets` compiles each public header alone as C++23,
# `ninja headrace_headers_cxx20` as C++20.
set_target_properties(headrace PROPERTIES VERIFY_INTERFACE_HEADER_SETS ON)
set(includes "")
foreach(header ${public_headers})
  file(RELATIVE_PATH name ${PROJECT_SOURCE_DIR}/include ${header})
  file(GENERATE OUTPUT ${PROJECT_BINARY_DIR}/headers/${name}.cpp CONTENT "#include \"${name}\"\n")
  list(APPEND includes ${PROJECT_BINARY_DIR}/headers/${name}.cpp)
endforeach()
add_library(headrace_headers_cxx20 OBJECT EXCLUDE_FROM_ALL ${includes})
set_target_properties(headrace_headers_cxx20 PROPERTIES CXX_STANDARD 20 UNITY_BUILD OFF)
target_compile_options(headrace_headers_cxx20 PRIVATE -O0)
target_include_directories(headrace_headers_cxx20 PRIVATE ${PROJECT_SOURCE_DIR}/include)
target_link_libraries(headrace_headers_cxx20 PRIVATE headrace_warnings)

if(BUILD_SHARED_LIBS)
  set(exports ${PROJECT_SOURCE_DIR}/cmake/exports.map)
  target_link_options(headrace PRIVATE LINKER:--version-script=${exports})
  set_property(TARGET headrace APPEND PROPERTY LINK_DEPENDS ${exports})
endif()

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/headrace)
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/headraceConfig.cmake.in
  ${PROJECT_BINARY_DIR}/headraceConfig.cmake INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/headraceConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)

# Relative to where the file lies, so that the tree may be moved, unless the directories are not.
if(IS_ABSOLUTE "${CMAKE_INSTALL_LIBDIR}")
  set(pc_prefix "${CMAKE_INSTALL_PREFIX}")
else()
  file(RELATIVE_PATH pc_prefix "/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/")
  string(REGEX REPLACE "/$" "" pc_prefix "\${pcfiledir}/${pc_prefix}")
endif()
foreach(directory libdir includedir)
  string(TOUPPER ${directory} name)
  cmake_path(ABSOLUTE_PATH CMAKE_INSTALL_${name} BASE_DIRECTORY "\${prefix}"
    OUTPUT_VARIABLE pc_${directory})
endforeach()
configure_file(${PROJECT_SOURCE_DIR}/cmake/headrace.pc.in ${PROJECT_BINARY_DIR}/headrace.pc @ONLY)

if(HEADRACE_PYTHON)  # extensions are installed by python/ and benchmarks/python/
  if(HEADRACE_BENCHMARKS)
    add_custom_target(headrace_programs)
    foreach(program headrace-dsa-sim headrace-bench-cache headrace-bench-kv)
      if(TARGET ${program})
        add_dependencies(headrace_programs ${program})
        install(TARGETS ${program} DESTINATION ${SKBUILD_SCRIPTS_DIR} COMPONENT programs)
      endif()
    endforeach()
  endif()
  return()
endif()
install(TARGETS headrace EXPORT headrace FILE_SET HEADERS)
if(TARGET headrace-dsa-sim)
  # OPTIONAL: a build of the libraries alone installs without this program.
  install(TARGETS headrace-dsa-sim OPTIONAL)
endif()
install(EXPORT headrace NAMESPACE headrace:: DESTINATION ${package_dir} FILE headraceTargets.cmake)
install(FILES ${PROJECT_BINARY_DIR}/headrace.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
install(FILES ${PROJECT_BINARY_DIR}/headraceConfig.cmake
  ${PROJECT_BINARY_DIR}/headraceConfigVersion.cmake DESTINATION ${package_dir})
