#include "topology/files.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "core/fail.h"

namespace headrace {
namespace {

namespace fs = std::filesystem;

// A profile of sixteen nodes with every experiment takes some MiB; a file of this size is none.
constexpr std::uintmax_t kMaxFile = 64u << 20;

int write_all(int file, std::string_view text) {
  while (!text.empty()) {
    const ssize_t done = write(file, text.data(), text.size());
    if (done < 0 && errno != EINTR) return errno;
    if (done > 0) text.remove_prefix(static_cast<std::size_t>(done));
  }
  return fsync(file) == 0 ? 0 : errno;
}

// What a new file gets, and an old one keeps.
mode_t mode_of(const fs::path& path) {
  struct stat status{};
  if (stat(path.c_str(), &status) == 0) return status.st_mode & 07777;
  const mode_t mask = umask(0);
  umask(mask);
  return 0666 & ~mask;
}

}  // namespace

Result<std::string> read_file(const fs::path& path) {
  std::error_code error;
  if (fs::exists(path, error) && !fs::is_regular_file(path, error)) {
    return fail(ErrorCode::invalid, "'{}' is not a file; give a machine's JSON file",
                path.string());
  }
  if (fs::is_regular_file(path, error) && fs::file_size(path, error) > kMaxFile) {
    return fail(ErrorCode::invalid, "'{}' is too large for a machine's JSON file", path.string());
  }
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  if (!file) return fail_errno(errno == 0 ? EIO : errno, fmt::format("'{}'", path.string()));
  std::ostringstream text;
  text << file.rdbuf();
  if (file.bad() || text.fail()) {
    return fail(ErrorCode::io, "'{}' could not be read to its end", path.string());
  }
  return std::move(text).str();
}

Status write_file_at_once(const fs::path& path, std::string_view text) {
  std::error_code error;
  const fs::path target = fs::is_symlink(path, error) ? fs::canonical(path, error) : path;
  std::string draft = target.string() + ".XXXXXX";
  const int file = mkstemp(draft.data());
  if (file < 0) return fail_errno(errno, fmt::format("cannot write '{}'", path.string()));
  int failed = fchmod(file, mode_of(target)) == 0 ? 0 : errno;
  if (failed == 0) failed = write_all(file, text);
  if (close(file) != 0 && failed == 0) failed = errno;
  if (failed == 0 && rename(draft.c_str(), target.c_str()) != 0) failed = errno;
  if (failed == 0) return {};
  unlink(draft.c_str());
  return fail_errno(failed, fmt::format("cannot write '{}'", path.string()));
}

}  // namespace headrace
