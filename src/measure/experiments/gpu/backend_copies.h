// SPDX-License-Identifier: Apache-2.0
// The same copies by a Mover, as programs have them, beside those of the driver alone.
#pragma once

#include <cstddef>
#include <span>

#include "headrace/backend.h"
#include "measure/experiments/gpu/setting.h"

namespace headrace::experiment_gpu {

// Copies of `bytes` each, one after the other, small ones as moves of many; the value is payload
// per second. Before, random bytes made the way there and back and were compared.
Prepared prepare_backend(const GpuSetting& setting, Random& random);

// Fills `host` with random bytes, copies them `there` and `back`, at most `depth` at once, and
// compares; then both sides hold them. Requires: pieces between `host` and memory of the same size,
// with tags from 0 on. Errors: io: other bytes came back; timed_out: the GPU takes too long.
Status verify_both_ways(Backend& backend, std::span<const Piece> there, std::span<const Piece> back,
                        std::size_t depth, std::span<std::byte> host, Random& random);

}  // namespace headrace::experiment_gpu
