// SPDX-License-Identifier: Apache-2.0
#include "host/settings/group_hold.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <ranges>
#include <sstream>
#include <thread>
#include <utility>

#include "core/fail.h"
#include "core/text/files.h"
#include "host/cgroups.h"

namespace headrace {
namespace {

using std::filesystem::path;

constexpr std::string_view kMadeFor = "headrace-tier-";
constexpr const char* kState = "group-";
// Limits are rounded to this, so that they do not change with each page.
constexpr std::uint64_t kUnit = 1 << 20;

constexpr const char* kOfOom = "memory.oom_control";

// The last word of the first line: the number in "oom_kill_disable 0".
std::string word_of(const path& file) {
  const std::string line = first_line(file);
  return line.substr(line.rfind(' ') + 1);
}

// One attempt: version 1 is busy as long as the use is above the limit.
Status put_limit(const path& file, const std::string& value) {
  HostFiles files;
  files.busy_bound = {};
  return files.write(file.relative_path(), value);
}

struct Group {
  ControlGroup own;
  path all;  // its folder
};

// The memory cgroup of a process, mounted where systemd mounts it, as everywhere in Headrace.
Result<Group> group_of(int pid, const HostFiles& files) {
  const auto found = memory_group(files, std::to_string(pid));
  const path all = found ? files.path(found->group.folder()) : path();
  if (!found || found->group.outside ||
      (!found->group.name.empty() && !std::filesystem::is_directory(all))) {
    return fail(ErrorCode::unsupported,
                "no memory cgroup of process {} is to be seen here; leave --hold out", pid);
  }
  const MemoryNames& names = memory_names(found->group.version2);
  if (found->group.name.empty() || !std::filesystem::exists(all / names.high)) {
    return fail(ErrorCode::unsupported,
                "process {} is in no memory cgroup of its own, and the root one takes no limit; "
                "start it by headrace tier run --hold cgroup, or by systemd-run --scope",
                pid);
  }
  return Group{found->group, all};
}

Status check_alone(int pid, const Group& group) {
  if (group.all.filename().native().starts_with(kMadeFor)) return {};
  std::istringstream pids(read_file(group.all / "cgroup.procs").value_or(std::string()));
  std::size_t others = 0;
  for (int each = 0; pids >> each;) others += each == pid ? 0 : 1;
  std::error_code error;
  for (std::filesystem::directory_iterator each(group.all, error), end; !error && each != end;
       each.increment(error)) {
    others += each->is_directory() ? 1 : 0;
  }
  if (others == 0) return {};
  return fail(ErrorCode::denied,
              "process {} shares its memory cgroup /{} with {} more, which would be held too; "
              "start it by headrace tier run --hold cgroup, or by systemd-run --scope",
              pid, group.own.name, others);
}

// Checks that memory above a limit can be swapped out.
Status check_swaps(const Group& group, const HostFiles& files) {
  const char* const swap = memory_names(group.own.version2).swap;
  for (path name = group.own.name; !name.empty(); name = name.parent_path()) {
    const path file = files.path(group.own.mount) / name / swap;
    if (std::filesystem::exists(file) && limit_in(word_of(file)) < kNoLimit) {
      return fail(ErrorCode::denied,
                  "the memory cgroup /{} limits swap ({} is {}), so that a limit on memory might "
                  "stop the process; lift that, or leave --hold out",
                  name.native(), swap, word_of(file));
    }
  }
  // Version 2 has one value for the host.
  const path own = group.all / "memory.swappiness";
  const bool has_own = std::filesystem::exists(own);
  if (word_of(has_own ? own : files.path("proc/sys/vm/swappiness")) == "0") {
    return fail(ErrorCode::denied,
                "the memory cgroup /{} does not swap ({} is 0); raise it, or leave --hold out",
                group.own.name, has_own ? "memory.swappiness" : "vm.swappiness");
  }
  return {};
}

// Identifies a group independently of its path; 0: it is gone.
std::uint64_t number_of(const path& group) {
  struct stat about{};
  return ::stat(group.c_str(), &about) == 0 ? about.st_ino : 0;
}

// Excludes restoring for killed holders while a holder begins.
Result<OwnDescriptor> alone_with_groups(const path& directory) {
  return open_locked(directory / "groups.lock", LOCK_EX);
}

// Unlocked anonymous memory of a process.
Bytes movable(int pid, const path& root) {
  const std::string text =
      read_file(root / fmt::format("proc/{}/status", pid)).value_or(std::string());
  const Bytes all = kib_after(text, "RssAnon:");
  return all - std::min(all, kib_after(text, "VmLck:"));
}

// Swapped memory whose pages are not yet freed: in the swap cache and not mapped. Pages that a read
// brought back are mapped, and count as the process's.
Bytes out_and_cached(const path& group, const MemoryNames& names) {
  const std::string text = read_file(group / "memory.stat").value_or(std::string());
  const auto field = [&](std::string_view name) {
    return count_after(text, fmt::format("{} ", name));
  };
  const std::uint64_t listed = field("active_anon") + field("inactive_anon");
  const std::uint64_t mapped = field(names.anon) + field("shmem");
  return {std::min(field("swapcached"), listed - std::min(listed, mapped))};
}

// The namespace in which the group paths here are valid.
std::string cgroup_namespace() {
  std::error_code error;
  return std::filesystem::read_symlink("/proc/self/ns/cgroup", error).native();
}

struct PutBack {
  bool any = false;   // a setting was restored
  bool done = false;  // nothing is left to restore, as far as visible from here
};

// Restores settings that still have the holder's value, the last one or the one being written when
// it was killed. Requires: `file` is the locked file named `state`.
PutBack put_group_back(const OwnDescriptor& file, const path& state) {
  std::istringstream lines(text_of(file));
  std::string where, group;
  if (!std::getline(lines, where) || !std::getline(lines, group)) return {.done = true};
  if (where != cgroup_namespace()) return {};
  if (state.filename() != kState + std::to_string(number_of(group))) return {.done = true};  // gone
  std::vector<std::pair<path, std::string>> back;
  PutBack put{.done = true};
  for (std::string line; std::getline(lines, line) && !line.empty();) {
    std::istringstream words(line);
    std::string name, before, now, next;
    if (!(words >> name >> before >> now >> next)) continue;
    const std::string said = word_of(path(group) / name);
    if (said.empty()) put.done = false;
    if (said == before || (said != now && said != next)) continue;
    back.emplace_back(path(group) / name, before);
  }
  // The limit first, then the setting made before it.
  for (const auto& [setting, before] : std::views::reverse(back)) {
    const bool back_again = put_limit(setting, before) && word_of(setting) == before;
    put.any = put.any || back_again;
    put.done = put.done && back_again;
  }
  return put;
}

}  // namespace

GroupHold::GroupHold(int pid, path group, path root, path state, OwnDescriptor file,
                     std::vector<Setting> settings, std::unique_ptr<Guardian> guardian)
    : pid_(pid),
      group_(std::move(group)),
      root_(std::move(root)),
      state_(std::move(state)),
      file_(std::move(file)),
      settings_(std::move(settings)),
      guardian_(std::move(guardian)),
      note_(fmt::format("held by {} of {}", settings_.back().file, group_.native())) {}

Result<GroupHold> GroupHold::take(int pid, const path& directory, const path& root) {
  const HostFiles files(root);
  HEADRACE_TRY(const Group group, group_of(pid, files));
  HEADRACE_TRY_STATUS(check_alone(pid, group));
  HEADRACE_TRY_STATUS(check_swaps(group, files));
  std::vector<Setting> settings;
  if (!group.own.version2) settings.push_back({kOfOom, {}, {}});
  settings.push_back({memory_names(group.own.version2).high, {}, {}});
  for (Setting& each : settings) {
    if (::access((group.all / each.file).c_str(), W_OK) != 0) {
      return fail(ErrorCode::denied,
                  "{} of the memory cgroup /{} may not be set by this user; run this as root, or "
                  "leave --hold out",
                  each.file, group.own.name);
    }
  }
  HEADRACE_TRY(const OwnDescriptor excluded, alone_with_groups(directory));
  const path state = directory / (kState + std::to_string(number_of(group.all)));
  auto file = open_locked(state, LOCK_EX | LOCK_NB);
  // The guardian of a killed holder keeps the lock until it has restored the settings.
  for (int i = 0; i < 10 && !file && file.error().code == ErrorCode::exhausted; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds{100});
    file = open_locked(state, LOCK_EX | LOCK_NB);
  }
  if (!file && file.error().code == ErrorCode::exhausted) {
    return fail(ErrorCode::exhausted,
                "another headrace tier holds the memory cgroup /{}; end that one, or leave --hold "
                "out",
                group.own.name);
  }
  if (!file) return Unexpected(file.error());
  if (!put_group_back(*file, state).done) {
    return fail(ErrorCode::denied,
                "what a killed tier left in the memory cgroup /{} cannot be put back here; {} says "
                "what it is",
                group.own.name, state.native());
  }
  std::vector<Guardian::Limit> limits;
  for (Setting& each : settings) {
    each.now = each.before = word_of(group.all / each.file);
    limits.push_back({group.all / each.file, each.before});
  }
  HEADRACE_TRY(auto guardian, Guardian::start(*file, std::move(limits)));
  return GroupHold(pid, group.all, root, state, *std::move(file), std::move(settings),
                   std::move(guardian));
}

