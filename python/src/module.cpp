// SPDX-License-Identifier: Apache-2.0
#include "calls.h"
#include "core/text/files.h"
#include "handles.h"
#include "host.h"
#include "types.h"

// The C++ library, as Python sees it; headrace/__init__.py gives it its public face.
NB_MODULE(_core, m) {
  using namespace headrace::python;
#ifdef NDEBUG
  // At exit people's modules may still hold objects; that is no defect of theirs.
  nb::set_leak_warnings(false);
#endif
  m.doc() = "Headrace: brings data to the memory that will use it, before it is used.";
  m.attr("__version__") = nb::str(std::string(headrace::version()).c_str());
  m.attr("SCHEMA_VERSION") = nb::int_(headrace::kSchemaVersion);
  m.attr("LARGEST_DOCUMENT") = nb::int_(headrace::kLargestDocument.value);
  bind_errors(m);
  bind_interpreter(m);
  bind_machine(m);
  bind_memory(m);
  bind_user_source(m);
  bind_mover(m);
  bind_completions(m);
  bind_cache(m);
  bind_gpu_arrays(m);
  bind_kv(m);
  bind_measure(m);
  bind_profile(m);
  bind_advice(m);
  bind_host(m);
  bind_tier(m);
  bind_arenas(m);
  bind_process_tier(m);
  bind_safetensors(m);
  m.def("_build_id", &build_id);
  explain_refusals(m);
}
