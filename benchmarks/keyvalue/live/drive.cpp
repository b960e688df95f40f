// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/keyvalue/live/drive.h"

#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <deque>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "benchmarks/keyvalue/live/connection.h"
#include "benchmarks/keyvalue/live/server_process.h"
#include "core/fail.h"
#include "headrace/statistics.h"

namespace headrace::kv_bench {
namespace {

constexpr std::int64_t kNoAnswerNs = 10'000'000'000;

std::int64_t now_ns() {
  return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
}

// The set of polled descriptors; closed with it.
class Epoll {
 public:
  Epoll() : fd_(::epoll_create1(EPOLL_CLOEXEC)) {}
  ~Epoll() {
    if (fd_ >= 0) ::close(fd_);
  }
  Epoll(const Epoll&) = delete;
  Epoll& operator=(const Epoll&) = delete;

  Status watch(int operation, int fd, std::uint32_t client, bool writable) {
    epoll_event event{.events = EPOLLIN, .data = {.u32 = client}};
    if (writable) event.events |= EPOLLOUT;
    if (fd_ < 0 || ::epoll_ctl(fd_, operation, fd, &event) != 0) {
      return fail_errno(errno, "cannot wait for a server");
    }
    return {};
  }

  int wait(std::span<epoll_event> events, std::int64_t ns) {
    const timespec time{.tv_sec = ns / 1'000'000'000, .tv_nsec = ns % 1'000'000'000};
    return ::epoll_pwait2(fd_, events.data(), static_cast<int>(events.size()), &time, nullptr);
  }

 private:
  int fd_;
};

class Loop {
 public:
  Loop(const Workload& workload, const DriveOptions& options)
      : options_(options),
        operations_(workload, options.records, options.seed),
        random_(options.seed + 1),
        inserted_(options.records) {}

