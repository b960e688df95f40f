// Copies 64 MiB in the background and does something else meanwhile.
#include <cstdio>
#include <cstring>

#include "headrace/headrace.h"

using headrace::operator""_MiB;

int main() {
  const auto machine = headrace::Machine::discover();
  const auto backends = headrace::Backends::open(*machine);
  const headrace::NodeId node = machine->nodes.front().id;
  const auto from = headrace::allocate(*machine, 64_MiB, headrace::Placement::on(node));
  const auto to = headrace::allocate(*machine, 64_MiB, headrace::Placement::on(node));
  if (!backends || !from || !to) return 1;
  std::memset((*from)->memory(), 42, (*from)->size().value);

  headrace::Mover mover(*machine, *backends);
  const headrace::Transfer transfer = mover.copy(whole(**to), whole(**from));
  // ... compute something here ...
  const auto outcome = transfer.wait();
  if (!outcome) {
    std::fprintf(stderr, "%s\n", outcome.error().message.c_str());
    return 1;
  }
  const bool same = std::memcmp((*to)->memory(), (*from)->memory(), 64 << 20) == 0;
  std::printf("%s in %u pieces: %s\n", to_string(outcome->bytes).c_str(), outcome->pieces,
              same ? "the same bytes" : "different bytes");
  return same ? 0 : 1;
}
