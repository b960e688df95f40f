// SPDX-License-Identifier: Apache-2.0
// The experiment `dsa` on a model of a machine's DSA devices, for `headrace model dsa`.
// Thread-compatible.
#pragma once

#include <vector>

#include "headrace/measure.h"

namespace headrace::dsa_rates {

// Points of the experiment `dsa` (of each selection in turn; none: all) on a model of the devices
// of `machine` (docs/design/dsa-rates.md). The rows are `modelled`, and the same in every run.
// Copies by cores, which the model does not have, are measured on this host, `rounds` times; these
// rows are `measured`. Errors: invalid: no such point, or no rounds; unsupported: `machine` has no
// dsa engine.
Result<std::vector<Row>> model_dsa(const Machine& machine,
                                   const std::vector<ParameterChoices>& selections = {},
                                   unsigned rounds = 3, const ExperimentContext& context = {});

}  // namespace headrace::dsa_rates
