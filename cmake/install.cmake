# What an install tree holds: the library, the public headers, find_package(headrace), and where it
# is built headrace-dsa-sim.

include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

file(GLOB public_headers CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/include/headrace/*.h)
target_sources(headrace PUBLIC FILE_SET HEADERS
  BASE_DIRS ${PROJECT_SOURCE_DIR}/include FILES ${public_headers})
# `ninja headrace_verify_interface_header_sets` compiles each public header alone.
set_target_properties(headrace PROPERTIES VERIFY_INTERFACE_HEADER_SETS ON)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/headrace)
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/headraceConfig.cmake.in
  ${PROJECT_BINARY_DIR}/headraceConfig.cmake INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/headraceConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)

# A wheel carries the Python extension only (python/CMakeLists.txt installs that).
if(NOT HEADRACE_PYTHON)
  install(TARGETS headrace EXPORT headrace FILE_SET HEADERS)
  if(TARGET headrace-dsa-sim)
    install(TARGETS headrace-dsa-sim)
  endif()
  install(EXPORT headrace NAMESPACE headrace:: DESTINATION ${package_dir}
    FILE headraceTargets.cmake)
  install(FILES ${PROJECT_BINARY_DIR}/headraceConfig.cmake
    ${PROJECT_BINARY_DIR}/headraceConfigVersion.cmake DESTINATION ${package_dir})
endif()
