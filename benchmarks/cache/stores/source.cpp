// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/cache/stores/source.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <span>
#include <utility>

#include "core/fail.h"

namespace headrace::cache_bench {
namespace {

constexpr std::uint64_t kPiece = 1 << 20;

void fill(std::span<std::uint64_t> words, std::uint64_t offset) {
  for (std::uint64_t& word : words) {
    word = word_at(offset);
    offset += sizeof word;
  }
}

class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor() {
    if (number_ >= 0) ::close(number_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int number() const { return number_; }

 private:
  const int number_;
};

Status write_all(int file, std::span<const std::byte> bytes, std::uint64_t offset,
                 const std::filesystem::path& path) {
  while (!bytes.empty()) {
    const ssize_t written = ::pwrite(file, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return fail_errno(errno, fmt::format("cannot write {}", path.string()));
    bytes = bytes.subspan(static_cast<std::size_t>(written));
    offset += static_cast<std::uint64_t>(written);
  }
  return {};
}

}  // namespace

Source Source::in_memory(std::uint64_t blocks, std::uint64_t block) {
  Source source;
  source.blocks_ = blocks;
  source.length_ = block;
  source.words_.resize(blocks * block / sizeof(std::uint64_t));
  fill(source.words_, 0);
  source.range_ =
      std::make_unique<MemoryRange>(std::as_writable_bytes(std::span(source.words_)), kSlowNode);
  source.object_ = source.range_.get();
  return source;
}

Result<Source> Source::in_file(const Machine& machine, const std::filesystem::path& path,
                               const std::vector<std::uint32_t>& lengths, bool writable) {
  Source source;
  source.blocks_ = lengths.size();
  source.places_.reserve(lengths.size());
  std::uint64_t offset = 0;
  for (const std::uint32_t length : lengths) {
    source.places_.push_back({offset, length});
    offset += length;
  }
  HEADRACE_TRY(source.file_, File::open(machine, path, {.writable = writable}));
  if (source.file_->size().value < offset) {
    return fail(ErrorCode::invalid, "{} has {} bytes of {}; remove it, and it is made again",
                path.string(), source.file_->size().value, offset);
  }
  source.object_ = source.file_.get();
  return source;
}

bool Source::read(std::uint64_t block, std::byte* to) const {
  const Place at = place(block);
  if (file_ == nullptr) {
    std::memcpy(to, object_->memory() + at.offset, at.length);
    return true;
  }
  const int descriptor = file_->direct() ? file_->direct_fd() : file_->buffered_fd();
  std::uint64_t done = 0;
  while (done < at.length) {
    const ssize_t got =
        ::pread(descriptor, to + done, at.length - done, static_cast<off_t>(at.offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    done += static_cast<std::uint64_t>(got);
  }
  return true;
}

bool Source::write(std::uint64_t block, const std::byte* from) const {
  const Place at = place(block);
  const int descriptor = file_->direct() ? file_->direct_fd() : file_->buffered_fd();
  return write_all(descriptor, {from, at.length}, at.offset, file_->path()).has_value();
}

Status write_words(const std::filesystem::path& path, std::uint64_t size) {
  const Descriptor file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (file.number() < 0) return fail_errno(errno, fmt::format("cannot write {}", path.string()));
  const off_t end = ::lseek(file.number(), 0, SEEK_END);
  if (end < 0) return fail_errno(errno, fmt::format("cannot write {}", path.string()));
  std::uint64_t offset = static_cast<std::uint64_t>(end) / kPiece * kPiece;
  if (static_cast<std::uint64_t>(end) >= size) return {};
  std::vector<std::uint64_t> words(kPiece / sizeof(std::uint64_t));
  while (offset < size) {
    fill(words, offset);
    const std::uint64_t length = std::min(kPiece, size - offset);
    HEADRACE_TRY_STATUS(
        write_all(file.number(), std::as_bytes(std::span(words)).first(length), offset, path));
    offset += length;
  }
  // Otherwise dirty pages of the page cache would be written during measurements.
  if (::fdatasync(file.number()) != 0) {
    return fail_errno(errno, fmt::format("cannot write {}", path.string()));
  }
  (void)::posix_fadvise(file.number(), 0, 0, POSIX_FADV_DONTNEED);
  return {};
}

}  // namespace headrace::cache_bench
