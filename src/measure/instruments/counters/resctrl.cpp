#include "measure/instruments/counters/resctrl.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/syscall.h>
#include <unistd.h>

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

constexpr std::string_view kOurs = "headrace-";

// What the hardware has no number for reads "Unavailable", "Error" or "Unassigned".
std::optional<double> number_in(const fs::path& path) {
  const std::string line = first_line(path);
  std::uint64_t bytes = 0;
  const auto [end, bad] = std::from_chars(line.data(), line.data() + line.size(), bytes);
  if (bad != std::errc{} || end != line.data() + line.size()) return std::nullopt;
  return static_cast<double>(bytes);
}

// "mbm_total_bytes", or what counts less where that is all there is; "": nothing.
std::string event_of(const fs::path& mounted) {
  std::ifstream features(mounted / "info/L3_MON/mon_features");
  std::string best;
  for (std::string line; std::getline(features, line);) {
    if (line == "mbm_total_bytes" || (line == "mbm_local_bytes" && best.empty())) best = line;
  }
  return best;
}

// A monitor group; the directory is removed with it.
class Group {
 public:
  explicit Group(fs::path path) : path_(std::move(path)) {}
  Group(Group&& other) noexcept : path_(std::exchange(other.path_, {})) {}
  ~Group() {
    if (!path_.empty()) ::rmdir(path_.c_str());
  }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

// Those of sessions that are over: they were killed.
void remove_stale(const fs::path& groups, const fs::path& procfs) {
  std::error_code error;
  std::vector<fs::path> stale;
  for (const auto& entry : fs::directory_iterator(groups, error)) {
    const std::string name = entry.path().filename();
    if (name.starts_with(kOurs) && !fs::exists(procfs / name.substr(kOurs.size()), error)) {
      stale.push_back(entry.path());
    }
  }
  for (const fs::path& path : stale) ::rmdir(path.c_str());
}

// This thread in a group of its own; its children are in it as they begin (clone() copies what
// marks a thread).
std::optional<Group> own_group(const fs::path& mounted) {
  const std::string self = std::to_string(::syscall(SYS_gettid));
  Group group(mounted / "mon_groups" / fmt::format("{}{}", kOurs, self));
  std::error_code error;
  fs::create_directory(group.path(), error);
  if (error) return std::nullopt;
  const int tasks = ::open((group.path() / "tasks").c_str(), O_WRONLY | O_CLOEXEC);
  if (tasks < 0) return std::nullopt;
  const bool taken = ::write(tasks, self.data(), self.size()) == static_cast<ssize_t>(self.size());
  ::close(tasks);
  if (!taken) return std::nullopt;
  return group;
}

class Resctrl final : public BusCounter {
 public:
  Resctrl(std::vector<fs::path> files, std::string words, std::optional<Group> group)
      : files_(std::move(files)), words_(std::move(words)), group_(std::move(group)) {}

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
  // Misses of the cache: those to slow (CXL) and to fast memory too.
  bool counts(const Node&) const override { return true; }

 private:
  const std::vector<fs::path> files_;
  const std::string words_;
  const std::optional<Group> group_;
};

// One for each last-level cache.
std::vector<fs::path> files_below(const fs::path& group, const std::string& event) {
  std::vector<fs::path> files;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(group / "mon_data", error)) {
    const fs::path file = entry.path() / event;
    const bool is_cache = entry.path().filename().string().starts_with("mon_L3_");
    if (is_cache && fs::exists(file, error)) files.push_back(file);
  }
  return files;
}

}  // namespace

Result<std::unique_ptr<BusCounter>> open_resctrl(const fs::path& mounted, const fs::path& procfs) {
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
  remove_stale(mounted / "mon_groups", procfs);
  std::optional<Group> group = own_group(mounted);
  std::vector<fs::path> files = files_below(group ? group->path() : mounted, event);
  if (files.empty()) {
    return fail(ErrorCode::denied, "resctrl shows no counters to this user; run as root");
  }
  std::string words =
      fmt::format("resctrl {} of {} cache{}, {}", event, files.size(), files.size() == 1 ? "" : "s",
                  group ? "of this session" : "of all programs");
  return std::make_unique<Resctrl>(std::move(files), std::move(words), std::move(group));
}

}  // namespace headrace::instruments
