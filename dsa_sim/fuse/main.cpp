// SPDX-License-Identifier: Apache-2.0
// headrace-dsa-sim: emulated DSA devices as files. See docs/howto/dsa-sim.md.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <cstdio>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/fail.h"
#include "dsa_sim/driver/driver.h"
#include "dsa_sim/driver/tree.h"
#include "dsa_sim/fuse/serve.h"
#include "dsa_sim/program.h"

namespace headrace::emulator {
namespace {

constexpr const char* kAbout =
    "Serves emulated Intel DSA devices as files under MOUNT_POINT, as the kernel's driver\n"
    "does for real ones: dev/dsa/wq0.0 takes descriptors by write(), sys/bus/dsa/devices\n"
    "describes the devices. Stays in the foreground until SIGTERM or SIGINT.";

constexpr const char* kExitStatus =
    "Exit status: 0 ended by a signal, 2 wrong options, 3 no such directory or no /dev/fuse,\n"
    "5 not permitted, 6 something is mounted there, 7 any other failure.";

// Options as they stand on the command line.
struct Options {
  std::string mount_point;
  std::string profile = "sapphire-rapids";
  std::string layout = "1n1d1e1w";
  std::vector<std::string> queues;
  std::string mode = "0600";
  bool resident = false;
  bool rates = false;
  std::uint64_t seed = 1;
};

void declare(CLI::App& app, Options& options) {
  app.set_help_flag("--help", "Print this text");
  app.footer(kExitStatus);
  app.add_option("MOUNT_POINT", options.mount_point, "An empty directory")->required();
  app.add_option("--profile", options.profile, "sapphire-rapids or dsa2")
      ->check(CLI::IsMember({"sapphire-rapids", "dsa2"}))
      ->capture_default_str();
  app.add_option("--layout", options.layout,
                 "NnDdEeWw: nodes, devices per node, engines and queues per device. 8n1d1e1w: "
                 "eight nodes with one device each")
      ->capture_default_str();
  app.add_option("--queue", options.queues,
                 "A queue of each device, in place of the layout's; once per queue: shared:SIZE, "
                 "shared:SIZE:THRESHOLD or dedicated:SIZE")
      ->allow_extra_args(false);
  app.add_flag("--resident", options.resident, "Pages that are not in memory are not page faults")
      ->disable_flag_override();
  app.add_option("--mode", options.mode, "Permissions of the queues' files")->capture_default_str();
  app.add_flag("--rates", options.rates,
               "Descriptors take time, as on a real device at a first guess; without it they end "
               "before write() returns")
      ->disable_flag_override();
  app.add_option("--seed", options.seed, "Seed of faults and of the order of execution")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
}

Result<QueueSetup> read_queue(const std::string& text) {
  QueueSetup queue;
  int end = 0;
  const int shared =
      std::sscanf(text.c_str(), "shared:%u%n:%u%n", &queue.size, &end, &queue.threshold, &end);
  if (shared == 1) queue.threshold = queue.size;
  queue.shared = shared > 0;
  const bool read =
      queue.shared || std::sscanf(text.c_str(), "dedicated:%u%n", &queue.size, &end) == 1;
  if (read && static_cast<std::size_t>(end) == text.size()) return queue;
  return fail(ErrorCode::invalid,
              "--queue '{}': give shared:SIZE, shared:SIZE:THRESHOLD or dedicated:SIZE", text);
}

Result<std::vector<DeviceSetup>> make_setups(const Options& options) {
  unsigned nodes = 0;
  unsigned devices = 0;
  unsigned queues = 0;
  int end = 0;
  DeviceSetup setup = options.profile == "dsa2" ? dsa2() : sapphire_rapids();
  const int read = std::sscanf(options.layout.c_str(), "%3un%3ud%3ue%3uw%n", &nodes, &devices,
                               &setup.engines, &queues, &end);
  const bool whole = read == 4 && static_cast<std::size_t>(end) == options.layout.size();
  if (!whole || nodes * devices == 0 || nodes * devices > 64 || queues == 0) {
    return fail(ErrorCode::invalid, "--layout '{}': give it as 8n1d1e1w, up to 64 devices",
                options.layout);
  }
  const unsigned size = kMaxQueuesSize / queues;
  setup.queues.assign(queues, {.size = size, .threshold = size});
  if (!options.queues.empty()) setup.queues.clear();
  for (const std::string& text : options.queues) {
    HEADRACE_TRY(setup.queues.emplace_back(), read_queue(text));
  }
  for (QueueSetup& queue : setup.queues) queue.batches_allowed = setup.version > 0x100;
  std::vector<DeviceSetup> setups(nodes * devices, setup);
  for (unsigned i = 0; i < setups.size(); ++i) setups[i].numa_node = i / devices;
  return setups;
}

Result<mode_t> read_mode(const std::string& text) {
  mode_t mode = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), mode, 8);
  if (error == std::errc{} && end == text.data() + text.size() && mode <= 0777) return mode;
  return fail(ErrorCode::invalid, "--mode '{}': give 0 to 777", text);
}

Status serve_devices(const Options& options) {
  HEADRACE_TRY(const mode_t mode, read_mode(options.mode));
  HEADRACE_TRY(const auto setups, make_setups(options));
  const auto rates = options.rates ? std::optional(DeviceRates{}) : std::nullopt;
  HEADRACE_TRY(const Devices devices, open_devices(setups, options.seed, rates));
  const Tree tree(devices, mode);
  const auto mounted = [&] {
    fmt::print("serving {} {} device{} at {}\n", setups.size(), options.profile,
               setups.size() == 1 ? "" : "s", options.mount_point);
    std::fflush(stdout);
  };
  return serve(devices, tree, options.mount_point, !options.resident, mounted);
}

Status run(std::span<const char* const> arguments) {
  Options options;
  CLI::App app(kAbout, "headrace-dsa-sim");
  declare(app, options);
  try {
    app.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));  // from the back
  } catch (const CLI::CallForHelp&) {
    fmt::print("{}", app.help());
    return {};
  } catch (const CLI::ParseError& error) {
    return fail(ErrorCode::invalid, "{}; --help lists the options", error.what());
  }
  return serve_devices(options);
}

}  // namespace
}  // namespace headrace::emulator

int main(int argc, char** argv) {
  const std::span<const char* const> arguments(argv, static_cast<std::size_t>(argc));
  return headrace::dsa_sim::exit_code("headrace-dsa-sim",
                                      headrace::emulator::run(arguments.subspan(1)));
}
