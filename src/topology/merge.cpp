// Several launches of the same measurement as one profile.
#include <algorithm>
#include <map>

#include "core/fail.h"
#include "headrace/profile.h"
#include "headrace/statistics.h"

namespace headrace {
namespace {

constexpr std::size_t kEnough = 3;  // samples, below which a row is flagged "few"

void set_flag(Row& row, const std::string& flag, bool on) {
  std::erase(row.flags, flag);
  if (on) row.flags.push_back(flag);
}

// All samples together. A launch in a noisy moment is left out where a quiet one is known.
Row merged(std::vector<const Row*> launches) {
  std::erase_if(launches, [](const Row* row) { return !row->value; });
  const auto noisy = [](const Row* row) { return row->has_flag("noisy"); };
  if (!std::ranges::all_of(launches, noisy)) std::erase_if(launches, noisy);
  Row row = *launches.front();
  row.samples.clear();
  std::map<std::string, std::vector<double>> details;
  for (const Row* launch : launches) {
    row.samples.insert(row.samples.end(), launch->samples.begin(), launch->samples.end());
    for (const auto& [name, value] : launch->details) details[name].push_back(value);
  }
  row.value = summarize(row.samples);
  for (const auto& [name, values] : details) row.details[name] = *median(values);
  set_flag(row, "few", row.samples.size() < kEnough);
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
  all.conditions["launches"] = std::to_string(launches.size());
  return all;
}

}  // namespace headrace
