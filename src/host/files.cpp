// SPDX-License-Identifier: Apache-2.0
#include "host/files.h"

#include <fcntl.h>
#include <fnmatch.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <thread>
#include <tuple>
#include <utility>

#include "core/fail.h"
#include "headrace/clock.h"

namespace headrace {
namespace {

constexpr Nanoseconds kPause = std::chrono::milliseconds{10};
constexpr std::string_view kBlank = " \t\n";

struct Closing {
  const int file;
  ~Closing() {
    if (file >= 0) ::close(file);
  }
};

int read_file_once(const std::filesystem::path& path, std::string& text) {
  const Closing opened(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (opened.file < 0) return errno;
  std::array<char, 4096> part;
  ssize_t got = 0;
  while ((got = ::read(opened.file, part.data(), part.size())) != 0) {
    if (got < 0 && errno != EINTR) return errno;
    text.append(part.data(), static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
  }
  const auto begin = std::min(text.find_first_not_of(kBlank), text.size());
  text.erase(text.find_last_not_of(kBlank) + 1).erase(0, begin);
  return 0;
}

int write_file_once(const std::filesystem::path& path, std::string_view value) {
  const Closing opened(::open(path.c_str(), O_WRONLY | O_TRUNC | O_CLOEXEC));
  const std::string line = std::string(value) + "\n";
  const ssize_t put = opened.file < 0 ? -1 : ::write(opened.file, line.data(), line.size());
  if (put < 0) return errno;
  return put == static_cast<ssize_t>(line.size()) ? 0 : EIO;
}

Unexpected refused(int error, std::string_view what) {
  if (error == EBUSY) return fail(ErrorCode::exhausted, "{}: it is busy", what);
  return fail_errno(error, what);
}

// Repeats `attempt` while it returns EBUSY.
int until_free(const HostFiles& files, const auto& attempt) {
  const Nanoseconds begun = system_clock().now();
  int error = attempt();
  while (error == EBUSY && system_clock().now() - begun < files.busy_bound) {
    files.pause(kPause);
    error = attempt();
  }
  return error;
}

}  // namespace

HostFiles::HostFiles(std::filesystem::path root)
    : root_(std::move(root)), sysfs_(root_ / "sys"), procfs_(root_ / "proc") {}
HostFiles::HostFiles(std::filesystem::path sysfs, std::filesystem::path procfs)
    : root_("/"), sysfs_(std::move(sysfs)), procfs_(std::move(procfs)) {}

std::filesystem::path HostFiles::path(const std::string& name) const {
  // Strings, since joining paths of several parts frees memory twice in libstdc++ 12 when it runs
  // out of memory.
  const std::string top = name.substr(0, name.find('/'));
  if (top == "sys") return sysfs_.native() + name.substr(top.size());
  if (top == "proc") return procfs_.native() + name.substr(top.size());
  return (root_ == "/" ? std::string() : root_.native()) + "/" + name;
}

void HostFiles::pause(Nanoseconds time) const { std::this_thread::sleep_for(time); }

int HostFiles::read_once(const std::string& name, std::string& text) const {
  return read_file_once(path(name), text);
}
int HostFiles::write_once(const std::string& name, const std::string& value) const {
  return write_file_once(path(name), value);
}

Result<std::string> HostFiles::read(const std::string& name) const {
  std::string text;
  const int error = until_free(*this, [&] {
    text.clear();
    return read_once(name, text);
  });
  if (code_of_errno(error) == ErrorCode::denied) {
    return fail(ErrorCode::denied, "only root may read /{}; use sudo", name);
  }
  if (error != 0) return refused(error, fmt::format("cannot read /{}", name));
  if (text == "true" || text == "Y") return "1";
  if (text == "false" || text == "N") return "0";
  return text;
}

Status HostFiles::write(const std::string& name, const std::string& value) const {
  const int error = until_free(*this, [&] { return write_once(name, value); });
  if (error == 0) return {};
  return refused(error, fmt::format("the kernel does not take {} in /{}", value, name));
}

bool HostFiles::writable(const std::string& name) const {
  return ::access(path(name).c_str(), W_OK) == 0;
}

Result<std::vector<std::string>> HostFiles::names(const std::string& pattern) const {
  std::vector<std::string> found{""};
  for (const std::filesystem::path& part : std::filesystem::path(pattern)) {
    std::vector<std::string> next;
    for (const std::string& folder : found) {
      const std::string before = folder.empty() ? folder : folder + "/";
      std::error_code error;
      if (part.native().find_first_of("*[?") == std::string::npos) {
        if (std::filesystem::exists(path(before + part.native()), error)) {
          next.push_back(before + part.native());
        }
        if (error) return refused(error.value(), fmt::format("cannot look at /{}", before));
        continue;
      }
      for (std::filesystem::directory_iterator each(path(folder), error), end;
           !error && each != end; each.increment(error)) {
        const std::string name = each->path().filename().native();
        if (::fnmatch(part.c_str(), name.c_str(), FNM_PERIOD) == 0) next.push_back(before + name);
      }
      if (error && error != std::errc::no_such_file_or_directory &&
          error != std::errc::not_a_directory) {
        return refused(error.value(), fmt::format("cannot read /{}", folder));
      }
    }
    found = std::move(next);
  }
  std::ranges::sort(found, {}, [](const std::string& name) {
    return std::tuple<std::size_t, const std::string&>(name.size(), name);
  });
  return found;
}

std::optional<std::uint64_t> number_in(std::string_view text) {
  const auto digit = text.find_first_of("0123456789");
  if (digit == std::string_view::npos) return std::nullopt;
  std::uint64_t value = 0;
  const auto result = std::from_chars(text.data() + digit, text.data() + text.size(), value);
  return result.ec == std::errc{} ? std::optional(value) : std::nullopt;
}

std::optional<std::string_view> text_after(std::string_view text, std::string_view name) {
  for (auto at = text.find(name); at != std::string_view::npos; at = text.find(name, at + 1)) {
    if (at != 0 && text[at - 1] != ' ' && text[at - 1] != '\n') continue;
    const std::string_view rest = text.substr(at + name.size());
    return rest.substr(0, rest.find('\n'));
  }
  return std::nullopt;
}

std::uint64_t count_after(std::string_view text, std::string_view name) {
  return number_in(text_after(text, name).value_or("")).value_or(0);
}

Bytes kib_after(std::string_view text, std::string_view name) {
  return Bytes{count_after(text, name) << 10};
}

}  // namespace headrace
