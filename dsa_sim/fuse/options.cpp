// SPDX-License-Identifier: Apache-2.0
#include "dsa_sim/fuse/options.h"

#include <fmt/core.h>
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <functional>
#include <optional>
#include <string_view>
#include <utility>

#include "core/fail.h"

namespace headrace::emulator {
namespace {

constexpr const char* kAbout =
    "Serves emulated Intel DSA devices as files under MOUNT_POINT, as the kernel's driver\n"
    "does for real ones: dev/dsa/wq0.0 takes descriptors by write(), sys/bus/dsa/devices\n"
    "describes the devices. Stays in the foreground until SIGTERM or SIGINT.";

constexpr const char* kExitStatus =
    "Exit status: 0 ended by a signal, 2 wrong options, 3 no such directory or no /dev/fuse,\n"
    "5 not permitted, 6 something is mounted there, 7 any other failure.";

Result<unsigned> number(std::string_view option, std::string_view text, unsigned least,
                        unsigned most, int base = 10) {
  unsigned value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  const bool whole = error == std::errc{} && end == text.data() + text.size();
  if (!whole || value < least || value > most) {
    const auto digits = [base](unsigned n) {
      return base == 8 ? fmt::format("{:o}", n) : fmt::format("{}", n);
    };
    return fail(ErrorCode::invalid, "{} '{}': give {} to {}", option, text, digits(least),
                digits(most));
  }
  return value;
}

// The digits before `unit`, which they are taken off with.
Result<unsigned> take(std::string_view& text, char unit, std::string_view layout) {
  const std::size_t end = text.find(unit);
  if (end == text.npos) {
    return fail(ErrorCode::invalid, "--layout '{}': give it as 8n1d1e1w", layout);
  }
  HEADRACE_TRY(const unsigned value, number("--layout", text.substr(0, end), 1, 64));
  text.remove_prefix(end + 1);
  return value;
}

Status set_layout(Options& options, std::string_view text) {
  std::string_view rest = text;
  HEADRACE_TRY(const unsigned nodes, take(rest, 'n', text));
  HEADRACE_TRY(const unsigned devices, take(rest, 'd', text));
  HEADRACE_TRY(options.engines, take(rest, 'e', text));
  HEADRACE_TRY(options.queue_count, take(rest, 'w', text));
  if (!rest.empty()) {
    return fail(ErrorCode::invalid, "--layout '{}': '{}' is too much", text, rest);
  }
  options.devices = nodes * devices;
  options.nodes.clear();
  for (unsigned i = 0; i < options.devices; ++i) options.nodes.push_back(i / devices);
  return {};
}

Status set_nodes(Options& options, std::string_view text) {
  options.nodes.clear();
  while (true) {
    const std::size_t end = text.find(',');
    HEADRACE_TRY(const unsigned node, number("--nodes", text.substr(0, end), 0, 1023));
    options.nodes.push_back(node);
    if (end == text.npos) return {};
    text.remove_prefix(end + 1);
  }
}

Status add_queue(Options& options, std::string_view text) {
  const std::size_t colon = text.find(':');
  const std::string_view kind = text.substr(0, colon);
  if (colon == text.npos || (kind != "shared" && kind != "dedicated")) {
    return fail(ErrorCode::invalid,
                "--queue '{}': give shared:SIZE, shared:SIZE:THRESHOLD or dedicated:SIZE", text);
  }
  const std::string_view rest = text.substr(colon + 1);
  const std::size_t second = rest.find(':');
  QueueSetup queue;
  queue.shared = kind == "shared";
  HEADRACE_TRY(queue.size, number("--queue size", rest.substr(0, second), 1, 1024));
  queue.threshold = queue.size;
  if (second != rest.npos) {
    if (!queue.shared) {
      return fail(ErrorCode::invalid, "--queue '{}': a dedicated queue has no threshold", text);
    }
    HEADRACE_TRY(queue.threshold,
                 number("--queue threshold", rest.substr(second + 1), 1, queue.size));
  }
  options.queues.push_back(queue);
  return {};
}

Status set_mode(Options& options, std::string_view text) {
  HEADRACE_TRY(options.mode, number("--mode", text, 0, 0777, 8));
  return {};
}

// Options whose values are more than a number, as they stand on the command line.
struct Texts {
  std::string layout;
  std::string nodes;
  std::string mode;
  std::vector<std::string> queues;
};

Status apply(const Texts& texts, std::optional<unsigned> devices, Options& options) {
  if (!texts.layout.empty()) HEADRACE_TRY_STATUS(set_layout(options, texts.layout));
  if (devices) options.devices = *devices;
  if (!texts.nodes.empty()) HEADRACE_TRY_STATUS(set_nodes(options, texts.nodes));
  if (!texts.mode.empty()) HEADRACE_TRY_STATUS(set_mode(options, texts.mode));
  for (const std::string& queue : texts.queues) HEADRACE_TRY_STATUS(add_queue(options, queue));
  return {};
}

// What the program is told. The variables outlive `app`'s parsing.
void declare(CLI::App& app, Options& options, Texts& texts, std::optional<unsigned>& devices) {
  app.set_help_flag("--help", "Print this text");
  app.footer(kExitStatus);
  app.add_option("MOUNT_POINT", options.mount_point, "An empty directory")->required();
  app.add_option("--profile", options.profile, "sapphire-rapids, dsa2 or dsa3")
      ->capture_default_str();
  app.add_option("--layout", texts.layout,
                 "NnDdEeWw: nodes, devices per node, engines and queues per device; default "
                 "1n1d1e1w. 8n1d1e1w: eight nodes with one device each");
  app.add_option("--devices", devices, "So many devices, in place of the layout's")
      ->check(CLI::Range(1U, 64U));
  app.add_option("--nodes", texts.nodes, "NUMA nodes of the devices in turn, such as 0,0,1,1");
  app.add_option("--queue", texts.queues,
                 "A queue of each device, in place of the layout's; once per queue: shared:SIZE, "
                 "shared:SIZE:THRESHOLD or dedicated:SIZE")
      ->allow_extra_args(false);
  const auto flag = [&app](const char* name, std::function<void()> set, const char* about) {
    app.add_flag_callback(name, std::move(set), about)->disable_flag_override();
  };
  flag(
      "--no-block-on-fault", [&] { options.block_on_fault = false; },
      "The queues have block_on_fault 0");
  flag(
      "--resident", [&] { options.absent_pages_fault = false; },
      "Pages that are not in memory are not page faults");
  app.add_option("--retries", options.served.retries,
                 "How often write() tries again at a full shared queue")
      ->check(CLI::Range(0U, kMostRetries))
      ->capture_default_str();
  app.add_option("--mode", texts.mode, "Permissions of the queues' files; default 0600");
  flag(
      "--rates", [&] { options.served.rates.emplace(); },
      "Descriptors take time, as much as on a real device at a first guess; without, they end "
      "before write() returns");
  app.add_option("--seed", options.served.seed, "Seed of faults and of the order of execution")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
}

}  // namespace

Result<Options> parse_options(std::span<const char* const> arguments) {
  Options options;
  Texts texts;
  std::optional<unsigned> devices;
  CLI::App app(kAbout, "headrace-dsa-sim");
  declare(app, options, texts, devices);
  try {
    app.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));  // from the back
  } catch (const CLI::CallForHelp&) {
    options.help = app.help();
    return options;
  } catch (const CLI::ParseError& error) {
    return fail(ErrorCode::invalid, "{}; --help lists the options", error.what());
  }
  HEADRACE_TRY_STATUS(apply(texts, devices, options));
  return options;
}

Result<std::vector<DeviceSetup>> make_setups(const Options& options) {
  std::string name = options.profile;
  std::ranges::replace(name, '-', '_');
  Result<DeviceSetup> found = find_setup(name);
  if (!found) {
    return fail(ErrorCode::invalid, "no profile '{}'; there are sapphire-rapids, dsa2, dsa3",
                options.profile);
  }
  DeviceSetup setup = *std::move(found);
  setup.groups = {GroupSetup{.engines = options.engines}};
  setup.queues = options.queues;
  if (setup.queues.empty()) {
    const unsigned size = setup.max_queues_size / options.queue_count;
    setup.queues.assign(options.queue_count, QueueSetup{.size = size, .threshold = size});
  }
  for (QueueSetup& queue : setup.queues) {
    queue.block_on_fault = options.block_on_fault;
    queue.batches_allowed = setup.version > 0x100;
  }
  std::vector<DeviceSetup> setups(options.devices, setup);
  for (std::size_t i = 0; i < setups.size(); ++i) {
    setups[i].numa_node = options.nodes[i % options.nodes.size()];
  }
  for (const DeviceSetup& each : setups) HEADRACE_TRY_STATUS(check(each));
  return setups;
}

}  // namespace headrace::emulator
