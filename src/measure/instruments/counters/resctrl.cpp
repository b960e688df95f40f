// SPDX-License-Identifier: Apache-2.0
#include "measure/instruments/counters/resctrl.h"

#include <fmt/core.h>

#include <charconv>
#include <fstream>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "core/fail.h"
#include "core/text/files.h"

namespace headrace::instruments {
namespace {

namespace fs = std::filesystem;

// nullopt: the hardware has no number, and the file says "Unavailable", "Error" or "Unassigned".
std::optional<double> number_in(const fs::path& path) {
  const std::string line = first_line(path);
  std::uint64_t bytes = 0;
  const auto [end, bad] = std::from_chars(line.data(), line.data() + line.size(), bytes);
  if (bad != std::errc{} || end != line.data() + line.size()) return std::nullopt;
  return static_cast<double>(bytes);
}

// "mbm_total_bytes", or an event that counts less if there is no other; "": none.
std::string event_of(const fs::path& mounted) {
  std::ifstream features(mounted / "info/L3_MON/mon_features");
  std::string best;
  for (std::string line; std::getline(features, line);) {
    if (line == "mbm_total_bytes" || (line == "mbm_local_bytes" && best.empty())) best = line;
  }
  return best;
}

class Resctrl final : public BusCounter {
 public:
  Resctrl(std::vector<fs::path> files, std::string words)
      : files_(std::move(files)), words_(std::move(words)) {}

  Result<double> bytes() override {
    double sum = 0;
    for (const fs::path& file : files_) {
      const auto bytes = number_in(file);
      if (!bytes) return fail(ErrorCode::absent, "{} has no number now", file.string());
      sum += *bytes;
    }
    return sum;
  }
  const std::string& words() const override { return words_; }
  // Counts misses of the cache, to slow (CXL) and fast memory alike.
  bool counts(const Node&) const override { return true; }

 private:
  const std::vector<fs::path> files_;
  const std::string words_;
};

// One file per last-level cache.
std::vector<fs::path> files_of(const fs::path& mounted, const std::string& event) {
  std::vector<fs::path> files;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(mounted / "mon_data", error)) {
    const fs::path file = entry.path() / event;
    const bool is_cache = entry.path().filename().string().starts_with("mon_L3_");
    if (is_cache && fs::exists(file, error)) files.push_back(file);
  }
  return files;
}

}  // namespace

Result<std::unique_ptr<BusCounter>> open_resctrl(const fs::path& mounted) {
  std::error_code error;
  if (!fs::is_directory(mounted, error)) {
    return fail(ErrorCode::absent, "no resctrl: the CPU has no MBM, or the kernel shows none");
  }
  if (!fs::exists(mounted / "info", error)) {
    return fail(ErrorCode::absent, "resctrl is not mounted: sudo mount -t resctrl resctrl {}",
                mounted.string());
  }
  const std::string event = event_of(mounted);
  if (event.empty()) {
    return fail(ErrorCode::unsupported, "resctrl counts no bytes: this CPU has no MBM");
  }
  std::vector<fs::path> files = files_of(mounted, event);
  if (files.empty()) {
    return fail(ErrorCode::denied, "resctrl shows no counters to this user; run as root");
  }
  std::string words = fmt::format("resctrl {} of {} cache{}, of all programs", event, files.size(),
                                  files.size() == 1 ? "" : "s");
  return std::make_unique<Resctrl>(std::move(files), std::move(words));
}

}  // namespace headrace::instruments
