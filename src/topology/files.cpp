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

// A new file beside `target` with the mode that a new file gets, or an old one has; its name goes
// to `draft`. Negative: errno says why.
int create_draft(const fs::path& target, std::string& draft) {
  constexpr int kTries = 100;
  int file = -1;
  for (int i = 0; i < kTries && file < 0; ++i) {
    draft = fmt::format("{}.{}.{}", target.string(), getpid(), i);
    file = open(draft.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (file < 0 && errno != EEXIST) break;
  }
  struct stat status{};
  if (file >= 0 && stat(target.c_str(), &status) == 0) fchmod(file, status.st_mode & 07777);
  return file;
}

// What makes the new name last.
void sync_directory(const fs::path& file) {
  const fs::path parent = file.has_parent_path() ? file.parent_path() : fs::path(".");
  const int directory = open(parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (directory < 0) return;
  fsync(directory);
  close(directory);
}

// A terminal, a pipe, /dev/null: nothing that can be replaced.
Status write_in_place(const fs::path& path, std::string_view text) {
  const int file = open(path.c_str(), O_WRONLY | O_CLOEXEC);
  if (file < 0) return fail_errno(errno, fmt::format("cannot write '{}'", path.string()));
  const int failed = write_all(file, text);
  close(file);
  if (failed == 0 || failed == EINVAL) return {};  // EINVAL: it cannot be synced
  return fail_errno(failed, fmt::format("cannot write '{}'", path.string()));
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
  if (fs::exists(target, error) && !fs::is_regular_file(target, error) &&
      !fs::is_directory(target, error)) {
    return write_in_place(target, text);
  }
  std::string draft;
  const int file = create_draft(target, draft);
  if (file < 0) return fail_errno(errno, fmt::format("cannot write '{}'", path.string()));
  int failed = write_all(file, text);
  if (close(file) != 0 && failed == 0) failed = errno;
  if (failed == 0 && rename(draft.c_str(), target.c_str()) != 0) failed = errno;
  if (failed == 0) {
    sync_directory(target);
    return {};
  }
  unlink(draft.c_str());
  return fail_errno(failed, fmt::format("cannot write '{}'", path.string()));
}

}  // namespace headrace
