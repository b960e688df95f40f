// SPDX-License-Identifier: Apache-2.0
// The same copies by a Mover, as programs have them, beside those of the driver alone.
#pragma once

#include <cstddef>
#include <span>

#include "headrace/backend.h"
#include "measure/experiments/gpu/setting.h"

namespace headrace::experiment_gpu {

// Copies of `bytes` each, one after the other, small ones as moves of many; the value is payload
// per second. Random bytes of all of them have gone there and come back before.
Prepared prepare_backend(const GpuSetting& setting, Random& random);

// Fills `host` with random bytes, has them copied `there` and `back`, at most `depth` at once, and
// compares: so both sides have them then. io: they are others. timed_out: the GPU takes too long.
// Requires: pieces between `host` and something as large, with tags from 0 on.
Status verify_both_ways(Backend& backend, std::span<const Piece> there, std::span<const Piece> back,
                        std::size_t depth, std::span<std::byte> host, Random& random);

}  // namespace headrace::experiment_gpu
