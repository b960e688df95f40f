// What other folders see of this one beside headrace/measure.h: threads that are pinned and start
// together.
#pragma once

#include "measure/team.h"
