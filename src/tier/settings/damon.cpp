// SPDX-License-Identifier: Apache-2.0
#include "tier/settings/damon.h"

#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <thread>
#include <utility>

#include "core/fail.h"
#include "core/fork.h"
#include "headrace/clock.h"

namespace headrace {
namespace {

using std::filesystem::path;

// Slow enough for a large process, quick enough to follow one. Trials with 5 and 100 ms took hot
// memory for cold when the process touched it every 20 ms.
constexpr Nanoseconds kSample = std::chrono::milliseconds{20};
constexpr Nanoseconds kSpan = std::chrono::milliseconds{400};
// Interval of its search for new mappings.
constexpr Nanoseconds kUpdate = std::chrono::seconds{1};
// Minimum and maximum number of pages checked per sample.
constexpr int kLeastRegions = 100;
constexpr int kMostRegions = 1000;
constexpr std::uint64_t kAny = ~std::uint64_t{0};
constexpr std::uint32_t kAnyAge = ~std::uint32_t{0};
// DAMON's files are busy while another one of them is read.
constexpr Nanoseconds kBusy = std::chrono::seconds{1};
constexpr Nanoseconds kPause = std::chrono::milliseconds{10};

// Retries while the files are busy.
auto until_free(const auto& act) -> decltype(act()) {
  const Nanoseconds begun = system_clock().now();
  while (true) {
    auto done = act();
    if (done || done.error().code != ErrorCode::exhausted || system_clock().now() - begun > kBusy) {
      return done;
    }
    std::this_thread::sleep_for(kPause);
  }
}

Result<std::string> ask(const path& file) {
  return until_free([&] { return read_setting(file); });
}
Status tell(const path& file, std::string_view value) {
  return until_free([&] { return write_setting(file, value); });
}
std::string said(const path& file) { return ask(file).value_or(""); }

template <class Number>
std::optional<Number> number_of(const path& file) {
  const std::string text = said(file);
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end == text.data()) return std::nullopt;
  return number;
}

path kdamonds_below(const path& root) { return root / "sys/kernel/mm/damon/admin/kdamonds"; }

std::string microseconds(Nanoseconds time) { return std::to_string(time.count() / 1000); }

// The settings in order of writing, without the switch.
std::vector<std::pair<path, std::string>> settings_for(int pid) {
  const path context = "0/contexts/0", attributes = context / "monitoring_attrs";
  const path pattern = context / "schemes/0/access_pattern";
  return {{"nr_kdamonds", "1"},
          {"0/contexts/nr_contexts", "1"},
          {context / "operations", "vaddr"},
          {attributes / "intervals/sample_us", microseconds(kSample)},
          {attributes / "intervals/aggr_us", microseconds(kSpan)},
          {attributes / "intervals/update_us", microseconds(kUpdate)},
          {attributes / "nr_regions/min", std::to_string(kLeastRegions)},
          {attributes / "nr_regions/max", std::to_string(kMostRegions)},
          {context / "targets/nr_targets", "1"},
          {context / "targets/0/pid_target", std::to_string(pid)},
          {context / "schemes/nr_schemes", "1"},
          {context / "schemes/0/action", "stat"},
          {pattern / "sz/max", std::to_string(kAny)},
          {pattern / "nr_accesses/min", "1"},
          {pattern / "nr_accesses/max", std::to_string(kSpan / kSample)},
          {pattern / "age/max", std::to_string(kAnyAge)}};
}

// Whether the setup is that of settings_for(), or a prefix of it. An error if it cannot be read, as
// while it is busy.
Result<bool> is_ours(const path& kdamonds, int pid) {
  HEADRACE_TRY(const std::string count, ask(kdamonds / "nr_kdamonds"));
  if (count != "1") return false;
  const path context = kdamonds / "0/contexts/0";
  const std::string process = std::to_string(pid);
  const std::pair<path, std::array<std::string_view, 2>> expected[] = {
      {kdamonds / "0/contexts/nr_contexts", {"0", "1"}},
      {context / "operations", {"vaddr", "vaddr"}},
      {context / "targets/nr_targets", {"0", "1"}},
      {context / "targets/0/pid_target", {"0", process}},
      {context / "schemes/nr_schemes", {"0", "1"}},
      {context / "schemes/0/action", {"stat", "stat"}}};
  for (const auto& [file, any] : expected) {
    const auto text = ask(file);
    if (!text && text.error().code != ErrorCode::absent) return Unexpected(text.error());
    if (text && *text != any[0] && *text != any[1]) return false;
  }
  return true;
}

Status switch_off(const path& kdamonds) {
  (void)tell(kdamonds / "0/state", "off");  // refused if it has ended by itself
  return tell(kdamonds / "nr_kdamonds", "0");
}

// Removes the setup recorded in the file, if it exists already. A setup that cannot be removed, or
// read, stays recorded. Requires: the only holder of the file.
bool take_away(const OwnDescriptor& file, const path& root) {
  const std::string text = text_of(file);
  int pid = 0;
  std::from_chars(text.data(), text.data() + text.size(), pid);
  if (pid <= 0) return false;
  const auto ours = is_ours(kdamonds_below(root), pid);
  if (!ours || (*ours && !switch_off(kdamonds_below(root)))) return false;
  return note(file, "").has_value();
}

// Describes the kdamonds that another program set up.
std::string who(const path& kdamonds) {
  const int count = number_of<int>(kdamonds / "nr_kdamonds").value_or(0);
  std::string words;
  for (int i = 0; i < std::min(count, 3); ++i) {
    const path one = kdamonds / std::to_string(i), context = one / "contexts/0";
    words += fmt::format("{}kdamond {} is {} (PID {}), {}, action {}", i == 0 ? "" : "; ", i,
                         said(one / "state"), said(one / "pid"), said(context / "operations"),
                         said(context / "schemes/0/action"));
  }
  return words + (count > 3 ? fmt::format("; and {} more", count - 3) : "");
}

Status check_free(const path& root) {
  const path kdamonds = kdamonds_below(root);
  const auto count = ask(kdamonds / "nr_kdamonds");
  if (!count && count.error().code == ErrorCode::denied) {
    return fail(ErrorCode::denied, "DAMON takes root; leave --source out, or use sudo");
  }
  if (!count) {
    return fail(ErrorCode::unsupported,
                "the kernel has no DAMON, which takes CONFIG_DAMON_SYSFS and CONFIG_DAMON_VADDR; "
                "leave --source out");
  }
  for (const char* const holder : {"damon_stat", "damon_reclaim", "damon_lru_sort"}) {
    if (said(root / "sys/module" / holder / "parameters/enabled") == "Y") {
      return fail(ErrorCode::denied,
                  "the kernel runs DAMON for itself ({0}), so no other program can; echo N > "
                  "/sys/module/{0}/parameters/enabled, or leave --source out",
                  holder);
    }
  }
  if (*count != "0") {
    return fail(ErrorCode::denied,
                "somebody else has set up DAMON, which is left alone: {}; leave --source out, or "
                "have them end it",
                who(kdamonds));
  }
  return {};
}

class Kdamond final : public RegionSampler {
 public:
  Kdamond(const path& root, OwnDescriptor file)
      : root_(root), kdamonds_(kdamonds_below(root)), file_(std::move(file)) {}
  ~Kdamond() override {
    if (origin_.here()) take_away(file_, root_);
  }
  Status begin(int pid);
  Result<std::vector<SampledRegion>> look() override;
  Nanoseconds sample() const override { return kSample; }
  Nanoseconds span() const override { return kSpan; }
  Nanoseconds cpu() override;

