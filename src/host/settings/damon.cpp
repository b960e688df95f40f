// SPDX-License-Identifier: Apache-2.0
#include "host/settings/damon.h"

#include <fmt/ranges.h>
#include <sys/file.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <utility>

#include "core/fail.h"
#include "core/fork.h"

namespace headrace {
namespace {

// Slow enough for a large process, quick enough to follow one. Trials with 5 and 100 ms took hot
// memory for cold when the process touched it every 20 ms.
constexpr Nanoseconds kSample = std::chrono::milliseconds{20};
constexpr Nanoseconds kSpan = std::chrono::milliseconds{400};
// Interval of its search for new mappings.
constexpr Nanoseconds kUpdate = std::chrono::seconds{1};
// Maximum number of pages checked per sample.
constexpr int kMostRegions = 1000;
constexpr std::uint64_t kAny = ~std::uint64_t{0};
constexpr std::uint32_t kAnyAge = ~std::uint32_t{0};

std::string in_kdamonds(const std::string& name) { return fmt::format("{}/{}", kKdamonds, name); }
std::string nr_kdamonds() { return in_kdamonds("nr_kdamonds"); }

template <class Number>
std::optional<Number> number_of(const std::string& text) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end == text.data()) return std::nullopt;
  return number;
}

std::string microseconds(Nanoseconds time) { return std::to_string(time.count() / 1000); }

KdamondSetup setup_for(int pid) {
  return {.pid = pid,
          .regions = {},
          .sample = kSample,
          .aggregation = kSpan,
          .update = kUpdate,
          .most_regions = kMostRegions,
          .action = "stat",
          .least_accesses = 1,
          .most_accesses = static_cast<std::uint64_t>(kSpan / kSample)};
}

// Whether the setup is that of setup_for(), or a prefix of it. An error if it cannot be read, as
// while it is busy.
Result<bool> is_ours(const HostFiles& files, int pid) {
  HEADRACE_TRY(const std::string count, files.read(nr_kdamonds()));
  if (count != "1") return false;
  const std::string process = std::to_string(pid);
  const std::pair<std::string, std::array<std::string_view, 2>> expected[] = {
      {"nr_contexts", {"0", "1"}},          {"0/operations", {"vaddr", "vaddr"}},
      {"0/targets/nr_targets", {"0", "1"}}, {"0/targets/0/pid_target", {"0", process}},
      {"0/schemes/nr_schemes", {"0", "1"}}, {"0/schemes/0/action", {"stat", "stat"}}};
  for (const auto& [name, any] : expected) {
    const auto text = files.read(in_kdamonds("0/contexts/" + name));
    if (!text && text.error().code != ErrorCode::absent) return Unexpected(text.error());
    if (text && *text != any[0] && *text != any[1]) return false;
  }
  return true;
}

Status switch_off(const HostFiles& files) {
  (void)files.write(in_kdamonds("0/state"), "off");  // refused if it has ended by itself
  return files.write(nr_kdamonds(), "0");
}

// Removes the setup recorded in the file, if it exists already. A setup that cannot be removed, or
// read, stays recorded. Requires: the only holder of the file.
bool take_away(const OwnDescriptor& file, const HostFiles& files) {
  const int pid = number_of<int>(text_of(file)).value_or(0);
  if (pid <= 0) return false;
  const auto ours = is_ours(files, pid);
  if (!ours || (*ours && !switch_off(files))) return false;
  return note(file, "").has_value();
}

// The texts of all files of a pattern.
std::vector<std::string> all_of(const HostFiles& files, const std::string& pattern) {
  std::vector<std::string> texts;
  const auto names = files.names(pattern);
  if (!names) return {"unknown"};
  for (const std::string& name : *names) {
    texts.push_back(files.read(name).value_or("unknown"));
  }
  return texts;
}

// Describes the kdamonds that another program set up.
std::string who(const std::vector<Kdamond>& all) {
  std::string words;
  for (std::size_t i = 0; i < std::min<std::size_t>(all.size(), 3); ++i) {
    words += fmt::format("{}kdamond {} is {} (PID {}), {}, action {}", i == 0 ? "" : "; ", i,
                         all[i].state, all[i].pid.value_or(-1),
                         fmt::join(all[i].operations, " and "), fmt::join(all[i].actions, " and "));
  }
  return words + (all.size() > 3 ? fmt::format("; and {} more", all.size() - 3) : "");
}

