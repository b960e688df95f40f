// SPDX-License-Identifier: Apache-2.0
#include "kvcache/state/folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fnmatch.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <system_error>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "core/fail.h"
#include "core/own_files.h"
#include "core/text/files.h"
#include "kvcache/keys/geometry.h"
#include "kvcache/keys/sum.h"

namespace headrace::kvcache {
namespace {

constexpr std::uint64_t kPage = 4096;
constexpr std::uint64_t kMagic = 0x31766b6563617268;  // "hracekv1"
constexpr std::uint32_t kVersion = 1;
constexpr std::uint32_t kHeaderMagic = 0x3142764b;

// All bytes are 0 except the named fields.
struct Superblock {
  std::uint64_t magic = kMagic;
  std::uint32_t version = kVersion;
  std::uint32_t header_bytes = 0;
  std::uint64_t block_bytes = 0;
  Key geometry;
  std::uint64_t sum = 0;  // of the fields before
};

std::uint64_t sum_of(const Superblock& superblock) {
  return plain_sum(std::as_bytes(std::span(&superblock, 1)).first(offsetof(Superblock, sum)), 0);
}

std::uint64_t round_up(std::uint64_t value, std::uint64_t to) { return (value + to - 1) / to * to; }

// A file descriptor, closed at the end of its scope.
struct Descriptor {
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
  const int fd;
};

// Not a sum of strings, of which GCC 12 warns wrongly (-Wstringop-overflow).
std::string quoted(const std::filesystem::path& path) {
  return fmt::format("\"{}\"", path.string());
}

// A link could lead to a third-party file; opening a pipe would block.
constexpr int kFlags = O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;

Result<struct stat> look_at(const Descriptor& file, const std::filesystem::path& path) {
  if (file.fd < 0) return fail_errno(errno, "cannot open " + quoted(path));
  struct stat status{};
  if (fstat(file.fd, &status) != 0) return fail_errno(errno, "cannot look at " + quoted(path));
  if (!S_ISREG(status.st_mode)) {
    return fail(ErrorCode::invalid, "{} is no regular file; remove it", quoted(path));
  }
  if (status.st_nlink > 1) {
    return fail(ErrorCode::invalid,
                "{} has another name, whose file would be overwritten; give another folder, or "
                "remove it",
                quoted(path));
  }
  return status;
}

// Whether the file is absent, or nothing was ever written to it.
Result<bool> is_blank(const std::filesystem::path& path) {
  const Descriptor file{::open(path.c_str(), kFlags & ~O_CREAT)};
  if (file.fd < 0 && errno == ENOENT) return true;
  HEADRACE_TRY_STATUS(look_at(file, path));
  return lseek(file.fd, 0, SEEK_DATA) < 0 && errno == ENXIO;
}

// Without an index of a store, existing blocks are third-party data.
Status check_blocks(const std::filesystem::path& path) {
  HEADRACE_TRY(const bool blank, is_blank(path));
  if (blank) return {};
  return fail(ErrorCode::invalid, "{} is of no KV store; give another folder, or remove it",
              quoted(path));
}

// Sets the size of the file; new bytes are a hole.
Status size_file(const std::filesystem::path& path, std::uint64_t bytes) {
  const Descriptor file{::open(path.c_str(), kFlags, 0600)};
  HEADRACE_TRY(const struct stat status, look_at(file, path));
  if (static_cast<std::uint64_t>(status.st_size) == bytes) return {};
  if (ftruncate(file.fd, static_cast<off_t>(bytes)) != 0) {
    return fail_errno(errno,
                      "cannot make " + quoted(path) + " " + to_string(Bytes{bytes}) + " long");
  }
  return {};
}

// Allocates the space of the list, which blocks would take otherwise on a disk that gets full, and
// no block is found without it. If the disk or its file system cannot, writes allocate it.
void allocate_file(const std::filesystem::path& path, std::uint64_t bytes) {
  const Descriptor file{::open(path.c_str(), kFlags & ~O_CREAT)};
  if (file.fd >= 0) (void)::fallocate(file.fd, 0, 0, static_cast<off_t>(bytes));
}

}  // namespace

struct Folder::Header {
  std::uint64_t sum = 0;  // of all other bytes
  std::uint32_t magic = kHeaderMagic;
  std::uint32_t layers = 0;
  std::uint32_t block_bytes = 0;
  std::uint32_t part = 0;  // 0 unless blocks have any size
  std::uint64_t sequence = 0;
  Key key;

