// SPDX-License-Identifier: Apache-2.0
// One descriptor as the device carries it from its queue to its record. Plain data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "headrace/units.h"
#include "tests/support/dsa/memory/address_space.h"
#include "tests/support/dsa/memory/injected_fault.h"

namespace headrace::emulator {

class Batch;

struct Task {
  Descriptor descriptor;
  AddressSpace* space = nullptr;
  std::size_t queue = 0;
  std::uint64_t number = 0;      // as the device came to know them
  Nanoseconds arrived{0};        // by the device's clock
  std::shared_ptr<Batch> batch;  // it belongs to; null: submitted by itself
  InjectedFault injected;        // known once an engine takes it
};

}  // namespace headrace::emulator
