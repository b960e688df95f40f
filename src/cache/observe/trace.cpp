// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <iterator>
#include <map>
#include <new>
#include <tuple>
#include <utility>

#include "core/fail.h"
#include "core/fork.h"
#include "core/mutex.h"
#include "headrace/cache/observe.h"

namespace headrace {
namespace {

constexpr std::size_t kBuffered = std::size_t{64} << 10;

double microseconds(Nanoseconds time) { return static_cast<double>(time.count()) / 1e3; }

}  // namespace

class CacheTrace::File {
 public:
  File(int descriptor, std::filesystem::path path, Bytes most)
      : descriptor_(descriptor), path_(std::move(path)), most_(most.value) {}
  ~File() { ::close(descriptor_); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  void add(const CacheEvent& event) noexcept EXCLUDES(mutex_) {
    if (!origin_.here()) return;
    const MutexLock lock(mutex_);
    if (closed_) return;
    try {
      if (text_.size() + written_ < most_) return take(event);
    } catch (const std::bad_alloc&) {
    }
    ++left_out_;
  }

  Status close() EXCLUDES(mutex_) {
    if (!origin_.here()) return {};
    const MutexLock lock(mutex_);
    if (closed_) return {};
    closed_ = true;
    while (!open_.empty()) end(open_.begin()->first, "");
    text_ += written_ + text_.size() == 0 ? "[\n]\n" : "\n]\n";
    flush();
    if (failed_ != 0) return fail_errno(failed_, fmt::format("cannot write {}", path_.string()));
    if (left_out_ > 0) {
      return fail(ErrorCode::exhausted,
                  "{} is full: {} events were left out; trace for a shorter time, or allow more",
                  path_.string(), left_out_);
    }
    return {};
  }

 private:
  using Key = std::tuple<const Object*, std::uint64_t, std::uint64_t>;

  void take(const CacheEvent& event) REQUIRES(mutex_) {
    last_ = event.time;
    const Key key{event.extent.object, event.extent.offset, event.extent.length.value};
    switch (event.kind) {
      case CacheEvent::Kind::fill_started:
        begin(key, event.by_prefetch ? "prefetch" : "fill");
        break;
      case CacheEvent::Kind::ready:
        end(key, "");
        begin(key, "ready");
        break;
      case CacheEvent::Kind::failed:
      case CacheEvent::Kind::evicted:
      case CacheEvent::Kind::invalidated: end(key, to_string(event.kind)); break;
      case CacheEvent::Kind::hit:
      case CacheEvent::Kind::inflight_hit:
      case CacheEvent::Kind::promoted:
      case CacheEvent::Kind::demoted:
      case CacheEvent::Kind::miss: write(key, 'n', to_string(event.kind), ""); break;
    }
    if (text_.size() >= kBuffered) flush();
  }

  void begin(const Key& key, std::string_view name) REQUIRES(mutex_) {
    end(key, "");  // a block that was dropped unseen
    open_[key] = name;
    write(key, 'b', name, "");
  }
  void end(const Key& key, std::string_view why) REQUIRES(mutex_) {
    const auto found = open_.find(key);
    if (found == open_.end()) return;
    write(key, 'e', found->second, why);
    open_.erase(found);
  }
  void write(const Key& key, char phase, std::string_view name, std::string_view why)
      REQUIRES(mutex_) {
    const auto& [object, offset, length] = key;
    fmt::format_to(
        std::back_inserter(text_),
        R"({}{{"ph":"{}","cat":"block","pid":{},"tid":0,"ts":{:.3f},"id":"{}-{}-{}","name":"{}",)"
        R"("args":{{"offset":{},"length":{}{}}}}})",
        written_ + text_.size() == 0 ? "[\n" : ",\n", phase, pid_, microseconds(last_),
        static_cast<const void*>(object), offset, length, name, offset, length,
        why.empty() ? "" : fmt::format(R"(,"end":"{}")", why));
  }
  void flush() REQUIRES(mutex_) {
    std::string_view rest = text_;
    while (!rest.empty() && failed_ == 0) {
      const ssize_t done = ::write(descriptor_, rest.data(), rest.size());
      if (done >= 0) rest.remove_prefix(static_cast<std::size_t>(done));
      if (done < 0 && errno != EINTR) failed_ = errno;
    }
    written_ += text_.size();
    text_.clear();
  }

  const Origin origin_;
  const int descriptor_;
  const std::filesystem::path path_;
  const std::uint64_t most_;
  const int pid_ = ::getpid();
  Mutex mutex_;
  std::string text_ GUARDED_BY(mutex_);
  std::uint64_t written_ GUARDED_BY(mutex_) = 0;
  std::uint64_t left_out_ GUARDED_BY(mutex_) = 0;
  std::map<Key, std::string_view> open_ GUARDED_BY(mutex_);  // the names of open slices
  Nanoseconds last_ GUARDED_BY(mutex_){0};
  int failed_ GUARDED_BY(mutex_) = 0;  // errno
  bool closed_ GUARDED_BY(mutex_) = false;
};

Result<std::unique_ptr<CacheTrace>> CacheTrace::create(const std::filesystem::path& path,
                                                       Bytes most) {
  const int descriptor = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (descriptor < 0) return fail_errno(errno, fmt::format("cannot create {}", path.string()));
  return std::unique_ptr<CacheTrace>(
      new CacheTrace(std::make_unique<File>(descriptor, path, most)));
}

CacheTrace::CacheTrace(std::unique_ptr<File> file) : file_(std::move(file)) {}

CacheTrace::~CacheTrace() {
  if (const Status closed = close(); !closed) {
    fmt::print(stderr, "headrace: {}\n", closed.error().message);
  }
}

std::function<void(const CacheEvent&)> CacheTrace::observer() {
  return [file = file_.get()](const CacheEvent& event) { file->add(event); };
}

Status CacheTrace::close() { return file_->close(); }

}  // namespace headrace
