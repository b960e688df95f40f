// SPDX-License-Identifier: Apache-2.0
// Fragments that lie in runs, as those of a KV cache do: neighbours on both sides, and a gap before
// the next run. A copy for each is what programs submit; Headrace is given the same fragments and
// may put neighbours together.
#pragma once

#include "measure/experiments/gpu/setting.h"

namespace headrace::experiment_gpu {

// Runs of `count` fragments of `bytes` each between pinned memory of a node and the GPU: by
// `engine` a call for each fragment in one stream, by `headrace` one move of a Mover. The value is
// payload per second, from the first submission until the last fragment is there, by the thread's
// clock. Random bytes of all have gone there and come back the same way before, and nothing of the
// gaps.
Prepared prepare_fragments(const GpuSetting& setting, Random& random);

}  // namespace headrace::experiment_gpu
