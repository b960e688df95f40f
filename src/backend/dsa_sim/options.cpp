#include "backend/dsa_sim/options.h"

#include <fmt/core.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <functional>
#include <optional>
#include <string_view>
#include <utility>

#include "core/fail.h"

namespace headrace::dsa {
namespace {

constexpr std::string_view kHelp =
    R"(usage: headrace-dsa-sim [OPTION]... MOUNT_POINT

Serves Intel DSA devices made of software as files under MOUNT_POINT, as the kernel's driver does
for real ones: dev/dsa/wq0.0 takes descriptors by write(), sys/bus/dsa/devices describes the
devices. Stays in the foreground until SIGTERM or SIGINT.

  --profile NAME     sapphire-rapids (default), dsa2 or dsa3
  --layout NnDdEeWw  nodes, devices per node, engines and queues per device; default 1n1d1e1w.
                     8n1d1e1w: eight nodes with one device each
  --devices N        so many devices, in place of the layout's
  --nodes LIST       NUMA nodes of the devices in turn, such as 0,0,1,1
  --queue KIND       a queue of each device, in place of the layout's; once per queue:
                     shared:SIZE, shared:SIZE:THRESHOLD or dedicated:SIZE
  --no-block-on-fault
                     the queues have block_on_fault 0
  --resident         pages that are not in memory are not page faults
  --retries N        of a full shared queue in write(), at most 64; default 32
  --mode BITS        permissions of the queues' files; default 0600
  --rates            descriptors take time, as much as on a real device at a first guess;
                     without, they are done at once
  --seed N           of faults and of the order of execution; default 1
  --help             this text

Exit status: 0 ended by a signal, 2 wrong options, 3 no such directory or no /dev/fuse, 5 not
permitted, 6 something is mounted there, 7 any other failure.
)";

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

Status set_unsigned(unsigned& value, std::string_view option, std::string_view text, unsigned least,
                    unsigned most, int base = 10) {
  HEADRACE_TRY(value, number(option, text, least, most, base));
  return {};
}

Status set_mode(Options& options, std::string_view text) {
  unsigned bits = 0;
  HEADRACE_TRY_STATUS(set_unsigned(bits, "--mode", text, 0, 0777, 8));
  options.mode = bits;
  return {};
}

Status set_seed(Options& options, std::string_view text) {
  unsigned seed = 0;
  HEADRACE_TRY_STATUS(set_unsigned(seed, "--seed", text, 0, ~0U));
  options.served.seed = seed;
  return {};
}

struct Flag {
  std::string_view name;
  void (*set)(Options&);
};

constexpr auto kFlags = std::to_array<Flag>({
    {"--help", [](Options& options) { options.help = true; }},
    {"--no-block-on-fault", [](Options& options) { options.block_on_fault = false; }},
    {"--resident", [](Options& options) { options.absent_pages_fault = false; }},
    {"--rates", [](Options& options) { options.served.rates.emplace(); }},
});

struct Valued {
  std::string_view name;
  Status (*set)(Options&, std::string_view);
};

constexpr auto kValued = std::to_array<Valued>({
    {"--profile",
     [](Options& options, std::string_view text) {
       options.profile = text;
       return Status{};
     }},
    {"--layout", set_layout},
    {"--devices",
     [](Options& options, std::string_view text) {
       return set_unsigned(options.devices, "--devices", text, 1, 64);
     }},
    {"--nodes", set_nodes},
    {"--queue", add_queue},
    {"--retries",
     [](Options& options, std::string_view text) {
       return set_unsigned(options.served.retries, "--retries", text, 0, kMostRetries);
     }},
    {"--mode", set_mode},
    {"--seed", set_seed},
});

// Takes one option, with its value if it has one, from the front of the arguments.
Status take_option(Options& options, std::span<const char* const>& arguments) {
  const std::string_view word = arguments.front();
  arguments = arguments.subspan(1);
  const std::size_t equals = word.find('=');
  const std::string_view name = word.substr(0, equals);
  const auto named = [name](const auto& option) { return option.name == name; };
  if (const auto flag = std::ranges::find_if(kFlags, named); flag != kFlags.end()) {
    if (equals != word.npos) return fail(ErrorCode::invalid, "{} has no value", name);
    flag->set(options);
    return {};
  }
  const auto valued = std::ranges::find_if(kValued, named);
  if (valued == kValued.end()) {
    return fail(ErrorCode::invalid, "no option {}; --help lists them", name);
  }
  if (equals != word.npos) return valued->set(options, word.substr(equals + 1));
  if (arguments.empty()) return fail(ErrorCode::invalid, "{} needs a value", name);
  const std::string_view value = arguments.front();
  arguments = arguments.subspan(1);
  return valued->set(options, value);
}

}  // namespace

std::string help_text() { return std::string(kHelp); }

Result<Options> parse_options(std::span<const char* const> arguments) {
  Options options;
  while (!arguments.empty()) {
    const std::string_view word = arguments.front();
    if (word.starts_with("-") && word.size() > 1) {
      HEADRACE_TRY_STATUS(take_option(options, arguments));
      continue;
    }
    if (!options.mount_point.empty()) {
      return fail(ErrorCode::invalid, "one mount point, not also '{}'", word);
    }
    options.mount_point = word;
    arguments = arguments.subspan(1);
  }
  if (!options.help && options.mount_point.empty()) {
    return fail(ErrorCode::invalid, "say where: headrace-dsa-sim [OPTION]... MOUNT_POINT");
  }
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

}  // namespace headrace::dsa
