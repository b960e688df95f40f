// SPDX-License-Identifier: Apache-2.0
// Awaits transfers in a C++20 coroutine: no thread blocks while the engines copy.
#include <cstdio>
#include <future>

#include "headrace/headrace.h"

using namespace headrace;

// The smallest coroutine type: runs at once and gives its result to a future.
struct Task {
  struct promise_type {
    std::promise<bool> done;
    Task get_return_object() { return {done.get_future()}; }
    std::suspend_never initial_suspend() { return {}; }
    std::suspend_never final_suspend() noexcept { return {}; }
    void return_value(bool ok) { done.set_value(ok); }
    void unhandled_exception() { done.set_exception(std::current_exception()); }
  };
  std::future<bool> result;
};

// There and back again.
Task round_trip(Mover& mover, Extent home, Extent away) {
  const auto there = co_await mover.copy(away, home);
  if (!there) co_return false;
  const auto back = co_await mover.copy(home, away);
  co_return back.has_value();
}

int main() {
  const auto machine = Machine::discover();
  if (!machine) return 1;
  const auto backends = Backends::open(*machine);
  const Placement here = Placement::on(NodeKind::dram);
  const auto home = allocate(*machine, 8_MiB, here), away = allocate(*machine, 8_MiB, here);
  if (!backends || !home || !away) return 1;
  Mover mover(*machine, *backends);
  Task task = round_trip(mover, whole(**home), whole(**away));
  const bool ok = task.result.get();
  std::puts(ok ? "there and back again" : "lost on the way");
  return ok ? 0 : 1;
}
