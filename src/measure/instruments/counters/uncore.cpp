// SPDX-License-Identifier: Apache-2.0
#include "measure/instruments/counters/uncore.h"

#include <fmt/core.h>
#include <linux/perf_event.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <optional>
#include <ranges>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/fail.h"
#include "core/text/files.h"
#include "headrace/cpus.h"

namespace headrace::instruments {
namespace {

namespace fs = std::filesystem;

constexpr double kLineOfBus = 64;
// umc_cas_cmd.all: all CAS commands of a channel.
constexpr std::string_view kAmdEvent = "event=0x0a";

class SystemPerf final : public PerfReader {
 public:
  Result<int> open(const PerfEvent& event) override {
    perf_event_attr attributes{};
    attributes.size = sizeof attributes;
    attributes.type = event.type;
    attributes.config = event.config;
    attributes.read_format = PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING;
    // Counts everything on the CPU: such a PMU cannot tell threads apart.
    const long file =
        ::syscall(SYS_perf_event_open, &attributes, -1, event.cpu, -1, PERF_FLAG_FD_CLOEXEC);
    if (file < 0) return fail_errno(errno, "perf_event_open");
    return static_cast<int>(file);
  }
  Result<PerfCount> read(int event) override {
    std::uint64_t words[3] = {};
    if (::read(event, words, sizeof words) == static_cast<ssize_t>(sizeof words)) {
      return PerfCount{.value = words[0], .enabled = words[1], .running = words[2]};
    }
    return fail_errno(errno, "cannot read a counter of perf");
  }
  void close(int event) override { ::close(event); }
};

template <class T>
std::optional<T> number_of(std::string_view text, int base = 10) {
  T number{};
  std::from_chars_result read{};
  if constexpr (std::is_floating_point_v<T>) {
    read = std::from_chars(text.data(), text.data() + text.size(), number);
  } else {
    read = std::from_chars(text.data(), text.data() + text.size(), number, base);
  }
  if (read.ec != std::errc{} || read.ptr != text.data() + text.size()) return std::nullopt;
  return number;
}

// The bits of a number at the places of a format, "config:0-7,21", lowest first.
std::optional<std::uint64_t> config_of(std::string_view format, std::uint64_t number) {
  constexpr std::string_view kConfig = "config:";
  if (!format.starts_with(kConfig)) return std::nullopt;
  std::uint64_t config = 0;
  for (const auto each : std::views::split(format.substr(kConfig.size()), ',')) {
    const std::string_view range(each);
    const std::size_t dash = std::min(range.find('-'), range.size());
    const auto first = number_of<unsigned>(range.substr(0, dash));
    const auto last = dash == range.size() ? first : number_of<unsigned>(range.substr(dash + 1));
    if (!first || !last || *last < *first || *last > 63) return std::nullopt;
    for (unsigned bit = *first; bit <= *last; ++bit, number >>= 1) config |= (number & 1) << bit;
  }
  return config;
}

// Encodes "event=0x04,umask=0x03" by the formats of its PMU.
std::optional<std::uint64_t> config_of(const fs::path& pmu, std::string_view event) {
  std::uint64_t config = 0;
  for (const auto each : std::views::split(event, ',')) {
    const std::string_view term(each);
    const std::size_t equals = std::min(term.find('='), term.size());
    std::string_view value = equals == term.size() ? "1" : term.substr(equals + 1);
    const bool hex = value.starts_with("0x");
    if (hex) value.remove_prefix(2);
    const auto number = number_of<std::uint64_t>(value, hex ? 16 : 10);
    const std::string format = first_line(pmu / "format" / std::string(term.substr(0, equals)));
    const auto bits = number ? config_of(format, *number) : std::nullopt;
    if (!bits) return std::nullopt;
    config |= *bits;
  }
  return config;
}

// Bytes per count: scale x unit, else a line.
double bytes_per_count(const fs::path& event) {
  const auto scale = number_of<double>(first_line(event.string() + ".scale"));
  if (!scale) return kLineOfBus;
  const std::string unit = first_line(event.string() + ".unit");
  if (unit == "MiB") return *scale * (1 << 20);
  if (unit == "KiB") return *scale * (1 << 10);
  return *scale;
}

struct Opened {
  int event = 0;
  double bytes = 0;     // per count
  PerfCount read = {};  // the last reading
  double counted = 0;   // bytes until the last reading
};

double since(std::uint64_t now, std::uint64_t before) {
  return static_cast<double>(static_cast<std::int64_t>(now - before));
}

class Uncore final : public BusCounter {
 public:
  explicit Uncore(PerfReader& perf) : perf_(perf) {}
  ~Uncore() override {
    for (const Opened& each : opened_) perf_.close(each.event);
  }

