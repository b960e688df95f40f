// SPDX-License-Identifier: Apache-2.0
#include "topology/discovery/facts.h"

#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>

#include <cerrno>
#include <fstream>
#include <sstream>
#include <vector>

#include "core/fail.h"

namespace headrace {
namespace {

namespace fs = std::filesystem;

// The mount of a path.
struct Mount {
  std::string point;   // "/"
  std::string type;    // "ext4", "overlay", "tmpfs"
  std::string source;  // "/dev/vda", "overlay"
};

// Undoes the kernel's octal escapes: "\040" is a blank.
std::string unescaped(std::string_view text) {
  std::string plain;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto digit = [&](std::size_t at) { return static_cast<unsigned>(text[at] - '0'); };
    if (text[i] == '\\' && i + 3 < text.size() && digit(i + 1) < 4 && digit(i + 2) < 8 &&
        digit(i + 3) < 8) {
      plain += static_cast<char>(digit(i + 1) * 64 + digit(i + 2) * 8 + digit(i + 3));
      i += 3;
    } else {
      plain += text[i];
    }
  }
  return plain;
}

// "36 35 98:0 / /mnt rw,noatime shared:1 - ext4 /dev/sda1 rw": proc(5).
std::optional<Mount> parse_mount(const std::string& line, const std::string& device) {
  std::istringstream fields(line);
  std::string id, parent, number, root, point, field;
  if (!(fields >> id >> parent >> number >> root >> point) || number != device) return std::nullopt;
  while (fields >> field && field != "-") {
  }
  Mount mount{.point = unescaped(point)};
  if (!(fields >> mount.type >> mount.source)) return std::nullopt;
  mount.source = unescaped(mount.source);
  return mount;
}

// The device's last mount at or above `path`; else any of its mounts.
std::optional<Mount> find_mount(const fs::path& procfs, const fs::path& path, dev_t device) {
  const std::string number = fmt::format("{}:{}", major(device), minor(device));
  std::ifstream file(procfs / "self/mountinfo");
  std::optional<Mount> found;
  bool above = false;
  for (std::string line; std::getline(file, line);) {
    auto mount = parse_mount(line, number);
    if (!mount) continue;
    const std::string prefix = mount->point == "/" ? "/" : mount->point + "/";
    const bool is_above = (path.string() + "/").starts_with(prefix);
    if (!found || is_above || !above) found = std::move(mount), above = is_above;
  }
  return found;
}

// The block device's directory: /sys/dev/block/254:0. For file systems with their own device
// numbers (btrfs): by the mount's source.
std::optional<fs::path> find_block(const fs::path& sysfs, dev_t device,
                                   const std::optional<Mount>& mount) {
  std::error_code error;
  fs::path by_number = fs::canonical(
      sysfs / "dev/block" / fmt::format("{}:{}", major(device), minor(device)), error);
  if (!error) return by_number;
  if (!mount || !mount->source.starts_with("/dev/")) return std::nullopt;
  fs::path by_name =
      fs::canonical(sysfs / "class/block" / fs::path(mount->source).filename(), error);
  return error ? std::nullopt : std::optional(by_name);
}

// Goes from a partition to its disk, and from a mapping (LVM, dm-crypt) over one device to that
// device.
fs::path to_disk(fs::path block, std::vector<std::string>& through) {
  // Deeper stacks are loops in a broken tree.
  for (int depth = 0; depth < 8; ++depth) {
    std::error_code error;
    if (fs::exists(block / "partition", error)) {
      through.push_back(block.filename().string());
      block = block.parent_path();
      continue;
    }
    const auto slaves = list_directory(block / "slaves");
    if (slaves.size() != 1) break;
    const fs::path below = fs::canonical(block / "slaves" / slaves[0], error);
    if (error) break;
    through.push_back(block.filename().string());
    block = below;
  }
  return block;
}

std::string describe(const fs::path& disk, const std::vector<std::string>& through,
                     const std::optional<Mount>& mount) {
  const auto member_count = list_directory(disk / "slaves").size();
  std::string text = fmt::format("block device {}", disk.filename().string());
  if (auto model = read_line(disk / "device/model"); model && !model->empty()) {
    text += fmt::format(" ({})", *model);
  }
  if (member_count > 1) text += fmt::format(" over {} devices", member_count);
  // Virtual disks claim to be rotational whatever device is behind them.
  if (disk.filename().string().starts_with("vd")) {
    text += ", virtual";
  } else if (const auto rotational = read_number(disk / "queue/rotational")) {
    text += *rotational == 0 ? ", not rotational" : ", rotational";
  }
  for (const std::string& each : through) text += fmt::format(", through {}", each);
  if (mount) text += fmt::format(", {} at {}", mount->type, mount->point);
  return text;
}

// The file system's size, if the device's is unknown.
void set_file_system_size(const fs::path& path, StorageFacts& facts) {
  struct statvfs space{};
  if (statvfs(path.c_str(), &space) != 0 || space.f_blocks == 0) return;
  facts.capacity = Bytes{space.f_blocks} * space.f_frsize;
  facts.capacity_source = "size of the file system (statvfs)";
}

StorageFacts without_device(const fs::path& path, const std::optional<Mount>& mount) {
  StorageFacts facts{
      .name = "unknown", .reason = "no block device is shown behind it", .path = path.string()};
  if (mount) {
    const bool memory = mount->type == "tmpfs" || mount->type == "ramfs";
    facts.name = fmt::format("{} at {}", mount->type, mount->point);
    facts.reason = memory ? fmt::format("{}: its files are in memory, not on a device", facts.name)
                          : fmt::format("{}: no block device is shown behind it", facts.name);
  }
  set_file_system_size(path, facts);
  return facts;
}

}  // namespace

Result<StorageFacts> find_storage(const fs::path& path, const fs::path& sysfs,
                                  const fs::path& procfs) {
  struct stat status{};
  if (::stat(path.c_str(), &status) != 0) {
    const int error = errno;
    return fail_errno(error, fmt::format("storage path '{}'", path.string()));
  }
  std::error_code error;
  fs::path absolute = fs::canonical(path, error);
  if (error) absolute = fs::absolute(path, error);
  const bool raw = S_ISBLK(status.st_mode);
  const fs::path directory = raw || S_ISDIR(status.st_mode) ? absolute : absolute.parent_path();
  const auto mount = raw ? std::nullopt : find_mount(procfs, absolute, status.st_dev);
  const auto block = find_block(sysfs, raw ? status.st_rdev : status.st_dev, mount);
  if (!block) return without_device(directory, mount);

  std::vector<std::string> through;
  const fs::path disk = to_disk(*block, through);
  StorageFacts facts{.name = disk.filename().string(),
                     .reason = describe(disk, through, mount),
                     .path = directory.string(),
                     .device = disk};
  // In units of 512 bytes, whatever the device's sector size (Documentation/ABI, sysfs-block).
  const auto sectors = read_number(disk / "size");
  if (sectors && *sectors > 0 && *sectors < (std::uint64_t{1} << 54)) {
    facts.capacity = Bytes{*sectors} * 512;
    facts.capacity_source = fmt::format("size of {} in sysfs", facts.name);
  } else {
    set_file_system_size(directory, facts);
  }
  return facts;
}

}  // namespace headrace
