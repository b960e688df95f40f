// SPDX-License-Identifier: Apache-2.0
// Facade of the folder: the experiment `dsa`, whose points run on any target, as the DSA devices of
// this host. Thread-compatible.
#pragma once

#include <memory>

#include "measure/experiments/dsa/submitter.h"
#include "measure/experiments/dsa/target.h"
#include "measure/session/experiment.h"

namespace headrace::experiment_dsa {

extern const session::Experiment kExperiment;

// The points of the experiment on a given target; kExperiment.points finds the devices of this host
// itself. scope.machine is this host, whose cores make the copies that are compared with devices.
// Requires: the target has an engine.
std::vector<session::Point> points_on(std::shared_ptr<const DsaTarget> target,
                                      const session::Scope& scope);

}  // namespace headrace::experiment_dsa
