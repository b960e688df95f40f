// SPDX-License-Identifier: Apache-2.0
// The DSA emulator: a device in software. It executes descriptors as the specification says, so
// that what drives a device is tested on machines that have none.
//
// Not fast, and only with DeviceRates a model of time. What it knows of the specification is cited
// where it is decided; what the specification leaves open is decided for the worse, so that who
// relies on it is caught: undefined fields hold garbage, order is random.
#pragma once

#include "tests/support/dsa/device/backend.h"         // IWYU pragma: export
#include "tests/support/dsa/device/device.h"          // IWYU pragma: export
#include "tests/support/dsa/device/device_set.h"      // IWYU pragma: export
#include "tests/support/dsa/device/portal.h"          // IWYU pragma: export
#include "tests/support/dsa/execute/device_setup.h"   // IWYU pragma: export
#include "tests/support/dsa/memory/address_space.h"   // IWYU pragma: export
#include "tests/support/dsa/memory/process_memory.h"  // IWYU pragma: export
