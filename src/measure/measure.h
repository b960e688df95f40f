// SPDX-License-Identifier: Apache-2.0
// Internal facade beside headrace/measure.h: threads that are pinned and start together.
#pragma once

#include "measure/instruments/worker_pool.h"
