// A DSA device made of software: it executes descriptors as the specification says, so that what
// drives a device is tested on machines that have none.
//
// Not fast, and only with DeviceRates a model of time. What it knows of the specification is cited
// where it is decided; what the specification leaves open is decided for the worse, so that who
// relies on it is caught: undefined fields hold garbage, order is random.
#pragma once

#include "backend/dsa_device/address_space.h"     // IWYU pragma: export
#include "backend/dsa_device/device.h"            // IWYU pragma: export
#include "backend/dsa_device/device_portal.h"     // IWYU pragma: export
#include "backend/dsa_device/device_setup.h"      // IWYU pragma: export
#include "backend/dsa_device/emulated_backend.h"  // IWYU pragma: export
#include "backend/dsa_device/emulation.h"         // IWYU pragma: export
#include "backend/dsa_device/process_memory.h"    // IWYU pragma: export
