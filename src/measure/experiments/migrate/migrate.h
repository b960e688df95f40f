// SPDX-License-Identifier: Apache-2.0
// The experiment `migrate`: moving pages to another node.
#pragma once

#include "measure/session/experiment.h"

namespace headrace::experiment_migrate {
extern const session::Experiment kExperiment;
}  // namespace headrace::experiment_migrate