class Observer final : public RegionSampler {
 public:
  Observer(const HostFiles& files, OwnDescriptor file) : files_(files), file_(std::move(file)) {}
  ~Observer() override {
    if (origin_.here()) take_away(file_, files_);
  }
  Status begin(int pid);
  Result<std::vector<SampledRegion>> look() override;
  Nanoseconds sample() const override { return kSample; }
  Nanoseconds span() const override { return kSpan; }
  Nanoseconds cpu() override;

 private:
  const Origin origin_;
  const HostFiles files_;
  OwnDescriptor file_;
  Nanoseconds cpu_{};
};

Status Observer::begin(int pid) {
  // Records the change before making it.
  HEADRACE_TRY_STATUS(note(file_, fmt::format("{}\n", pid)));
  HEADRACE_TRY_STATUS(files_.write(nr_kdamonds(), "1"));
  for (const auto& [name, value] : files_of(setup_for(pid), 0)) {
    HEADRACE_TRY_STATUS(files_.write(name, value));
    if (!name.ends_with("nr_contexts")) continue;
    const auto known = files_.read(in_kdamonds("0/contexts/0/avail_operations"));
    if (known && known->find("vaddr") == known->npos) {
      return fail(ErrorCode::unsupported,
                  "DAMON of this kernel does not watch processes (CONFIG_DAMON_VADDR); leave "
                  "--source out");
    }
  }
  return files_.write(in_kdamonds("0/state"), "on");
}

Result<std::vector<SampledRegion>> Observer::look() {
  (void)cpu();  // read while its thread exists
  const std::string state = in_kdamonds("0/state");
  if (const Status told = files_.write(state, "update_schemes_tried_regions"); !told) {
    if (files_.text(state) == "on") return Unexpected(told.error());
    return fail(ErrorCode::denied,
                "DAMON has ended: the process ended, or a program switched it off");
  }
  std::vector<SampledRegion> regions;
  const std::string tried = in_kdamonds("0/contexts/0/schemes/0/tried_regions");
  HEADRACE_TRY(const std::vector<std::string> names, files_.names(tried + "/[0-9]*"));
  for (const std::string& region : names) {
    HEADRACE_TRY(const std::string start, files_.read(region + "/start"));
    HEADRACE_TRY(const std::string end, files_.read(region + "/end"));
    HEADRACE_TRY(const std::string accesses, files_.read(region + "/nr_accesses"));
    const auto begin = number_of<std::uintptr_t>(start);
    const auto after = number_of<std::uintptr_t>(end);
    const auto seen = number_of<int>(accesses);
    if (!begin || !after || *after <= *begin || seen.value_or(0) <= 0) continue;
    const double share = static_cast<double>(*seen) / static_cast<double>(kSpan / kSample);
    regions.push_back({*begin, *after, std::min(share, 1.0)});
  }
  std::ranges::sort(regions, {}, &SampledRegion::begin);
  return regions;
}

Nanoseconds Observer::cpu() {
  const auto pid = number_of<int>(files_.text(in_kdamonds("0/pid")));
  if (!pid || *pid <= 0) return cpu_;
  const auto ran = number_of<std::int64_t>(files_.text(fmt::format("proc/{}/schedstat", *pid)));
  if (ran) cpu_ = std::max(cpu_, Nanoseconds{*ran});
  return cpu_;
}

}  // namespace

Result<std::vector<Kdamond>> kdamonds(const HostFiles& files) {
  HEADRACE_TRY(const std::string count, files.read(nr_kdamonds()));
  std::vector<Kdamond> found;
  for (int i = 0; i < number_of<int>(count).value_or(0); ++i) {
    const std::string base = in_kdamonds(std::to_string(i));
    const auto pid = number_of<int>(files.text(base + "/pid"));
    found.push_back({.number = i,
                     .state = files.read(base + "/state").value_or("unknown"),
                     .pid = pid.value_or(-1) < 0 ? std::nullopt : pid,
                     .operations = all_of(files, base + "/contexts/*/operations"),
                     .actions = all_of(files, base + "/contexts/*/schemes/*/action")});
  }
  return found;
}

Result<std::vector<std::string>> damon_holders(const HostFiles& files) {
  std::vector<std::string> found;
  for (const char* const holder : {"damon_stat", "damon_reclaim", "damon_lru_sort"}) {
    const std::string name = fmt::format("sys/module/{}/parameters/enabled", holder);
    const auto text = files.read(name);
    if (!text && text.error().code != ErrorCode::absent) return Unexpected(text.error());
    if (text && *text == "1") found.push_back(name);
  }
  return found;
}

