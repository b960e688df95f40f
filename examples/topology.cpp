// SPDX-License-Identifier: Apache-2.0
// Prints what memory this machine has, and why Headrace thinks so.
#include <cstdio>

#include "headrace/headrace.h"

int main() {
  const auto machine = headrace::Machine::discover();
  if (!machine) {
    std::fprintf(stderr, "%s\n", machine.error().message.c_str());
    return 1;
  }
  std::fputs(machine->to_text().c_str(), stdout);
}