  std::uint64_t* sums() { return reinterpret_cast<std::uint64_t*>(this + 1); }
};

namespace {

std::uint64_t bytes_of_header(std::uint64_t layers, std::size_t fixed) {
  return round_up(fixed + 8 * layers, 64);
}

}  // namespace

// An index whose superblock is damaged is a store's if it has a header whose checksum fits, in its
// first 16 MiB. No other program writes such bytes.
bool Folder::has_header(int file) {
  std::vector<std::byte> bytes(16U << 20);
  const ssize_t read = pread(file, bytes.data(), bytes.size(), kPage);
  const std::span index = std::span(bytes).first(read > 0 ? static_cast<std::size_t>(read) : 0);
  for (std::size_t at = 0; at + sizeof(Header) <= index.size(); at += 64) {
    Header header;
    std::memcpy(static_cast<void*>(&header), &index[at], sizeof header);
    if (header.magic != kHeaderMagic) continue;
    const std::size_t length = bytes_of_header(header.layers, sizeof(Header));
    if (at % length != 0 || index.size() - at < length) continue;
    const auto rest = index.subspan(at, length).subspan(sizeof(Header::sum));
    if (header.sum == plain_sum(rest, at / length)) return true;
  }
  return false;
}

Folder::Folder(std::filesystem::path path, const Geometry& geometry, std::uint32_t slots,
               const TierOptions& rules)
    : path_(std::move(path)),
      geometry_(geometry),
      slots_(slots),
      header_bytes_(bytes_of_header(geometry.layers, sizeof(Header))),
      discard_other_(rules.discard_other),
      trusts_own_(rules.verify == Verify::found),
      own_(slots) {}

Folder::~Folder() {
  for (const int descriptor : {index_lock_, lock_}) {
    if (descriptor >= 0) own_files::close(descriptor);
  }
}

Bytes Folder::slot_bytes(const Geometry& geometry) {
  return Bytes{round_up(geometry.block().value, kPage)};
}

namespace {

bool is_own(const struct stat& status, mode_t forbidden) {
  return status.st_uid == geteuid() && (status.st_mode & forbidden) == 0;
}

// A folder made with a umask of 002 is writable by its group. Removes that permission if all files
// in it are a store's and no other user can have written them.
Status close_to_group(const std::filesystem::path& path, mode_t mode) {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(path, error)) {
    struct stat status{};
    const auto name = entry.path().filename();
    const bool known = name == "index" || name == "blocks" || name == "lock";
    if (known && lstat(entry.path().c_str(), &status) == 0 && S_ISREG(status.st_mode) &&
        is_own(status, S_IWGRP | S_IWOTH)) {
      continue;
    }
    return fail(ErrorCode::denied,
                "the group of the folder {} may write to it and has {} there; chmod 700, or give "
                "another folder",
                quoted(path), quoted(name));
  }
  if (error || chmod(path.c_str(), mode & 07777 & ~static_cast<mode_t>(S_IWGRP)) != 0) {
    return fail_errno(error ? error.value() : errno, "cannot look into " + quoted(path));
  }
  return {};
}

// Removes what write_file_at_once() left when its process was killed. Requires: the folder is a
// store's, and locked.
void remove_drafts(const std::filesystem::path& path) {
  std::error_code error;
  for (std::filesystem::directory_iterator each(path, error), end; !error && each != end;
       each.increment(error)) {
    const std::string name = each->path().filename().string();
    if (fnmatch(".headrace-[0-9]*-[0-9]*", name.c_str(), 0) == 0) ::unlink(each->path().c_str());
  }
}

}  // namespace

