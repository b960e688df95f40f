// SPDX-License-Identifier: Apache-2.0
// headrace-bench-kv: drives a key-value server, or is one. `headrace bench kv` starts servers
// and prints this program's results.
#include <csignal>
#include <nlohmann/json.hpp>
#include <optional>

#include "benchmarks/keyvalue/live/connection.h"
#include "benchmarks/keyvalue/live/server_process.h"
#include "benchmarks/keyvalue/options.h"
#include "benchmarks/keyvalue/store/serve.h"
#include "benchmarks/keyvalue/store/store.h"
#include "benchmarks/options.h"

namespace headrace::kv_bench {
namespace {

nlohmann::ordered_json number_or_null(const std::optional<double>& value) {
  return value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json();
}

Result<nlohmann::ordered_json> driven(const Options& options) {
  const Workload* const workload = find_workload(options.workload);
  if (workload == nullptr) return fail(ErrorCode::absent, "no such workload; there are A, B, C, D");
  HEADRACE_TRY(const Driven found, drive(*workload, options.drive));
  return nlohmann::ordered_json{{"operations", found.operations},
                                {"wrong", found.wrong},
                                {"repeated", found.repeated},
                                {"not_begun", found.not_begun},
                                {"seconds", found.seconds},
                                {"p50_us", found.p50_us},
                                {"p99_us", found.p99_us},
                                {"p999_us", found.p999_us},
                                {"major_faults_per_op", number_or_null(found.major_faults)},
                                {"server_cpu_us_per_op", number_or_null(found.cpu_us)}};
}

Result<nlohmann::ordered_json> done(const Options& options) {
  const DriveOptions& live = options.drive;
  if (options.task != Task::serve) std::signal(SIGPIPE, SIG_IGN);
  switch (options.task) {
    case Task::load:
      HEADRACE_TRY_STATUS(
          load({live.protocol, live.socket, live.records, live.value_bytes, live.rate, live.seed}));
      return nlohmann::ordered_json{{"records", live.records}};
    case Task::drive: return driven(options);
    case Task::place: {
      HEADRACE_TRY(const PagesOut pages, page_out(live.server, options.share, live.seed));
      return nlohmann::ordered_json{{"data_bytes", pages.data.value},
                                    {"out_bytes", pages.out.value}};
    }
    case Task::store: {
      HEADRACE_TRY(const auto store, Store::open(options.store));
      HEADRACE_TRY_STATUS(serve(*store, live.socket));
      break;
    }
    case Task::serve: HEADRACE_TRY_STATUS(become(options.program, live.server)); break;
  }
  return nlohmann::ordered_json::object();
}

Status answer(std::span<const char* const> arguments) {
  HEADRACE_TRY(const Options options, parse_options(arguments));
  if (options.help) {
    fmt::print("{}", help_text());
    return {};
  }
  HEADRACE_TRY(const nlohmann::ordered_json told, done(options));
  fmt::print("{}\n", told.dump());
  return {};
}

}  // namespace
}  // namespace headrace::kv_bench

int main(int argc, char** argv) {
  const std::span<const char* const> arguments(argv, static_cast<std::size_t>(argc));
  return headrace::bench::exit_code("headrace-bench-kv",
                                    headrace::kv_bench::answer(arguments.subspan(1)));
}