  Result<Driven> run() {
    HEADRACE_TRY_STATUS(connect());
    const auto before = usage_of(options_.server);
    begin_ = now_ns();
    end_ = begin_ + static_cast<std::int64_t>(options_.seconds * 1e9);
    last_answer_ = begin_;
    // Operations intended to begin in time may begin late, but not without a limit.
    const std::int64_t last = options_.rate ? 2 * end_ - begin_ : end_;
    while (true) {
      const std::int64_t now = now_ns();
      if (now < last) HEADRACE_TRY_STATUS(ask_all(now));
      if (idle_.size() == clients_.size() && (now >= last || since(now) >= end_)) break;
      if (idle_.size() == clients_.size()) last_answer_ = now;
      if (now - last_answer_ > kNoAnswerNs) {
        return fail(ErrorCode::timed_out, "the server had no answer for {} s",
                    kNoAnswerNs / 1'000'000'000);
      }
      HEADRACE_TRY_STATUS(take_answers(now));
    }
    return told(before, usage_of(options_.server));
  }

 private:
  struct Client {
    std::unique_ptr<Connection> connection;
    Operation operation;
    std::int64_t meant = 0;  // intended begin
    bool sending = false;
  };

  Status connect() {
    for (unsigned i = 0; i < options_.clients; ++i) {
      HEADRACE_TRY(auto connection, Connection::open(options_.protocol, options_.socket));
      HEADRACE_TRY_STATUS(epoll_.watch(EPOLL_CTL_ADD, connection->fd(), i, false));
      clients_.push_back({.connection = std::move(connection)});
      idle_.push_back(i);
    }
    return {};
  }

  std::int64_t intended(std::uint64_t number) const {
    return begin_ + static_cast<std::int64_t>(static_cast<double>(number) * 1e9 / *options_.rate);
  }

  // The intended begin of the next operation.
  std::int64_t since(std::int64_t now) const { return options_.rate ? intended(begun_) : now; }

  Status ask_all(std::int64_t now) {
    while (!idle_.empty()) {
      const std::int64_t meant = since(now);
      if (meant > now || meant >= end_) return {};
      const unsigned client = idle_.front();
      idle_.pop_front();
      ++begun_;
      HEADRACE_TRY_STATUS(ask(client, meant));
    }
    return {};
  }

  Status ask(unsigned number, std::int64_t meant) {
    Client& client = clients_[number];
    client.operation = operations_.next();
    client.meant = meant;
    if (client.operation.kind == Kind::insert) {
      inserting_.insert(client.operation.record);
      inserted_ = client.operation.record + 1;
    } else {
      // Only acknowledged records can be read.
      const std::uint64_t there = inserting_.empty() ? inserted_ : *inserting_.begin();
      client.operation.record = std::min(client.operation.record, there - 1);
    }
    return ask_now(number);
  }

  Status ask_now(unsigned number) {
    const Client& client = clients_[number];
    std::string value;
    if (client.operation.kind != Kind::read) {
      value = value_of(client.operation.record, options_.value_bytes, random_);
    }
    client.connection->ask(client.operation, value);
    return send(number);
  }

  Status send(unsigned number) {
    Client& client = clients_[number];
    HEADRACE_TRY(const bool sent, client.connection->send());
    if (sent == !client.sending) return {};
    client.sending = !sent;
    return epoll_.watch(EPOLL_CTL_MOD, client.connection->fd(), number, client.sending);
  }

  Status take_answers(std::int64_t now) {
    std::array<epoll_event, 64> events;
    std::int64_t until = kNoAnswerNs / 10;
    if (options_.rate && !idle_.empty() && since(now) < end_) {
      until = std::clamp(since(now) - now, std::int64_t{0}, until);
    }
    const int ready = epoll_.wait(events, until);
    if (ready < 0 && errno != EINTR) return fail_errno(errno, "cannot wait for a server");
    for (int i = 0; i < ready; ++i) {
      const unsigned number = events[static_cast<std::size_t>(i)].data.u32;
      Client& client = clients_[number];
      if (client.sending) HEADRACE_TRY_STATUS(send(number));
      const Result<bool> complete = client.connection->take(options_.value_bytes);
      if (complete) {
        if (*complete) answered(number);
      } else if (complete.error().code == ErrorCode::exhausted &&
                 options_.protocol == Protocol::memcached) {
        ++repeated_;
        HEADRACE_TRY_STATUS(ask_now(number));
      } else {
        return Unexpected(complete.error());
      }
    }
    return {};
  }

  void answered(unsigned number) {
    const Client& client = clients_[number];
    last_answer_ = now_ns();
    waited_.push_back(static_cast<double>(last_answer_ - client.meant) / 1e3);
    if (!client.connection->right()) ++wrong_;
    if (client.operation.kind == Kind::insert) inserting_.erase(client.operation.record);
    idle_.push_back(number);
  }

  Driven told(const std::optional<Usage>& before, const std::optional<Usage>& after) const {
    Driven driven{.operations = waited_.size(), .wrong = wrong_, .repeated = repeated_};
    if (options_.rate && intended(begun_) < end_) {
      driven.not_begun = static_cast<std::uint64_t>(options_.seconds * *options_.rate) - begun_;
    }
    driven.seconds = static_cast<double>(last_answer_ - begin_) / 1e9;
    if (waited_.empty()) return driven;
    driven.p50_us = *quantile(waited_, 0.5);
    driven.p99_us = *quantile(waited_, 0.99);
    driven.p999_us = *quantile(waited_, 0.999);
    if (before && after) {
      const double count = static_cast<double>(waited_.size());
      driven.major_faults = static_cast<double>(after->major_faults - before->major_faults) / count;
      driven.cpu_us = (after->cpu_ns - before->cpu_ns) / count / 1e3;
    }
    return driven;
  }

  const DriveOptions& options_;
  Operations operations_;
  Random random_;
  std::uint64_t inserted_;             // records, including those being inserted
  std::set<std::uint64_t> inserting_;  // not acknowledged yet
  Epoll epoll_;
  std::vector<Client> clients_;
  std::deque<unsigned> idle_;
  std::uint64_t begun_ = 0;
  std::int64_t begin_ = 0, end_ = 0, last_answer_ = 0;
  std::vector<double> waited_;
  std::uint64_t wrong_ = 0, repeated_ = 0;
};

}  // namespace

Result<Driven> drive(const Workload& workload, const DriveOptions& options) {
  return Loop(workload, options).run();
}

}  // namespace headrace::kv_bench
