// SPDX-License-Identifier: Apache-2.0
// What a core does between two looks at completion records.
#pragma once

namespace headrace::dsa {

// About a microsecond: lightly asleep (TPAUSE) where the CPU can, so that the other thread of the
// core and the power budget have the gain; else the processor is given to whoever wants it.
void idle_briefly();

}  // namespace headrace::dsa
