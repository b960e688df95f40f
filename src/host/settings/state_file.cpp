// SPDX-License-Identifier: Apache-2.0
#include "host/settings/state_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include "core/fail.h"

namespace headrace {
namespace {

constexpr std::size_t kLongestText = 64 << 10;
constexpr Nanoseconds kBetweenTries = std::chrono::milliseconds{20};

}  // namespace

Result<std::filesystem::path> state_directory() {
  const char* const runtime = std::getenv("XDG_RUNTIME_DIR");
  for (const char* const base : {"/run", runtime}) {
    if (base == nullptr || *base == '\0') continue;
    const auto directory = std::filesystem::path(base) / "headrace";
    if (::mkdir(directory.c_str(), 0755) != 0 && errno != EEXIST) continue;
    if (::access(directory.c_str(), W_OK) == 0) return directory;
  }
  return fail(ErrorCode::denied,
              "no directory for what has to be put back: /run/headrace cannot be made, and "
              "XDG_RUNTIME_DIR is not set; run as root, or set it");
}

Result<OwnDescriptor> open_locked(const std::filesystem::path& path, int how,
                                  const HostFiles& files) {
  const int descriptor = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (descriptor < 0) return fail_errno(errno, "cannot open " + path.string());
  OwnDescriptor file(descriptor);
  struct stat about{};
  if (::fstat(descriptor, &about) != 0 || about.st_uid != ::geteuid()) {
    return fail(ErrorCode::denied, "{} belongs to another user; look at it, then remove it",
                path.string());
  }
  for (Nanoseconds waited{}; ::flock(descriptor, how | LOCK_NB) != 0; waited += kBetweenTries) {
    if (errno != EWOULDBLOCK) return fail_errno(errno, "cannot lock " + path.string());
    if ((how & LOCK_NB) != 0) return fail(ErrorCode::exhausted, "{} is locked", path.string());
    if (waited >= files.lock_bound) {
      return fail(ErrorCode::timed_out,
                  "another headrace tier has had {} locked for {} s; see whether it is stopped",
                  path.string(),
                  std::chrono::floor<std::chrono::seconds>(files.lock_bound).count());
    }
    files.pause(kBetweenTries);
  }
  return file;
}

bool only_holder(const OwnDescriptor& file) { return ::flock(file.get(), LOCK_EX | LOCK_NB) == 0; }

std::string text_of(const OwnDescriptor& file) {
  std::string text(kLongestText, '\0');
  const ssize_t got = ::pread(file.get(), text.data(), text.size(), 0);
  text.resize(static_cast<std::size_t>(got < 0 ? 0 : got));
  return text;
}

Status note(const OwnDescriptor& file, std::string_view text) {
  const auto size = static_cast<ssize_t>(text.size());
  if (::pwrite(file.get(), text.data(), text.size(), 0) != size ||
      ::ftruncate(file.get(), size) != 0 || ::fsync(file.get()) != 0) {
    return fail_errno(errno, "cannot write what is to be put back");
  }
  return {};
}

}  // namespace headrace
