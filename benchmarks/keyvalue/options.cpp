// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/keyvalue/options.h"

#include <limits>
#include <map>

#include "benchmarks/options.h"

namespace headrace::kv_bench {
namespace {

using bench::text;

// Sets a field to the value of a name. Requires: `field` outlives the option.
template <class T>
bench::Option name(std::string_view option, std::string_view about, T& field, ErrorCode code,
                   std::map<std::string_view, T> values) {
  return {option, "NAME", about, [=, &field](std::string_view given) -> Status {
            const auto found = values.find(given);
            if (found == values.end()) return fail(code, "{} '{}': give {}", option, given, about);
            field = found->second;
            return {};
          }};
}

// Options that set fields of `options`, which must outlive them.
std::vector<bench::Option> table(Options& options) {
  DriveOptions& drive = options.drive;
  StoreOptions& store = options.store;
  const auto number = [](auto option, auto about, auto& field, auto least, auto most) {
    return bench::number(option, "N", about, field, least, most);
  };
  return {
      bench::flag("--help", "Print this text", options.help),
      name("--task", "load, drive (default), place, store, or serve before -- PROGRAM...",
           options.task, ErrorCode::invalid,
           {{"load", Task::load},
            {"drive", Task::drive},
            {"place", Task::place},
            {"store", Task::store},
            {"serve", Task::serve}}),
      text("--workload", "A-D", "Workload of YCSB (default C)", options.workload),
      number("--records", "Number of records (default 1000000)", drive.records, std::uint64_t{1000},
             std::uint64_t{100'000'000'000}),
      number("--value", "Bytes of a value (default 1024)", drive.value_bytes, std::size_t{1},
             std::size_t{1} << 20),
      number("--clients", "Number of clients, one outstanding request each (default 8)",
             drive.clients, 1U, 100'000U),
      number("--seed", "Seed of every random choice (default 1)", drive.seed, std::uint64_t{0},
             std::numeric_limits<std::uint64_t>::max()),
      name("--protocol", "redis (default), memcached", drive.protocol, ErrorCode::absent,
           {{"redis", Protocol::redis}, {"memcached", Protocol::memcached}}),
      text("--socket", "PATH", "Where the server listens", drive.socket),
      number("--server", "Process of the server; of serve, the parent that it ends with",
             drive.server, 1, 1 << 30),
      number("--seconds", "Seconds of the measurement (default 1)", drive.seconds, 0.001, 600.0),
      number("--rate", "Operations per second (default: a closed loop)", drive.rate, 1.0, 1e7),
      number("--share", "Share of the server's pages to move to swap (default 0)", options.share,
             0.0, 1.0),
      text("--placement", "TEXT", "Placement of the store's heap (default: nearest memory)",
           store.placement),
      text("--file", "PATH", "File of the store's values (default: its heap)", store.file),
      number("--cached", "Bytes of them cached in memory (default 67108864)", store.cached,
             std::uint64_t{1}, std::uint64_t{1} << 50),
  };
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
  options.drive.records = 1'000'000;
  HEADRACE_TRY(options.program, bench::parse(table(options), arguments));
  if (!options.help) HEADRACE_TRY_STATUS(check_complete(options));
  options.store.records = options.drive.records;
  options.store.value_bytes = options.drive.value_bytes;
  return options;
}

std::string help_text() {
  Options options;
  return bench::help(
      "Usage: headrace-bench-kv [OPTION...]\n"
      "Sends requests to a key-value server, or is one, and prints one line of JSON; for people:\n"
      "`headrace bench kv`.\n\n",
      table(options));
}

}  // namespace headrace::kv_bench
