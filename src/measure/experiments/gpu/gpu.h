// SPDX-License-Identifier: Apache-2.0
// The experiment `gpu`.
#pragma once

#include "measure/session/experiment.h"

namespace headrace::experiment_gpu {
extern const session::Experiment kExperiment;
}
