// SPDX-License-Identifier: Apache-2.0
// headrace-dsa-sim: emulated DSA devices as files. See docs/howto/dsa-sim.md.
#include <fmt/core.h>

#include <cstdio>
#include <span>
#include <vector>

#include "core/fail.h"
#include "dsa_sim/driver/bus.h"
#include "dsa_sim/driver/tree.h"
#include "dsa_sim/fuse/options.h"
#include "dsa_sim/fuse/serve.h"
#include "dsa_sim/program.h"

namespace headrace::emulator {
namespace {

Status run(std::span<const char* const> arguments) {
  HEADRACE_TRY(const Options options, parse_options(arguments));
  if (!options.help.empty()) {
    fmt::print("{}", options.help);
    return {};
  }
  HEADRACE_TRY(const std::vector<DeviceSetup> setups, make_setups(options));
  HEADRACE_TRY(Bus bus, Bus::open(setups, options.served));
  HEADRACE_TRY_STATUS(bus.start());
  const Tree tree(bus, options.mode);
  const auto mounted = [&] {
    fmt::print("serving {} {} device{} at {}\n", setups.size(), options.profile,
               setups.size() == 1 ? "" : "s", options.mount_point);
    std::fflush(stdout);
  };
  return serve(
      bus, tree,
      {.mount_point = options.mount_point, .absent_pages_fault = options.absent_pages_fault},
      mounted);
}

}  // namespace
}  // namespace headrace::emulator

int main(int argc, char** argv) {
  const std::span<const char* const> arguments(argv, static_cast<std::size_t>(argc));
  return headrace::dsa_sim::exit_code("headrace-dsa-sim",
                                      headrace::emulator::run(arguments.subspan(1)));
}
