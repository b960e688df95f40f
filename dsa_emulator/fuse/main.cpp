// SPDX-License-Identifier: Apache-2.0
// headrace-dsa-sim: emulated DSA devices as files. See docs/howto/dsa-sim.md.
#include <fmt/core.h>

#include <array>
#include <cstdio>
#include <span>
#include <utility>
#include <vector>

#include "core/fail.h"
#include "dsa_emulator/driver/bus.h"
#include "dsa_emulator/driver/tree.h"
#include "dsa_emulator/fuse/options.h"
#include "dsa_emulator/fuse/serve.h"

namespace headrace::emulator {
namespace {

// By ErrorCode, as python/headrace/_cli/exit_codes.py has them.
constexpr auto kExitCodes = std::to_array<std::pair<ErrorCode, int>>({
    {ErrorCode::invalid, 2},
    {ErrorCode::absent, 3},
    {ErrorCode::unsupported, 4},
    {ErrorCode::denied, 5},
    {ErrorCode::exhausted, 6},
    {ErrorCode::io, 7},
    {ErrorCode::timed_out, 8},
    {ErrorCode::cancelled, 130},
});

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
  const headrace::Status done = headrace::emulator::run(arguments.subspan(1));
  if (done) return 0;
  fmt::print(stderr, "headrace-dsa-sim: {}\n", done.error().message);
  for (const auto& [code, exit] : headrace::emulator::kExitCodes) {
    if (code == done.error().code) return exit;
  }
  return 70;
}
