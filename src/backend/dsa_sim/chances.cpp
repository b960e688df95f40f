#include "backend/dsa_sim/chances.h"

#include "backend/dsa_sim/client_memory.h"

namespace headrace::dsa {

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

Mishap Chances::draw(const Descriptor& descriptor, std::uint64_t number) {
  // The driver's own drains do not fail.
  if (ClientMemory::is_own(descriptor.record)) return {};
  MutexLock lock(mutex_);
  return dsa::draw(faults_, descriptor, number, random_);
}

}  // namespace headrace::dsa
