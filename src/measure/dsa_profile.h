// The experiment `dsa` of a profile: the points of the DSA experiments (dsa_points.h) that devices
// are measured by, on the devices of a host. Thread-compatible.
#pragma once

#include <memory>
#include <vector>

#include "measure/dsa_host.h"
#include "measure/experiment.h"

namespace headrace {

// As dsa_points(), which finds `host` itself.
std::vector<Point> dsa_points_on(std::shared_ptr<const DsaHost> host);

}  // namespace headrace
