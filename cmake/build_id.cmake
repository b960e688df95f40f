# SPDX-License-Identifier: Apache-2.0
# HEADRACE_BUILD_ID: a source with build_id(), a hash of the headers of the library and of the
# extensions. Objects of headrace._core are passed to headrace_bench._core, so both must agree.

set(hashes "")
file(GLOB_RECURSE headers RELATIVE ${PROJECT_SOURCE_DIR} CONFIGURE_DEPENDS
  include/*.h src/*.h python/src/*.h)
foreach(header ${headers})
  file(SHA256 ${PROJECT_SOURCE_DIR}/${header} hash)
  string(APPEND hashes "${header} ${hash}\n")
endforeach()
string(SHA256 hash "${CMAKE_CXX_COMPILER_ID} ${PROJECT_VERSION}\n${hashes}")
string(SUBSTRING ${hash} 0 16 hash)
set(HEADRACE_BUILD_ID ${PROJECT_BINARY_DIR}/build_id.cpp)
file(CONFIGURE OUTPUT ${HEADRACE_BUILD_ID} @ONLY CONTENT
"#include \"calls.h\"
const char* headrace::python::build_id() { return \"@hash@\"; }
")
