# SPDX-License-Identifier: Apache-2.0
# headrace::workload: programs that show the gain (include/headrace/workload). A library of its own
# on top of headrace::headrace, so that who links the cache does not get TPC-H with it.

add_library(headrace_workload)
add_library(headrace::workload ALIAS headrace_workload)
set_target_properties(headrace_workload PROPERTIES EXPORT_NAME workload
  VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
target_link_libraries(headrace_workload PUBLIC headrace PRIVATE ${HEADRACE_DEPENDENCIES})
foreach(folder workload/query/input workload/query workload)
  headrace_folder(headrace_workload ${folder})
endforeach()
