// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/keyvalue/live/connection.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <deque>
#include <utility>

#include "core/fail.h"

namespace headrace::kv_bench {
namespace {

constexpr std::string_view kEnd = "\r\n", kLast = "END\r\n";

class MemcachedConnection final : public Connection {
 public:
  explicit MemcachedConnection(int fd) : fd_(fd) {}
  ~MemcachedConnection() override { ::close(fd_); }
  MemcachedConnection(const MemcachedConnection&) = delete;
  MemcachedConnection& operator=(const MemcachedConnection&) = delete;

  int fd() const override { return fd_; }

  void ask(const Operation& operation, const std::string& value) override {
    asked_.push_back({operation.kind == Kind::read, key_of(operation.record)});
    const auto& [read, key] = asked_.back();
    if (read) {
      out_ += fmt::format("get {}\r\n", key);
    } else {
      out_ += fmt::format("set {} 0 0 {}\r\n", key, value.size());
      out_ += value;
      out_ += kEnd;
    }
  }

  Result<bool> send() override {
    while (sent_ < out_.size()) {
      const ssize_t done =
          ::send(fd_, out_.data() + sent_, out_.size() - sent_, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (done < 0 && errno == EAGAIN) return false;
      if (done < 0 && errno != EINTR) return gone(std::strerror(errno));
      if (done > 0) sent_ += static_cast<std::size_t>(done);
    }
    out_.clear();
    sent_ = 0;
    return true;
  }

  Result<bool> take(std::size_t value_bytes) override {
    HEADRACE_TRY(const bool there, next(value_bytes));
    if (there) return true;
    HEADRACE_TRY_STATUS(receive());
    return next(value_bytes);
  }

 private:
  struct Asked {
    bool read = false;
    std::string key;
  };

  static Unexpected gone(std::string_view why) {
    return fail(ErrorCode::io, "the server has gone: {}", why);
  }

  Status receive() {
    std::array<char, 65536> bytes;
    while (true) {
      const ssize_t got = ::recv(fd_, bytes.data(), bytes.size(), MSG_DONTWAIT);
      if (got < 0 && errno == EAGAIN) return {};
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) return gone(got == 0 ? "it hung up" : std::strerror(errno));
      in_.append(bytes.data(), static_cast<std::size_t>(got));
      if (static_cast<std::size_t>(got) < bytes.size()) return {};
    }
  }

  // True: a response was complete.
  Result<bool> next(std::size_t value_bytes) {
    const std::string_view came = std::string_view(in_).substr(taken_);
    const std::size_t end = came.find(kEnd);
    if (end == came.npos || asked_.empty()) return false;
    const std::string_view line = came.substr(0, end);
    std::size_t size = end + kEnd.size();
    bool right = false;
    if (line.starts_with("VALUE ")) {  // VALUE key flags bytes, then the value, then END
      std::size_t bytes = 0;
      std::from_chars(line.data() + line.rfind(' ') + 1, line.data() + line.size(), bytes);
      const std::size_t whole = size + bytes + kEnd.size() + kLast.size();
      if (came.size() < whole) return false;
      right = asked_.front().read && came.substr(whole - kLast.size(), kLast.size()) == kLast &&
              is_value_of(came.substr(size, bytes), asked_.front().key, value_bytes);
      size = whole;
    } else {
      right = !asked_.front().read && line == "STORED";
    }
    Status refused;
    if (line.find("ERROR") != line.npos && !line.starts_with("VALUE ")) {
      refused = fail(
          line.starts_with("SERVER_ERROR out of memory") ? ErrorCode::exhausted : ErrorCode::io,
          "the server refuses: {}", line);
    }
    asked_.pop_front();
    taken_ += size;
    if (taken_ == in_.size()) {
      in_.clear();
      taken_ = 0;
    }
    HEADRACE_TRY_STATUS(refused);
    right_ = right;
    return true;
  }

  const int fd_;
  std::string out_, in_;
  std::size_t sent_ = 0, taken_ = 0;
  std::deque<Asked> asked_;
};

}  // namespace

Result<std::unique_ptr<Connection>> open_memcached(const std::string& socket) {
  sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
  if (socket.size() >= sizeof(address.sun_path)) {
    return fail(ErrorCode::invalid, "too long for a socket's name: {}", socket);
  }
  std::memcpy(address.sun_path, socket.c_str(), socket.size() + 1);
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return fail_errno(errno, "cannot open a socket");
  auto connection = std::make_unique<MemcachedConnection>(fd);
  if (::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    return fail(ErrorCode::absent, "no server at {}: {}", socket, std::strerror(errno));
  }
  return connection;
}

}  // namespace headrace::kv_bench