Status check_damon_free(const HostFiles& files, const char* config, const char* option) {
  const auto here = kdamonds(files);
  if (!here && here.error().code == ErrorCode::denied) {
    return fail(ErrorCode::denied, "DAMON takes root; use sudo, or leave {} out", option);
  }
  if (!here) {
    return fail(ErrorCode::unsupported,
                "the kernel has no DAMON, which takes CONFIG_DAMON_SYSFS and {}; leave {} out",
                config, option);
  }
  HEADRACE_TRY(const std::vector<std::string> holders, damon_holders(files));
  if (!holders.empty()) {
    return fail(ErrorCode::denied,
                "the kernel runs DAMON for itself (/{0} is Y), so no other program can; echo N > "
                "/{0}, or leave {1} out",
                holders.front(), option);
  }
  if (here->empty()) return {};
  return fail(ErrorCode::denied,
              "somebody else has set up DAMON, which is left alone: {}; leave {} out, or have them "
              "end it",
              who(*here), option);
}

FileValues files_of(const KdamondSetup& setup, int number) {
  const std::string base = in_kdamonds(fmt::format("{}/contexts", number)), context = base + "/0";
  const std::string attributes = context + "/monitoring_attrs";
  const std::string scheme = context + "/schemes/0", pattern = scheme + "/access_pattern";
  FileValues files;
  const auto put = [&](std::string name, const auto& value) {
    files.emplace_back(std::move(name), fmt::format("{}", value));
  };
  const auto put_if = [&](std::string name, const auto& value) {
    if (value) put(std::move(name), *value);
  };
  put(base + "/nr_contexts", 1);
  put(context + "/operations", setup.pid ? "vaddr" : "paddr");
  put(attributes + "/intervals/sample_us", microseconds(setup.sample));
  put(attributes + "/intervals/aggr_us", microseconds(setup.aggregation));
  if (setup.update) put(attributes + "/intervals/update_us", microseconds(*setup.update));
  put(attributes + "/nr_regions/min", setup.least_regions);
  put_if(attributes + "/nr_regions/max", setup.most_regions);
  put(context + "/targets/nr_targets", 1);
  put_if(context + "/targets/0/pid_target", setup.pid);
  const std::string regions = context + "/targets/0/regions";
  if (!setup.pid) put(regions + "/nr_regions", setup.regions.size());
  for (std::size_t i = 0; i < setup.regions.size(); ++i) {
    put(fmt::format("{}/{}/start", regions, i), setup.regions[i].first);
    put(fmt::format("{}/{}/end", regions, i), setup.regions[i].second);
  }
  put(context + "/schemes/nr_schemes", 1);
  put(scheme + "/action", setup.action);
  if (setup.target) put(scheme + "/target_nid", raw(*setup.target));
  put(pattern + "/sz/max", kAny);
  put(pattern + "/nr_accesses/min", setup.least_accesses);
  put(pattern + "/nr_accesses/max", setup.most_accesses);
  put_if(pattern + "/age/min", setup.least_age);
  put(pattern + "/age/max", kAnyAge);
  if (!setup.bytes_per_second) return files;
  const std::string quotas = scheme + "/quotas";
  put(quotas + "/bytes", std::max<std::uint64_t>(*setup.bytes_per_second, 1));  // 0 is no quota
  put(quotas + "/reset_interval_ms", 1000);
  put(quotas + "/weights/nr_accesses_permil", 1000);
  put(quotas + "/weights/age_permil", 1000);
  return files;
}

Result<std::unique_ptr<RegionSampler>> watch_by_damon(int pid,
                                                      const std::filesystem::path& directory,
                                                      const HostFiles& files) {
  auto file = open_locked(directory / "damon", LOCK_EX | LOCK_NB);
  if (!file && file.error().code == ErrorCode::exhausted) {
    return fail(ErrorCode::exhausted,
                "another headrace tier has DAMON watch its process, and there is one for the host; "
                "leave --source out");
  }
  if (!file) return Unexpected(file.error());
  take_away(*file, files);
  HEADRACE_TRY_STATUS(check_damon_free(files, "CONFIG_DAMON_VADDR", "--source"));
  auto observer = std::make_unique<Observer>(files, *std::move(file));
  HEADRACE_TRY_STATUS(observer->begin(pid));
  return observer;
}

bool restore_damon(const std::filesystem::path& directory, const HostFiles& files) {
  std::error_code unreadable;
  if (!std::filesystem::exists(directory / "damon", unreadable)) return false;
  const auto file = open_locked(directory / "damon", LOCK_EX | LOCK_NB);
  return file && take_away(*file, files);
}

}  // namespace headrace
