// SPDX-License-Identifier: Apache-2.0
#include "core/text/files.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>

#include "core/fail.h"

namespace headrace {
namespace {

namespace fs = std::filesystem;

class OpenFile {
 public:
  explicit OpenFile(int descriptor) : descriptor_(descriptor) {}
  ~OpenFile() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  int descriptor() const { return descriptor_; }

 private:
  const int descriptor_;
};

Unexpected no_file(const fs::path& path) {
  return fail(ErrorCode::invalid, "'{}' is no regular file; copy what it gives into one",
              path.string());
}

Unexpected cannot_write(int error, const fs::path& path) {
  if (error == EEXIST) {
    return fail(code_of_errno(error), "cannot write '{}': remove the files .headrace-* beside it",
                path.string());
  }
  return fail_errno(error, fmt::format("cannot write '{}'", path.string()));
}

// Returns the errno value of a failure; 0: success. The functions below do the same.
int write_all(int file, std::string_view text) {
  while (!text.empty()) {
    const ssize_t done = write(file, text.data(), text.size());
    if (done < 0 && errno != EINTR) return errno;
    if (done == 0) return EIO;  // a device that accepts nothing would loop forever
    if (done > 0) text.remove_prefix(static_cast<std::size_t>(done));
  }
  return 0;
}

int sync(int file) { return fsync(file) == 0 ? 0 : errno; }

// The end of a chain of links, whether its file exists or not.
fs::path behind_links(fs::path path) {
  constexpr int kMostLinks = 40;  // the kernel's limit
  std::error_code error;
  for (int i = 0; i < kMostLinks && fs::is_symlink(path, error); ++i) {
    path = path.parent_path() / fs::read_symlink(path, error);
  }
  return path;
}

// Creates a file beside `target`, with the mode and owner of the old file, or of a new one if there
// is none. `draft` receives its name. Negative: errno has the reason.
int create_draft(const fs::path& target, std::string& draft) {
  constexpr int kTries = 100;
  int file = -1;
  for (int i = 0; i < kTries && file < 0; ++i) {
    // A separate name: the target's may already have the maximal length.
    draft = (target.parent_path() / fmt::format(".headrace-{}-{}", getpid(), i)).string();
    file = open(draft.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (file < 0 && errno != EEXIST) break;
  }
  struct stat status{};
  if (file >= 0 && stat(target.c_str(), &status) == 0) {
    // Only root may change a file's owner; for other users the file keeps theirs.
    if (fchown(file, status.st_uid, status.st_gid) != 0) errno = 0;
    fchmod(file, status.st_mode & 07777);
  }
  return file;
}

// Makes the new name durable.
void sync_directory(const fs::path& file) {
  const fs::path parent = file.has_parent_path() ? file.parent_path() : fs::path(".");
  const int directory = open(parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (directory < 0) return;
  fsync(directory);
  close(directory);
}

// True if only the directory prevents a replacement: it accepts no new file, or the old file cannot
// be replaced. Reasons are another owner in a sticky directory, and a mount point (in a container).
bool stays_in_place(int error) {
  return error == EACCES || error == EPERM || error == EROFS || error == EBUSY || error == EXDEV;
}

// Writes a draft, which is renamed when it is complete.
int replace(const fs::path& target, std::string_view text) {
  std::string draft;
  const int file = create_draft(target, draft);
  if (file < 0) return errno;
  int failed = write_all(file, text);
  if (failed == 0) failed = sync(file);
  if (close(file) != 0 && failed == 0) failed = errno;
  if (failed == 0 && rename(draft.c_str(), target.c_str()) != 0) failed = errno;
  if (failed == 0) {
    sync_directory(target);
  } else {
    unlink(draft.c_str());
  }
  return failed;
}

// Allocates `bytes` for a file before its old bytes change. A file system that cannot allocate in
// advance is no error.
int make_room(int file, off_t bytes) {
  struct stat status{};
  if (fstat(file, &status) != 0) return errno;
  if (bytes <= status.st_size) return 0;
  const int failed = posix_fallocate(file, status.st_size, bytes - status.st_size);
  if (failed != ENOSPC && failed != EDQUOT && failed != EFBIG) return 0;
  return ftruncate(file, status.st_size) == 0 ? failed : errno;
}

// Overwrites a file that stays in its place.
int overwrite(int file, std::string_view text) {
  const auto bytes = static_cast<off_t>(text.size());
  int failed = make_room(file, bytes);
  if (failed == 0) failed = write_all(file, text);
  if (failed == 0 && ftruncate(file, bytes) != 0) failed = errno;
  return failed == 0 ? sync(file) : failed;
}

// For targets that cannot be replaced: a terminal, a pipe, /dev/null, or a file that stays in its
// place.
Status write_in_place(const fs::path& path, std::string_view text) {
  const int file = open(path.c_str(), O_WRONLY | O_CLOEXEC);
  if (file < 0) return cannot_write(errno, path);
  const bool regular = fs::is_regular_file(path);
  int failed = regular ? overwrite(file, text) : write_all(file, text);
  if (close(file) != 0 && failed == 0) failed = errno;
  if (failed == 0) return {};
  return cannot_write(failed, path);
}

// The first bytes of a file, at most `most`.
Result<std::string> read_first(const fs::path& path, Bytes most) {
  // Checks the kind first: opening may wait (a pipe) or have an effect (a tape). A file that would
  // wait for more bytes is an error instead, and one that never ends is cut off.
  struct stat status{};
  if (::stat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode)) return no_file(path);
  const OpenFile file(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY));
  if (file.descriptor() < 0) return fail_errno(errno, fmt::format("'{}'", path.string()));
  if (::fstat(file.descriptor(), &status) != 0 || !S_ISREG(status.st_mode)) return no_file(path);
  std::string text;
  while (text.size() < most.value) {
    constexpr std::size_t kLeast = 4 << 10;  // most files of sysfs are one line
    const std::size_t before = text.size();
    text.resize(std::min<std::size_t>(before + std::max(kLeast, before), most.value));
    const ssize_t got = ::read(file.descriptor(), text.data() + before, text.size() - before);
    text.resize(before + static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
    if (got == 0) break;
    if (got > 0 || errno == EINTR) continue;
    if (errno == EAGAIN) return no_file(path);
    return fail_errno(errno, fmt::format("cannot read '{}'", path.string()));
  }
  return text;
}

}  // namespace

Result<std::string> read_file(const fs::path& path, Bytes largest) {
  HEADRACE_TRY(std::string text, read_first(path, largest + 1_B));
  if (Bytes{text.size()} <= largest) return text;
  return fail(ErrorCode::invalid, "'{}' has more than {}, which nothing of its kind needs",
              path.string(), to_string(largest));
}

Result<std::string> read_document(const fs::path& path, Bytes largest) {
  struct stat status{};
  if (::stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode) && status.st_size == 0) {
    return fail(ErrorCode::invalid, "'{}' is empty; give a file with something in it",
                path.string());
  }
  return read_file(path, largest);
}

std::string first_line(const fs::path& path) {
  std::string text = read_first(path, kLongestLine).value_or("");
  text.resize(std::min(text.find('\n'), text.size()));
  return text;
}

Status write_file_at_once(const fs::path& path, std::string_view text) {
  std::error_code error;
  if (fs::exists(path, error) && !fs::is_regular_file(path, error) &&
      !fs::is_directory(path, error)) {
    return write_in_place(path, text);
  }
  const fs::path target = behind_links(path);
  const int failed = replace(target, text);
  if (failed == 0) return {};
  if (stays_in_place(failed) && fs::is_regular_file(target, error)) {
    return write_in_place(target, text);
  }
  return cannot_write(failed, path);
}

}  // namespace headrace
