// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/keyvalue/options.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <functional>
#include <limits>
#include <string_view>
#include <utility>
#include <vector>

#include "core/fail.h"

namespace headrace::kv_bench {
namespace {

template <class T>
Status set_number(T& value, std::string_view option, std::string_view text, T least, T most) {
  T found{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), found);
  if (error != std::errc{} || end != text.data() + text.size() || !(found >= least) ||
      !(found <= most)) {
    return fail(ErrorCode::invalid, "{} '{}': give {} to {}", option, text, least, most);
  }
  value = found;
  return {};
}

struct Option {
  std::string_view name;
  std::string_view value;  // in help; empty: a flag
  std::string_view about;
  std::function<Status(std::string_view)> set;
};

// A number within bounds. Requires: `field` outlives the option.
template <class T>
Option number(std::string_view name, std::string_view about, T& field, T least, T most) {
  return {name, "N", about, [=, &field](std::string_view text) {
            return set_number(field, name, text, least, most);
          }};
}

constexpr std::array kTasks = {
    std::pair{"model", Task::model}, std::pair{"load", Task::load},
    std::pair{"drive", Task::drive}, std::pair{"place", Task::place},
    std::pair{"store", Task::store}, std::pair{"serve", Task::serve},
};

Status set_task(Task& task, std::string_view text) {
  for (const auto& [name, value] : kTasks) {
    if (text == name) return task = value, Status{};
  }
  return fail(ErrorCode::invalid, "no task '{}'; there are model, load, drive, place, store, serve",
              text);
}

// Options of a server and its clients. Requires: `chosen` outlives them.
void add_live(std::vector<Option>& options, Options& chosen) {
  DriveOptions& drive = chosen.drive;
  options.push_back({"--protocol", "NAME", "That the server speaks: redis, memcached (redis)",
                     [&](std::string_view text) -> Status {
                       if (text != "redis" && text != "memcached") {
                         return fail(ErrorCode::absent,
                                     "no protocol '{}'; there are redis, memcached", text);
                       }
                       drive.protocol = text == "redis" ? Protocol::redis : Protocol::memcached;
                       return {};
                     }});
  options.push_back({"--socket", "PATH", "Where the server listens",
                     [&](std::string_view text) { return drive.socket = text, Status{}; }});
  options.push_back(number("--server", "Its process; of serve, the parent that it ends with",
                           drive.server, 1, 1 << 30));
  options.push_back(number("--seconds", "That it is asked (1)", drive.seconds, 0.001, 600.0));
  options.push_back({"--rate", "N", "Operations per second; default: as fast as it goes",
                     [&](std::string_view text) {
                       return set_number(drive.rate.emplace(), "--rate", text, 1.0, 1e7);
                     }});
  options.push_back(number("--share", "Of its pages to be elsewhere (0)", chosen.share, 0.0, 1.0));
  options.push_back({"--to", "NODE", "Where; default: in swap", [&](std::string_view text) {
                       return set_number(chosen.to.emplace(), "--to", text, 0, 65535);
                     }});
}

// Options of the server in this program. Requires: `store` outlives them.
void add_store(std::vector<Option>& options, StoreOptions& store) {
  options.push_back({"--placement", "TEXT", "Of the store's heap; default: the nearest memory",
                     [&](std::string_view text) { return store.placement = text, Status{}; }});
  options.push_back({"--file", "PATH", "The store's values lie there; default: in its heap",
                     [&](std::string_view text) { return store.file = text, Status{}; }});
  options.push_back(number("--cached", "Bytes of them that it has in memory (67108864)",
                           store.cached.value, std::uint64_t{1}, std::uint64_t{1} << 50));
}

// Options that set fields of `options`. Requires: it outlives them.
std::vector<Option> table(Options& options) {
  ModelOptions& model = options.model;
  std::vector<Option> all = {
      {"--help", "", "Print this text", [&](auto) { return options.help = true, Status{}; }},
      {"--task", "NAME", "model, load, drive, place, store, or serve, before -- PROGRAM... (model)",
       [&](std::string_view text) { return set_task(options.task, text); }},
      {"--machine", "NAME|FILE", "Model it: a preset, or a profile with loaded latencies",
       [&](std::string_view text) { return model.machine = text, Status{}; }},
      {"--workload", "A-D", "YCSB's, several times for several (all)",
       [&, first = true](std::string_view text) mutable {
         if (first) model.workloads.clear();
         first = false;
         return model.workloads.emplace_back(text), Status{};
       }},
      number("--records", "Stored (512000000)", model.records, std::uint64_t{1000},
             std::uint64_t{100'000'000'000}),
      number("--value", "Bytes of each (1024)", model.value_bytes, 1.0, 1048576.0),
      number("--threads", "Of the server (7)", model.threads, 1U, 100'000U),
      number("--clients", "That ask, each one thing at a time (56)", model.clients, 1U, 100'000U),
      number("--seed", "Of all that is drawn (1)", model.seed, std::uint64_t{0},
             std::numeric_limits<std::uint64_t>::max()),
  };
  add_live(all, options);
  add_store(all, options.store);
  return all;
}

Status check_complete(const Options& options) {
  const bool at_socket =
      options.task == Task::load || options.task == Task::drive || options.task == Task::store;
  if (at_socket && options.drive.socket.empty()) return fail(ErrorCode::invalid, "which --socket?");
  if (options.task == Task::place && options.drive.server == 0) {
    return fail(ErrorCode::invalid, "which --server?");
  }
  if (options.task == Task::serve && (options.program.empty() || options.drive.server == 0)) {
    return fail(ErrorCode::invalid, "serve needs --server, its parent, and -- PROGRAM");
  }
  return {};
}

}  // namespace

Result<Options> parse_options(std::span<const char* const> arguments) {
  Options options;
  const std::vector<Option> known = table(options);
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string_view name = arguments[i];
    if (name == "--") {
      options.program.assign(arguments.begin() + static_cast<std::ptrdiff_t>(i) + 1,
                             arguments.end());
      break;
    }
    const Option* found = nullptr;
    for (const Option& option : known) {
      if (option.name == name) found = &option;
    }
    if (found == nullptr) {
      return fail(ErrorCode::invalid, "no option '{}'; --help lists them", name);
    }
    if (!found->value.empty() && ++i == arguments.size()) {
      return fail(ErrorCode::invalid, "{} needs {}", name, found->value);
    }
    HEADRACE_TRY_STATUS(found->set(arguments[i]));
  }
  HEADRACE_TRY_STATUS(check_complete(options));
  options.drive.records = options.model.records;
  options.drive.value_bytes = static_cast<std::size_t>(options.model.value_bytes);
  options.drive.clients = options.model.clients;
  options.drive.seed = options.model.seed;
  options.store.records = options.drive.records;
  options.store.value_bytes = options.drive.value_bytes;
  return options;
}

std::string help_text() {
  std::string text =
      "Usage: headrace-bench-kv [OPTION...]\n"
      "Models a key-value store on two memories, or asks one, and prints one line of JSON; for\n"
      "people: `headrace bench kv`.\n\n";
  Options options;
  for (const Option& option : table(options)) {
    text +=
        fmt::format("  {:<22} {}\n", fmt::format("{} {}", option.name, option.value), option.about);
  }
  return text;
}

}  // namespace headrace::kv_bench
