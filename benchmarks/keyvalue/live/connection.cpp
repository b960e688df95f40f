// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/keyvalue/live/connection.h"

#include <poll.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <thread>
#include <utility>

#include "core/fail.h"

namespace headrace::kv_bench {
namespace {

constexpr int kAnswerSeconds = 10;
constexpr std::uint64_t kAtOnce = 64;  // records in flight while loading
constexpr std::chrono::milliseconds kPause{10};

class Loader {
 public:
  Loader(const LoadOptions& options, std::unique_ptr<Connection> connection)
      : options_(options),
        retries_(options.protocol == Protocol::memcached ? kAnswerSeconds * 1000 / kPause.count()
                                                         : 0),
        connection_(std::move(connection)),
        random_(options.seed) {}

  Status run() {
    while (stored_ < options_.records) {
      ask();
      if (under_way_.empty()) {
        std::this_thread::sleep_for(kPause);
        continue;
      }
      HEADRACE_TRY(const bool sent, connection_->send());
      pollfd ready{connection_->fd(), static_cast<short>(POLLIN | (sent ? 0 : POLLOUT)), 0};
      if (::poll(&ready, 1, kAnswerSeconds * 1000) == 0) {
        return fail(ErrorCode::timed_out, "the server had no answer for {} s", kAnswerSeconds);
      }
      HEADRACE_TRY_STATUS(take());
    }
    return {};
  }

 private:
  void ask() {
    std::uint64_t most = options_.records;
    if (options_.rate) {
      const std::chrono::duration<double> since = std::chrono::steady_clock::now() - begun_;
      most = std::min(most, static_cast<std::uint64_t>(since.count() * *options_.rate) + 1);
    }
    while (under_way_.size() < kAtOnce && (next_ < most || !refused_.empty())) {
      std::uint64_t record = next_;
      if (refused_.empty()) {
        ++next_;
      } else {
        record = refused_.front();
        refused_.pop_front();
      }
      connection_->ask({Kind::insert, record}, value_of(record, options_.value_bytes, random_));
      under_way_.push_back(record);
    }
  }

  Status take() {
    while (!under_way_.empty()) {
      const Result<bool> answered = connection_->take(options_.value_bytes);
      if (answered && !*answered) break;
      const std::uint64_t record = under_way_.front();
      under_way_.pop_front();
      if (answered) {
        ++stored_;
        pauses_ = 0;
      } else if (answered.error().code == ErrorCode::exhausted && pauses_ < retries_) {
        refused_.push_back(record);
      } else {
        return Unexpected(answered.error());
      }
    }
    if (refused_.empty()) return {};
    ++pauses_;
    std::this_thread::sleep_for(kPause);
    return {};
  }

  const LoadOptions& options_;
  const std::int64_t retries_;
  const std::unique_ptr<Connection> connection_;
  const std::chrono::steady_clock::time_point begun_ = std::chrono::steady_clock::now();
  Random random_;
  std::uint64_t next_ = 0, stored_ = 0;
  std::int64_t pauses_ = 0;  // since the last stored record
  std::deque<std::uint64_t> under_way_;
  std::deque<std::uint64_t> refused_;  // to retry
};

}  // namespace

std::string value_of(std::uint64_t record, std::size_t bytes, Random& random) {
  std::string value = key_of(record) + ' ';
  value.reserve(bytes + 10);
  while (value.size() < bytes) {
    std::uint64_t drawn = random();
    for (int i = 0; i < 10; ++i, drawn >>= 6) value += static_cast<char>('0' + (drawn & 63));
  }
  value.resize(bytes);
  return value;
}

bool is_value_of(std::string_view bytes, std::string_view key, std::size_t value_bytes) {
  if (bytes.size() != value_bytes) return false;
  return bytes.starts_with(key.substr(0, value_bytes)) &&
         (value_bytes <= key.size() || bytes[key.size()] == ' ');
}

Result<std::unique_ptr<Connection>> Connection::open(Protocol protocol, const std::string& socket) {
  return protocol == Protocol::redis ? open_redis(socket) : open_memcached(socket);
}

Status load(const LoadOptions& options) {
  HEADRACE_TRY(auto connection, Connection::open(options.protocol, options.socket));
  return Loader(options, std::move(connection)).run();
}

}  // namespace headrace::kv_bench