GroupHold::~GroupHold() {
  if (file_.get() < 0 || !origin_.here()) return;
  const auto excluded = alone_with_groups(state_.parent_path());
  if (put_group_back(file_, state_).done) {
    ::unlink(state_.c_str());
  } else {
    guardian_->take_over();
  }
}

// A limit that the guardian lifted must be set again.
void GroupHold::note_lifts() {
  if (!guardian_->has_lifted()) return;
  for (Setting& each : settings_) {
    if (word_of(group_ / each.file) == each.before) each.now = each.before;
  }
}

Status GroupHold::set(Setting& setting, const std::string& value) {
  const path file = group_ / setting.file;
  if (setting.now == value) return {};
  if (!std::filesystem::exists(file)) return fail(ErrorCode::absent, "the cgroup has gone");
  if (word_of(file) != setting.now) note_lifts();
  if (const std::string said = word_of(file); said != setting.now) {
    return fail(
        ErrorCode::denied,
        "another program has set {} to {}, which stays; the cgroup no longer holds the process",
        file.native(), said);
  }
  // Records the change before making it.
  std::string text = cgroup_namespace() + "\n" + group_.native() + "\n";
  for (const Setting& each : settings_) {
    text += fmt::format("{} {} {} {}\n", each.file, each.before, each.now,
                        &each == &setting ? value : each.now);
  }
  HEADRACE_TRY_STATUS(headrace::note(file_, text + "\n"));
  const auto number = static_cast<std::size_t>(&setting - settings_.data());
  guardian_->expect(number, limit_in(value));
  const Status written = put_limit(file, value);
  // Version 1 refuses a limit below the present use; then the last one stays for now.
  if (!written && written.error().code != ErrorCode::exhausted) return written;
  setting.now = word_of(file);
  guardian_->expect(number, limit_in(setting.now));
  return {};
}

