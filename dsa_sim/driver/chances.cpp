// SPDX-License-Identifier: Apache-2.0
#include "dsa_sim/driver/chances.h"

namespace headrace::emulator {

bool Chances::set(std::string_view what, double chance) {
  MutexLock lock(mutex_);
  if (what == "fail") {
    faults_.hardware_chance = chance;
  } else if (what == "fault-pages") {
    faults_.page_fault_chance = chance;
  } else if (what == "lose-records") {
    faults_.lost_record_chance = chance;
  } else if (what == "unknown-statuses") {
    faults_.unknown_status_chance = chance;
  } else {
    return false;
  }
  return true;
}

InjectedFault Chances::draw(const Descriptor& descriptor, std::uint64_t number) {
  MutexLock lock(mutex_);
  return emulator::draw(faults_, descriptor, number, random_);
}

}  // namespace headrace::emulator
