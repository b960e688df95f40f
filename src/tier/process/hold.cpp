#include "tier/process/hold.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

#include "core/fail.h"
#include "core/text/files.h"

namespace headrace {
namespace {

// NUMA_BALANCING_NORMAL in kernel.numa_balancing: entries go on all nodes. Without it, and with
// NUMA_BALANCING_MEMORY_TIERING (2), they go on slow nodes only.
constexpr unsigned kOnAllNodes = 1;

Result<OwnDescriptor> open_locked(const std::filesystem::path& path, int how) {
  const int descriptor = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (descriptor < 0) return fail_errno(errno, "cannot open " + path.string());
  OwnDescriptor file(descriptor);
  if (::flock(descriptor, how) != 0) return fail_errno(errno, "cannot lock " + path.string());
  return file;
}

// Excludes other processes for as long as what is between two steps must not be seen: no wait in
// it.
Result<OwnDescriptor> alone(const std::filesystem::path& directory) {
  return open_locked(directory / "hint-faults.lock", LOCK_EX);
}

bool only_holder(const OwnDescriptor& file) { return ::flock(file.get(), LOCK_EX | LOCK_NB) == 0; }

std::string text_of(const OwnDescriptor& file) {
  std::array<char, 16> text{};
  const ssize_t got = ::pread(file.get(), text.data(), text.size(), 0);
  return {text.data(), static_cast<std::size_t>(got < 0 ? 0 : got)};
}

bool write_setting(const std::filesystem::path& setting, const std::string& value) {
  std::ofstream file(setting);
  file << value << std::flush;
  return file.good();
}

// Nothing: the kernel has none, or says what is no number.
std::optional<unsigned> mode_of(const std::filesystem::path& setting) {
  const std::string text = first_line(setting);
  unsigned mode = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), mode);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return mode;
}

// Requires: the only holder. What was changed and not put back; the other bits are others'.
bool put_back(const OwnDescriptor& file, const std::filesystem::path& setting) {
  if (text_of(file).empty()) return false;
  const auto mode = mode_of(setting);
  if (mode && (*mode & kOnAllNodes) != 0) {
    write_setting(setting, std::to_string(*mode & ~kOnAllNodes));
  }
  return ::ftruncate(file.get(), 0) == 0;
}

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

Result<ProcessClaim> ProcessClaim::take(const std::filesystem::path& directory, int pid,
                                        std::uint64_t started) {
  const auto path = directory / fmt::format("tier-{}-{}.lock", pid, started);
  auto file = open_locked(path, LOCK_EX | LOCK_NB);
  struct stat locked{};
  struct stat there{};
  // One that its holder has just removed locks nobody out.
  if (!file || ::fstat(file->get(), &locked) != 0 || ::stat(path.c_str(), &there) != 0 ||
      locked.st_ino != there.st_ino) {
    return fail(ErrorCode::exhausted,
                "process {} is tiered already (lock {}); end the other headrace tier first", pid,
                path.string());
  }
  return ProcessClaim(path, *std::move(file));
}

ProcessClaim::~ProcessClaim() {
  if (file_.get() >= 0) ::unlink(path_.c_str());
}

Result<HintFaults> HintFaults::take(const std::filesystem::path& directory,
                                    const std::filesystem::path& setting) {
  if (first_line(setting).empty()) {
    return fail(ErrorCode::absent, "the kernel has no hint faults (CONFIG_NUMA_BALANCING)");
  }
  HEADRACE_TRY(const OwnDescriptor excluded, alone(directory));
  HEADRACE_TRY(OwnDescriptor file, open_locked(directory / "hint-faults", LOCK_SH));
  std::string note = "kernel.numa_balancing is on already and stays";
  if (only_holder(file)) {
    put_back(file, setting);
    if (const auto mode = mode_of(setting); mode && (*mode & kOnAllNodes) == 0) {
      // First what is to be put back, then the change.
      const std::string was = std::to_string(*mode);
      if (::pwrite(file.get(), was.data(), was.size(), 0) < 0 || ::fsync(file.get()) != 0) {
        return fail_errno(errno, "cannot write " + (directory / "hint-faults").string());
      }
      if (!write_setting(setting, std::to_string(*mode | kOnAllNodes))) {
        (void)::ftruncate(file.get(), 0);
        return fail(ErrorCode::denied, "kernel.numa_balancing may not be set here; it takes root");
      }
      note =
          fmt::format("kernel.numa_balancing is on for as long as this runs, and then {} as it was",
                      *mode == 0 ? "off" : was);
    }
  }
  // Whoever asks for more loses what he had.
  if (::flock(file.get(), LOCK_SH) != 0) return fail_errno(errno, "cannot lock");
  return HintFaults(directory, setting, std::move(file), std::move(note));
}

HintFaults::~HintFaults() {
  if (file_.get() < 0) return;
  const auto excluded = alone(directory_);
  if (excluded && only_holder(file_)) put_back(file_, setting_);
}

bool restore_hint_faults(const std::filesystem::path& directory,
                         const std::filesystem::path& setting) {
  const auto excluded = alone(directory);
  if (!excluded) return false;
  const auto file = open_locked(directory / "hint-faults", LOCK_EX | LOCK_NB);
  return file && put_back(*file, setting);
}

}  // namespace headrace
