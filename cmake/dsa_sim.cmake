# headrace-dsa-sim: the software DSA device as files, by FUSE (src/backend/dsa_sim). A program of
# its own: the library has none of it and never links libfuse.

file(GLOB sim_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/backend/dsa_sim/*.cpp)
set(sim_tests ${sim_sources})
list(FILTER sim_tests INCLUDE REGEX "_test\\.cpp$")
set(sim_program ${sim_sources})
list(FILTER sim_program INCLUDE REGEX "/(main|serve)\\.cpp$")
list(REMOVE_ITEM sim_sources ${sim_tests} ${sim_program})

function(headrace_sim_target name)
  target_include_directories(${name} PRIVATE
    ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src)
  target_link_libraries(${name} PRIVATE headrace_warnings ${HEADRACE_DEPENDENCIES})
endfunction()

add_library(headrace_backend_dsa_sim OBJECT EXCLUDE_FROM_ALL ${sim_sources})
headrace_sim_target(headrace_backend_dsa_sim)

# What it uses of the library is hidden in a shared one: then its objects as an archive.
set(sim_library headrace)
if(BUILD_SHARED_LIBS)
  get_target_property(objects headrace SOURCES)
  add_library(headrace_objects STATIC EXCLUDE_FROM_ALL ${objects})
  set(sim_library headrace_objects)
endif()

# A wheel carries the Python extension only.
pkg_check_modules(fuse3 IMPORTED_TARGET fuse3>=3.12)
if(fuse3_FOUND AND NOT HEADRACE_PYTHON)
  add_executable(headrace-dsa-sim ${sim_program} $<TARGET_OBJECTS:headrace_backend_dsa_sim>)
  headrace_sim_target(headrace-dsa-sim)
  target_link_libraries(headrace-dsa-sim PRIVATE ${sim_library} PkgConfig::fuse3)
elseif(NOT HEADRACE_PYTHON)
  message(STATUS "No fuse3 (Debian: libfuse3-dev), so no headrace-dsa-sim")
endif()

if(HEADRACE_TESTS)
  headrace_test(backend_dsa_sim_test ${sim_tests} $<TARGET_OBJECTS:headrace_backend_dsa_sim>)
  if(TARGET headrace-dsa-sim)
    add_dependencies(backend_dsa_sim_test headrace-dsa-sim)
    target_compile_definitions(backend_dsa_sim_test PRIVATE
      HEADRACE_DSA_SIM="$<TARGET_FILE:headrace-dsa-sim>")
  endif()
endif()
