// SPDX-License-Identifier: Apache-2.0
#include "tier/process/guard.h"

namespace headrace {

bool Guard::worse(Nanoseconds cpu, std::uint64_t major_faults, Nanoseconds of_fault) {
  if (!looked_) {
    looked_ = true;
    cpu_ = cpu;
    faults_ = major_faults;
  }
  const Nanoseconds span = cpu - cpu_;
  if (span < (before_ ? least_ : least_ / 4)) return false;
  now_ = static_cast<double>(major_faults - faults_) * seconds(of_fault) / seconds(span);
  if (!before_) {
    ran_ = true;
    return false;
  }
  cpu_ = cpu;
  faults_ = major_faults;
  return share_ > 0 && now_ > *before_ + share_;
}

void Guard::begin(double otherwise) {
  before_ = ran_ ? now_ : otherwise;
  looked_ = false;
}

}  // namespace headrace