Result<std::unique_ptr<Folder>> Folder::claim(const std::filesystem::path& path,
                                              const Geometry& geometry, std::uint32_t slots,
                                              const TierOptions& rules) {
  if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
    return fail_errno(errno, "cannot make the folder " + quoted(path));
  }
  struct stat status{};
  if (stat(path.c_str(), &status) != 0) return fail_errno(errno, "cannot look at " + quoted(path));
  if (!is_own(status, S_IWOTH)) {
    return fail(ErrorCode::denied,
                "the folder {} is another user's, or others may write to it, and their blocks "
                "would be served; chown it, chmod 700, or give another folder",
                quoted(path));
  }
  // Checked twice, to see files that came into the folder before the permission was removed.
  if ((status.st_mode & S_IWGRP) != 0) {
    HEADRACE_TRY_STATUS(close_to_group(path, status.st_mode));
    HEADRACE_TRY_STATUS(close_to_group(path, status.st_mode));
  }
  std::unique_ptr<Folder> folder(new Folder(path, geometry, slots, rules));
  {
    const Descriptor made{::open((path / "lock").c_str(), kFlags, 0600)};
    if (made.fd < 0) return fail_errno(errno, "cannot open " + quoted(path / "lock"));
  }
  HEADRACE_TRY_STATUS(folder->lock(path / "lock", folder->lock_));
  HEADRACE_TRY_STATUS(folder->check_files());
  return folder;
}

Status Folder::open(Mover& mover, NodeId memory) {
  HEADRACE_TRY_STATUS(open_files(mover));
  remove_drafts(path_);
  headers_.resize(header_bytes_ * slots_);
  headers_memory_ = std::make_unique<MemoryRange>(headers_, memory);
  return read_headers(mover);
}

Status Folder::lock(const std::filesystem::path& name, int& held) const {
  // O_CLOEXEC: a child of fork() must not keep the lock
  const int descriptor = own_files::open(name.c_str());
  if (descriptor < 0) return fail_errno(errno, "cannot open " + quoted(name));
  if (const int before = std::exchange(held, descriptor); before >= 0) own_files::close(before);
  if (flock(descriptor, LOCK_EX | LOCK_NB) == 0) return {};
  if (errno == EWOULDBLOCK) {
    return fail(ErrorCode::denied, "the KV store in {} is open already; give each its own folder",
                quoted(path_));
  }
  return fail_errno(errno, "cannot lock " + quoted(name));
}

Status Folder::check_files() {
  const auto index = path_ / "index";
  HEADRACE_TRY(blank_, is_blank(index));
  if (blank_) return check_blocks(path_ / "blocks");
  HEADRACE_TRY_STATUS(lock(index, index_lock_));
  Status fits = check_superblock(index, other_);
  return other_ && discard_other_ ? Status{} : fits;
}

// The superblock reaches the disk before anything else. After an interruption the index is blank or
// has a superblock.
Status Folder::open_files(Mover& mover) {
  const auto index = path_ / "index";
  const auto blocks = path_ / "blocks";
  if (other_) HEADRACE_TRY_STATUS(size_file(blocks, 0));  // first: see check_blocks()
  if (blank_ || other_) {
    HEADRACE_TRY_STATUS(write_superblock(index));
    HEADRACE_TRY_STATUS(lock(index, index_lock_));  // it is another file
  }
  HEADRACE_TRY_STATUS(size_file(blocks, slots_ * slot_bytes(geometry_).value));
  HEADRACE_TRY_STATUS(size_file(index, kPage + slots_ * header_bytes_));
  // A disk smaller than the budget never fills the other slots: the first ones are taken first.
  std::error_code unknown;  // all
  const std::uint64_t disk = std::filesystem::space(path_, unknown).capacity;
  const std::uint64_t most = disk == 0 ? slots_ : disk / slot_bytes(geometry_).value + 1;
  allocate_file(index, kPage + std::min<std::uint64_t>(slots_, most) * header_bytes_);
  HEADRACE_TRY(blocks_, File::open(mover.machine(), blocks, {.writable = true}));
  HEADRACE_TRY(index_, File::open(mover.machine(), index, {.writable = true, .direct = false}));
  return {};
}

// Replaces the blank index at once, so that an interruption leaves it blank or complete.
Status Folder::write_superblock(const std::filesystem::path& path) const {
  HEADRACE_TRY_STATUS(size_file(path, 0));  // sets the mode, which the replacement keeps
  Superblock superblock{.header_bytes = static_cast<std::uint32_t>(header_bytes_),
                        .block_bytes = geometry_.block().value,
                        .geometry = root_key(geometry_)};
  superblock.sum = kvcache::sum_of(superblock);
  return write_file_at_once(path, {reinterpret_cast<const char*>(&superblock), sizeof superblock});
}

