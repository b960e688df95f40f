// SPDX-License-Identifier: Apache-2.0
// The experiments of this folder. Each file names the parameters of one and lists its points.
#pragma once

#include "measure/session/experiment.h"

namespace headrace::experiment_latency {
extern const session::Experiment kExperiment;
}
namespace headrace::experiment_bandwidth {
extern const session::Experiment kExperiment;
}
namespace headrace::experiment_loaded {
extern const session::Experiment kExperiment;
}
namespace headrace::experiment_stream {
extern const session::Experiment kExperiment;
}
namespace headrace::experiment_copy {
extern const session::Experiment kExperiment;
}
namespace headrace::experiment_storage {
extern const session::Experiment kExperiment;
}
namespace headrace::experiment_parallelism {
extern const session::Experiment kExperiment;
}
namespace headrace::experiment_core_to_core {
extern const session::Experiment kExperiment;
}
namespace headrace::experiment_split {
extern const session::Experiment kExperiment;
}
namespace headrace::experiment_interference {
extern const session::Experiment kExperiment;
}