Status GroupHold::keep(std::optional<Bytes> budget) {
  guardian_->beat();
  note_lifts();
  if (budget && guardian_->ended()) {
    return fail(
        ErrorCode::denied,
        "the guardian, which lifts the limit when headrace is stopped, was killed; the cgroup "
        "no longer holds the process");
  }
  if (!budget) {
    most_ = Bytes{kNoLimit};
    for (Setting& each : std::views::reverse(settings_)) {
      HEADRACE_TRY_STATUS(set(each, each.before));
    }
    return {};
  }
  const bool first = settings_.size() > 1;
  const MemoryNames& names = memory_names(!first);
  const std::uint64_t used = limit_in(word_of(group_ / names.used));
  if (used == kNoLimit) return fail(ErrorCode::absent, "the cgroup has gone");
  const Bytes movable_now = movable(pid_, root_);
  most_ = std::max(*budget, std::min(most_, movable_now));
  const Bytes moved = movable_now + out_and_cached(group_, names);
  const std::uint64_t others = used - std::min(used, moved.value);
  const std::uint64_t limit = (others + most_.value + kUnit - 1) / kUnit * kUnit;
  Setting& last = settings_.back();
  // The guardian's pending write would undo one of the two settings made here.
  if (guardian_->is_lifting()) return {};
  // Retries if the guardian lifted one of the two settings while this process was delayed between
  // them: a limit must not stay in a group that kills at it.
  for (int i = 0; i < 3; ++i) {
    if (first) HEADRACE_TRY_STATUS(set(settings_.front(), "1"));
    HEADRACE_TRY_STATUS(
        set(last, limit < limit_in(last.before) ? std::to_string(limit) : last.before));
    note_lifts();
    if (!guardian_->is_lifting() && (!first || settings_.front().now == "1")) return {};
  }
  return set(last, last.before);
}

bool restore_groups(const path& directory) {
  const auto excluded = alone_with_groups(directory);
  bool any = false;
  std::error_code error;
  for (std::filesystem::directory_iterator each(directory, error), end;
       excluded && !error && each != end; each.increment(error)) {
    if (!each->path().filename().native().starts_with(kState)) continue;
    const auto file = open_locked(each->path(), LOCK_EX | LOCK_NB);
    if (!file) continue;
    const PutBack put = put_group_back(*file, each->path());
    any = any || put.any;
    if (put.done) ::unlink(each->path().c_str());
  }
  return any;
}

}  // namespace headrace