  Status add(const PerfEvent& event, double bytes) {
    HEADRACE_TRY(const int number, perf_.open(event));
    opened_.push_back({.event = number, .bytes = bytes});
    return {};
  }

  // If events share a counter, extrapolates each interval between two readings by itself. Scaling
  // the whole count by the whole time would change earlier counts when an event's share changes.
  Result<double> bytes() override {
    double sum = 0;
    for (Opened& each : opened_) {
      HEADRACE_TRY(const PerfCount count, perf_.read(each.event));
      const double running = since(count.running, each.read.running);
      if (running <= 0) return fail(ErrorCode::absent, "a counter of perf did not run meanwhile");
      each.counted += since(count.value, each.read.value) * each.bytes *
                      since(count.enabled, each.read.enabled) / running;
      each.read = count;
      sum += each.counted;
    }
    return sum;
  }
  const std::string& words() const override { return words_; }
  // HBM, CXL and GPUs have other controllers. A memory-side cache serves accesses that then do not
  // reach the controllers.
  bool counts(const Node& node) const override {
    return node.kind == NodeKind::dram && !node.side_cache;
  }
  void set_words(std::string words) { words_ = std::move(words); }

 private:
  PerfReader& perf_;
  std::vector<Opened> opened_;
  std::string words_;
};

// The events of a PMU that count lines: configuration and bytes per count.
std::vector<std::pair<std::uint64_t, double>> events_of(const fs::path& pmu) {
  std::vector<std::pair<std::uint64_t, double>> events;
  std::error_code error;
  if (pmu.filename().string().starts_with("amd_umc")) {
    if (const auto config = config_of(pmu, kAmdEvent)) events.emplace_back(*config, kLineOfBus);
    return events;
  }
  for (const auto& entry : fs::directory_iterator(pmu / "events", error)) {
    const std::string name = entry.path().filename();
    const bool counts = name.starts_with("cas_count_read") || name.starts_with("cas_count_write");
    if (!counts || name.find('.') != std::string::npos) continue;
    if (const auto config = config_of(pmu, first_line(entry.path()))) {
      events.emplace_back(*config, bytes_per_count(entry.path()));
    }
  }
  return events;
}

Unexpected refused(const Error& error) {
  if (error.code != ErrorCode::denied) return Unexpected(error);
  return fail(ErrorCode::denied,
              "memory controllers count for root alone: sudo sysctl kernel.perf_event_paranoid=0, "
              "or CAP_PERFMON");
}

}  // namespace

PerfReader& system_perf() {
  static SystemPerf perf;
  return perf;
}

Result<std::unique_ptr<BusCounter>> open_uncore(const fs::path& sysfs, PerfReader& perf) {
  auto counter = std::make_unique<Uncore>(perf);
  std::size_t controllers = 0;
  std::string first;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(sysfs / "bus/event_source/devices", error)) {
    const fs::path& pmu = entry.path();
    const auto type = number_of<std::uint32_t>(first_line(pmu / "type"));
    const auto cpus = parse_cpu_list(first_line(pmu / "cpumask"));
    if (!type || !cpus || cpus->empty()) continue;
    const auto events = events_of(pmu);
    if (events.empty()) continue;
    ++controllers;
    const std::string name = pmu.filename();
    if (first.empty() || name < first) first = name;
    for (const unsigned cpu : *cpus) {
      for (const auto& [config, bytes] : events) {
        const PerfEvent event{*type, config, static_cast<int>(cpu)};
        if (const Status added = counter->add(event, bytes); !added) return refused(added.error());
      }
    }
  }
  if (controllers == 0) {
    return fail(ErrorCode::absent, "no PMU of a memory controller (virtual machines have none)");
  }
  counter->set_words(
      fmt::format("DDR controllers ({} and {} more): lines read and written, of all programs",
                  first, controllers - 1));
  return counter;
}

}  // namespace headrace::instruments
