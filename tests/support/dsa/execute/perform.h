// SPDX-License-Identifier: Apache-2.0
// One descriptor from its checks to its record: all of a device's work that needs no lock.
#pragma once

#include <cstdint>
#include <optional>

#include "tests/support/dsa/execute/batch.h"
#include "tests/support/dsa/execute/checks.h"
#include "tests/support/dsa/execute/task.h"

namespace headrace::emulator {

// The fate of a record.
enum class Fate : std::uint8_t { written, suppressed, lost };

struct Performed {
  std::uint8_t status = 0;  // as in the record, also if there is none
  Fate fate = Fate::suppressed;
  std::uint64_t resolved = 0;          // page requests that were granted
  std::optional<DescriptorList> list;  // of a batch; its record comes when that is done
};

// Checks, executes, writes the record.
Performed perform(const Task& task, const Limits& limits);

// Writes the record of `task`, if there is to be one (SPEC 8.2): it is valid and aligned, and
// either requested or an error.
Fate deliver(const Task& task, const Record& record, const Limits& limits);

}  // namespace headrace::emulator
