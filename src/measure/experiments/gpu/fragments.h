// SPDX-License-Identifier: Apache-2.0
// Fragments in runs, as in a KV cache: adjacent on both sides, with a gap before the next run.
// Programs submit one copy per fragment. Headrace gets the same fragments and may merge adjacent
// ones.
#pragma once

#include "measure/experiments/gpu/setting.h"

namespace headrace::experiment_gpu {

// Runs of `count` fragments of `bytes` each, between pinned memory of a node and the GPU. `engine`:
// one call per fragment in one stream; `headrace`: one move of a Mover. The value is payload per
// second from the first submission to the arrival of the last fragment, by the thread's clock.
// Before, random bytes made the same way there and back; the gaps were checked to be untouched.
Prepared prepare_fragments(const GpuSetting& setting, Random& random);

}  // namespace headrace::experiment_gpu
