#include "workload/kv/options.h"

#include <fmt/format.h>

#include <charconv>
#include <functional>
#include <limits>
#include <string_view>
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

// A number within bounds, into a field that outlives the option.
template <class T>
Option number(std::string_view name, std::string_view about, T& field, T least, T most) {
  return {name, "N", about, [=, &field](std::string_view text) {
            return set_number(field, name, text, least, most);
          }};
}

// Options that set fields of `options`, which outlives them.
std::vector<Option> table(Options& options) {
  ModelOptions& model = options.model;
  return {
      {"--help", "", "Print this text", [&](auto) { return options.help = true, Status{}; }},
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
}

}  // namespace

Result<Options> parse_options(std::span<const char* const> arguments) {
  Options options;
  const std::vector<Option> known = table(options);
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string_view name = arguments[i];
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
  return options;
}

std::string help_text() {
  std::string text =
      "Usage: headrace-bench-kv [OPTION...]\n"
      "Models a key-value store on two memories and prints rows as one line of JSON; for people:\n"
      "`headrace bench kv --model cxl-a1000`.\n\n";
  Options options;
  for (const Option& option : table(options)) {
    text +=
        fmt::format("  {:<22} {}\n", fmt::format("{} {}", option.name, option.value), option.about);
  }
  return text;
}

}  // namespace headrace::kv_bench
