// SPDX-License-Identifier: Apache-2.0
// What other folders see of this one besides headrace/measure.h: threads that are pinned and start
// together.
#pragma once

#include "measure/instruments/worker_pool.h"