Status Folder::check_superblock(const std::filesystem::path& path, bool& other) const {
  const Descriptor file{::open(path.c_str(), kFlags, 0600)};
  if (file.fd < 0) return fail_errno(errno, "cannot open " + quoted(path));
  Superblock found;
  const bool ours =
      pread(file.fd, &found, sizeof found, 0) == sizeof found && found.magic == kMagic;
  other = ours || has_header(file.fd);
  if (!other) {
    return fail(ErrorCode::invalid, "{} lists no KV blocks; give another folder, or remove it",
                quoted(path));
  }
  if (!ours) return fail(ErrorCode::invalid, "{} is damaged; remove it", quoted(path));
  if (found.version != kVersion) {
    return fail(ErrorCode::invalid,
                "{} was written in version {} of the format, this is {}; give another folder, or "
                "remove it",
                quoted(path), found.version, kVersion);
  }
  if (found.sum != kvcache::sum_of(found)) {
    return fail(ErrorCode::invalid, "{} is damaged; remove it", quoted(path));
  }
  if (found.geometry != root_key(geometry_) || found.header_bytes != header_bytes_) {
    return fail(ErrorCode::invalid,
                "{} lists blocks of {} for another geometry, model or revision; give each its own "
                "folder",
                quoted(path), to_string(Bytes{found.block_bytes}));
  }
  other = false;
  return {};
}

Status Folder::still_there() {
  for (const File* file : {index_.get(), blocks_.get()}) {
    struct stat status{};
    if (fstat(file->buffered_fd(), &status) != 0) {
      return fail_errno(errno, "cannot look at the files of a KV store");
    }
    if (status.st_nlink == 0) {
      return fail(ErrorCode::io,
                  "somebody removed the files of the KV store in {}; its blocks end with this "
                  "process, so open it again",
                  quoted(path_));
    }
  }
  mend();
  if (!cut_.exchange(false)) return {};
  return fail(ErrorCode::io,
              "somebody cut a file of the KV store in {}; blocks are lost, and it writes on; give "
              "a smaller budget to make it smaller",
              quoted(path_));
}

std::uint64_t Folder::mend() noexcept {
  for (const File* file : {index_.get(), blocks_.get()}) {
    struct stat status{};
    const auto whole = static_cast<off_t>(file->size().value);
    if (fstat(file->buffered_fd(), &status) != 0 || status.st_size >= whole) continue;
    if (file == blocks_.get()) {  // first: zeros must not be trusted
      const auto left = static_cast<std::uint64_t>(status.st_size);
      std::uint64_t before = uncut_.load();
      while (left < before && !uncut_.compare_exchange_weak(before, left)) {
      }
    }
    cut_ = true;
    if (ftruncate(file->buffered_fd(), whole) == 0) ++mends_;
  }
  return mends_.load();
}

Status Folder::sync() {
  const MutexLock lock(syncing_);
  // Once it has failed, Linux counts the pages as written.
  for (const File* file : {blocks_.get(), index_.get()}) {
    if (sync_error_ == 0 && fdatasync(file->buffered_fd()) != 0) sync_error_ = errno;
  }
  if (sync_error_ == 0) return {};
  return fail(ErrorCode::io,
              "cannot write back the files of the KV store in {} ({}), so a power failure may lose "
              "blocks, or bring removed ones back; open it again, and remove them again",
              quoted(path_), std::generic_category().message(sync_error_));
}

Folder::Header* Folder::at(std::uint32_t slot) const {
  return reinterpret_cast<Header*>(headers_memory_->memory() + slot * header_bytes_);
}

std::uint64_t Folder::sum_of(std::uint32_t slot) const {
  const std::span header(reinterpret_cast<const std::byte*>(at(slot)), header_bytes_);
  return plain_sum(header.subspan(sizeof(Header::sum)), slot);
}

Status Folder::read_headers(Mover& mover) {
  const Transfer reading =
      mover.copy(whole(*headers_memory_), {index_.get(), kPage, headers_memory_->size()});
  if (const auto read = reading.wait(); !read) {
    if (!reading.done()) {
      reading.cancel();
      (void)reading.wait(kShutdownBound);
    }
    return Unexpected(read.error());
  }
  for (std::uint32_t slot = 0; slot < slots_; ++slot) {
    const Header& header = *at(slot);
    if (!valid(slot)) continue;
    const Part part{header.part, header.block_bytes, header.sequence};
    found_.push_back({.key = header.key, .slot = slot, .part = part});
    last_found_ = std::max(last_found_, header.sequence);
  }
  keep_latest(found_, geometry_);
  return {};
}

