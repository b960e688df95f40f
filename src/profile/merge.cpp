// SPDX-License-Identifier: Apache-2.0
// Merges several launches of the same measurement into one profile.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <set>

#include "core/fail.h"
#include "headrace/profile.h"
#include "headrace/statistics.h"
#include "profile/attributes.h"

namespace headrace {
namespace {

constexpr std::size_t kEnough = 3;  // a row with fewer samples has the flag "few"

void set_flag(Row& row, const std::string& flag, bool on) {
  std::erase(row.flags, flag);
  if (on) row.flags.push_back(flag);
}

// Adds "3 of 9" and "1 of 5" to "4 of 14", and plain numbers.
std::string sum(const std::string& a, const std::string& b) {
  const std::string of = " of ";
  const std::size_t in_a = a.find(of);
  const std::size_t in_b = b.find(of);
  const auto add = [](const std::string& x, const std::string& y) {
    char* end_x = nullptr;
    char* end_y = nullptr;
    const double both = std::strtod(x.c_str(), &end_x) + std::strtod(y.c_str(), &end_y);
    return *end_x != 0 || *end_y != 0 ? x : fmt::format("{}", both);
  };
  if (in_a == std::string::npos || in_b == std::string::npos) return add(a, b);
  return add(a.substr(0, in_a), b.substr(0, in_b)) + of +
         add(a.substr(in_a + of.size()), b.substr(in_b + of.size()));
}

void add_conditions(std::map<std::string, std::string>& all,
                    const std::map<std::string, std::string>& launch) {
  for (const char* name : {"budget_s", "looks_disturbed", "rounds"}) {
    const auto own = launch.find(name);
    const auto known = all.find(name);
    if (own != launch.end() && known != all.end()) known->second = sum(known->second, own->second);
  }
  if (launch.contains("stopped")) all["stopped"] = launch.at("stopped");
}

// A row is from one launch, or from several launches merged before.
void add_launches(std::vector<std::size_t>& all, const Row& row) {
  if (!row.launches.empty()) {
    all.insert(all.end(), row.launches.begin(), row.launches.end());
  } else if (!row.samples.empty()) {
    all.push_back(row.samples.size());
  }
}

// All samples together. A launch in a noisy moment is left out if a quiet one exists.
Row merged(std::vector<const Row*> launches) {
  std::erase_if(launches, [](const Row* row) { return !row->value; });
  const auto noisy = [](const Row* row) { return row->has_flag("noisy"); };
  if (!std::ranges::all_of(launches, noisy)) std::erase_if(launches, noisy);
  Row row = *launches.front();
  row.samples.clear();
  row.launches.clear();
  std::map<std::string, std::vector<double>> details;
  std::map<std::string, std::set<std::string>> words;
  for (const Row* launch : launches) {
    row.samples.insert(row.samples.end(), launch->samples.begin(), launch->samples.end());
    add_launches(row.launches, *launch);
    for (const auto& [name, word] : launch->words) words[name].insert(word);
    for (const auto& [name, value] : launch->details) details[name].push_back(value);
  }
  if (row.launches.size() == 1) row.launches.clear();
  row.value = summarize(row.samples, row.launches);
  for (const auto& [name, values] : details) row.details[name] = *median(values);
  for (const auto& [name, all] : words) row.words[name] = fmt::format("{}", fmt::join(all, "; "));
  set_flag(row, "few", row.samples.size() < kEnough);
  const auto not_huge = [](const Row* launch) { return launch->has_flag("not_huge"); };
  set_flag(row, "not_huge", std::ranges::any_of(launches, not_huge));
  // Set if the middle launch has it, as for mappings.
  for (const char* flag : {"unsteady", "partly_cached"}) {
    const auto have = static_cast<std::size_t>(
        std::ranges::count_if(launches, [&](const Row* launch) { return launch->has_flag(flag); }));
    set_flag(row, flag, 2 * have > launches.size());
  }
  return row;
}

}  // namespace

Result<Profile> merge(std::span<const Profile> launches) {
  if (launches.empty()) return fail(ErrorCode::invalid, "nothing to merge; give a profile");
  Profile all = launches.front();
  std::map<std::string, std::vector<const Row*>> known;
  for (const Profile& launch : launches) {
    if (launch.machine.name != all.machine.name) {
      return fail(ErrorCode::invalid, "profiles of '{}' and '{}' are of two machines; compare them",
                  all.machine.name, launch.machine.name);
    }
    if (&launch != &launches.front()) add_conditions(all.conditions, launch.conditions);
    for (const Row& row : launch.rows) {
      auto& rows = known[row.key()];
      if (rows.empty() && &launch != &launches.front()) all.rows.push_back(row);
      rows.push_back(&row);
    }
  }
  for (Row& row : all.rows) {
    const auto& rows = known.at(row.key());
    const bool any = std::ranges::any_of(
        rows, [](const Row* each) { return each->value && !each->samples.empty(); });
    if (any) row = merged(rows);
  }
  put_into_machine(all);
  all.conditions["launches"] = std::to_string(launches.size());
  return all;
}

}  // namespace headrace
