// SPDX-License-Identifier: Apache-2.0
// A device and the cores of its node at work at once: each is the other's background load.
// Thread-compatible.
#pragma once

#include "headrace/result.h"
#include "measure/experiments/dsa/host.h"

namespace headrace::experiment_dsa {

// As WithStream. absent: there is but one core; timed_out: one of them had no CPU.
Result<double> run_with_stream(const DsaHost& host, const DsaThread& thread, const DsaShape& shape,
                               bool of_stream);

}  // namespace headrace::experiment_dsa
