// SPDX-License-Identifier: Apache-2.0
#include "measure/instruments/counters/resctrl.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
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

// A monitor group that this process made; its directory is removed with it.
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

// "headrace-4026531836-": the namespace in which a process number is valid. Several namespaces may
// see the same file system.
std::string prefix_of_groups(const fs::path& procfs) {
  std::error_code error;
  std::string space = fs::read_symlink(procfs / "self/ns/pid", error).string();  // "pid:[40265...]"
  std::erase_if(space, [](char c) { return c < '0' || c > '9'; });
  return fmt::format("{}{}-", kOurs, space);
}

// Removes groups of processes that were killed. If the number is in use again, the group stays
// until that process ends.
void remove_stale(const fs::path& groups, const fs::path& procfs) {
  std::error_code error;
  // A /proc that does not show this process shows no other.
  if (!fs::exists(procfs / std::to_string(::getpid()), error)) return;
  const std::string prefix = prefix_of_groups(procfs);
  std::vector<fs::path> stale;
  for (const auto& entry : fs::directory_iterator(groups, error)) {
    const std::string name = entry.path().filename();
    if (!name.starts_with(prefix)) continue;
    const std::string process = name.substr(prefix.size(), name.rfind('-') - prefix.size());
    const bool number = process.find_first_not_of("0123456789") == std::string::npos;
    if (number && !process.empty() && !fs::exists(procfs / process, error)) {
      stale.push_back(entry.path());
    }
  }
  for (const fs::path& path : stale) ::rmdir(path.c_str());
}

// A new group; one that exists was left by a killed process of our number and is not ours.
std::optional<Group> new_group(const fs::path& groups, const fs::path& procfs,
                               const MakeDirectory& make) {
  constexpr int kTries = 16;
  static std::atomic<unsigned> next{0};
  const std::string prefix = prefix_of_groups(procfs);
  std::error_code error;
  for (int i = 0; i < kTries; ++i) {
    const fs::path path = groups / fmt::format("{}{}-{}", prefix, ::getpid(), next.fetch_add(1));
    if (make(path)) return std::optional<Group>(std::in_place, path);
    if (!fs::exists(path, error)) break;
  }
  return std::nullopt;
}

// Puts this thread in a group of its own. Later children are in it too (clone() copies the mark of
// a thread).
std::optional<Group> own_group(const fs::path& mounted, const fs::path& procfs,
                               const MakeDirectory& make) {
  const std::string self = std::to_string(::syscall(SYS_gettid));
  std::optional<Group> made = new_group(mounted / "mon_groups", procfs, make);
  if (!made) return std::nullopt;
  const Group& group = *made;
  const int tasks = ::open((group.path() / "tasks").c_str(), O_WRONLY | O_CLOEXEC);
  if (tasks < 0) return std::nullopt;
  const bool taken = ::write(tasks, self.data(), self.size()) == static_cast<ssize_t>(self.size());
  ::close(tasks);
  if (!taken) return std::nullopt;
  return made;
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
  // Counts misses of the cache, to slow (CXL) and fast memory alike.
  bool counts(const Node&) const override { return true; }

 private:
  const std::vector<fs::path> files_;
  const std::string words_;
  const std::optional<Group> group_;
};

// One file per last-level cache.
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

bool make_directory(const fs::path& path) { return ::mkdir(path.c_str(), 0755) == 0; }

Result<std::unique_ptr<BusCounter>> open_resctrl(const fs::path& mounted, const fs::path& procfs,
                                                 const MakeDirectory& make) {
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
  std::optional<Group> group = own_group(mounted, procfs, make);
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