bool Folder::valid(std::uint32_t slot) const {
  const Header& header = *at(slot);
  const std::uint64_t unit = geometry_.block().value;
  const bool whole = header.block_bytes == unit && header.part == 0;
  const bool part = geometry_.any_size && header.block_bytes > 0 &&
                    header.block_bytes <= kLargestBlock.value &&
                    header.part <= (header.block_bytes - 1) / unit;
  return header.magic == kHeaderMagic && header.layers == geometry_.layers && (whole || part) &&
         header.sum == sum_of(slot);
}

void Folder::keep_latest(std::vector<Found>& found, const Geometry& geometry) {
  std::ranges::sort(found, {}, [](const Found& each) {
    return std::tuple(each.part.sequence, each.key, each.part.number);
  });
  const std::uint64_t unit = geometry.block().value;
  // The end of the whole block that begins at `first`, or `first`.
  const auto end_of = [&](std::size_t first) {
    const Found& begin = found[first];
    const std::size_t parts = (begin.part.block_bytes + unit - 1) / unit;
    if (found.size() - first < parts) return first;
    for (std::size_t i = 0; i < parts; ++i) {
      const Found& each = found[first + i];
      if (each.key != begin.key || each.part.number != i ||
          each.part.sequence != begin.part.sequence ||
          each.part.block_bytes != begin.part.block_bytes) {
        return first;
      }
    }
    return first + parts;
  };
  // Keyed by the low half of the key; another key with the same half is dropped.
  std::unordered_map<std::uint64_t, std::size_t> latest;
  for (std::size_t i = 0; i < found.size();) {
    const std::size_t end = end_of(i);
    if (end > i) latest[found[i].key.low] = i;
    i = std::max(end, i + 1);
  }
  std::size_t kept = 0;
  for (std::size_t i = 0; i < found.size();) {
    const std::size_t end = std::max(end_of(i), i + 1);
    const auto last = latest.find(found[i].key.low);
    const bool keep = last != latest.end() && last->second == i;
    for (; i < end; ++i) {
      if (keep) found[kept++] = found[i];
    }
  }
  found.resize(kept);
}

void Folder::describe(std::uint32_t slot, const Key& key, const Part& part,
                      std::span<const std::byte> bytes) {
  std::memset(static_cast<void*>(at(slot)), 0, header_bytes_);
  Header* const header = at(slot);
  *header = {.layers = geometry_.layers,
             .block_bytes = part.block_bytes,
             .part = part.number,
             .sequence = part.sequence,
             .key = key};
  const std::size_t fragment = bytes.size() / geometry_.layers;
  for (unsigned layer = 0; layer < geometry_.layers; ++layer) {
    header->sums()[layer] =
        fragment_sum(key, part.number + layer, bytes.subspan(layer * fragment, fragment));
  }
  header->sum = sum_of(slot);
  own_[slot] = 1;
}

MovePair Folder::header(std::uint32_t slot) const {
  const Bytes length{header_bytes_};
  return {.to = {index_.get(), kPage + slot * header_bytes_, length},
          .from = {headers_memory_.get(), slot * header_bytes_, length}};
}

bool Folder::fits(std::uint32_t slot, const Key& key, unsigned layer,
                  std::span<const std::byte> bytes) const {
  Header* const header = at(slot);
  const unsigned in_slot = geometry_.any_size ? 0 : layer;
  return header->key == key && header->sums()[in_slot] == fragment_sum(key, layer, bytes);
}

bool Folder::trusts(std::uint32_t slot, const Key& key) const {
  const bool uncut = (slot + 1) * slot_bytes(geometry_).value <= uncut_.load();
  return trusts_own_ && own_[slot] != 0 && uncut && at(slot)->key == key;
}

std::optional<Key> Folder::listed(std::uint32_t slot) const {
  const Header& header = *at(slot);
  return header.magic == kHeaderMagic ? std::optional(header.key) : std::nullopt;
}

void Folder::blank(std::uint32_t slot) {
  std::memset(static_cast<void*>(at(slot)), 0, header_bytes_);
}

}  // namespace headrace::kvcache
