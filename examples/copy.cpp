// SPDX-License-Identifier: Apache-2.0
// Copies 64 MiB in the background and does something else meanwhile.
#include <cstdio>
#include <cstring>

#include "headrace/headrace.h"

using namespace headrace;

int complain(const Error& error) {
  std::fprintf(stderr, "%s\n", error.message.c_str());
  return 1;
}

int main() {
  const auto machine = Machine::discover();
  if (!machine) return complain(machine.error());
  const auto backends = Backends::open(*machine);
  if (!backends) return complain(backends.error());
  const auto from = allocate(*machine, 64_MiB, Placement::on(NodeKind::dram));
  if (!from) return complain(from.error());
  const auto to = allocate(*machine, 64_MiB, Placement::on(NodeKind::dram));
  if (!to) return complain(to.error());
  std::memset((*from)->memory(), 42, (*from)->size().value);

  Mover mover(*machine, *backends);
  const Transfer transfer = mover.copy(whole(**to), whole(**from));  // starts at once
  // ... compute something here ...
  const auto outcome = transfer.wait();  // or co_await transfer
  if (!outcome) return complain(outcome.error());
  const bool same = std::memcmp((*to)->memory(), (*from)->memory(), 64 << 20) == 0;
  std::printf("%s in %u pieces: %s\n", to_string(outcome->bytes).c_str(), outcome->pieces,
              same ? "the same bytes" : "different bytes");
  return same ? 0 : 1;
}