 private:
  const Origin origin_;
  const path root_;
  const path kdamonds_;
  OwnDescriptor file_;
  Nanoseconds cpu_{};
};

Status Kdamond::begin(int pid) {
  // Records the change before making it.
  HEADRACE_TRY_STATUS(note(file_, fmt::format("{}\n", pid)));
  for (const auto& [file, value] : settings_for(pid)) {
    HEADRACE_TRY_STATUS(tell(kdamonds_ / file, value));
    if (!file.native().ends_with("nr_contexts")) continue;
    const auto known = ask(kdamonds_ / "0/contexts/0/avail_operations");
    if (known && known->find("vaddr") == known->npos) {
      return fail(ErrorCode::unsupported,
                  "DAMON of this kernel does not watch processes (CONFIG_DAMON_VADDR); leave "
                  "--source out");
    }
  }
  return tell(kdamonds_ / "0/state", "on");
}

Result<std::vector<SampledRegion>> Kdamond::look() {
  (void)cpu();  // read while its thread exists
  if (const Status told = tell(kdamonds_ / "0/state", "update_schemes_tried_regions"); !told) {
    if (said(kdamonds_ / "0/state") == "on") return Unexpected(told.error());
    return fail(ErrorCode::denied,
                "DAMON has ended: the process ended, or a program switched it off");
  }
  std::vector<SampledRegion> regions;
  std::error_code error;
  const path tried = kdamonds_ / "0/contexts/0/schemes/0/tried_regions";
  for (std::filesystem::directory_iterator each(tried, error), end; !error && each != end;
       each.increment(error)) {
    const auto begin = number_of<std::uintptr_t>(each->path() / "start");
    const auto after = number_of<std::uintptr_t>(each->path() / "end");
    const auto seen = number_of<int>(each->path() / "nr_accesses");
    if (!begin || !after || *after <= *begin || seen.value_or(0) <= 0) continue;
    const double share = static_cast<double>(*seen) / static_cast<double>(kSpan / kSample);
    regions.push_back({{*begin, *after}, std::min(share, 1.0)});
  }
  if (error) return fail(ErrorCode::io, "cannot read {}: {}", tried.string(), error.message());
  std::ranges::sort(regions, {}, &SampledRegion::begin);
  return regions;
}

Nanoseconds Kdamond::cpu() {
  const auto pid = number_of<int>(kdamonds_ / "0/pid");
  if (!pid || *pid <= 0) return cpu_;
  const auto ran = number_of<std::int64_t>(root_ / fmt::format("proc/{}/schedstat", *pid));
  if (ran) cpu_ = std::max(cpu_, Nanoseconds{*ran});
  return cpu_;
}

}  // namespace

Result<std::unique_ptr<RegionSampler>> watch_by_damon(int pid, const path& directory,
                                                      const path& root) {
  auto file = open_locked(directory / "damon", LOCK_EX | LOCK_NB);
  if (!file && file.error().code == ErrorCode::exhausted) {
    return fail(ErrorCode::exhausted,
                "another headrace tier has DAMON watch its process, and there is one for the host; "
                "leave --source out");
  }
  if (!file) return Unexpected(file.error());
  take_away(*file, root);
  HEADRACE_TRY_STATUS(check_free(root));
  auto kdamond = std::make_unique<Kdamond>(root, *std::move(file));
  HEADRACE_TRY_STATUS(kdamond->begin(pid));
  return kdamond;
}

bool restore_damon(const path& directory, const path& root) {
  if (!std::filesystem::exists(directory / "damon")) return false;
  const auto file = open_locked(directory / "damon", LOCK_EX | LOCK_NB);
  return file && take_away(*file, root);
}

}  // namespace headrace
