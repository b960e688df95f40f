// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/keyvalue/store/serve.h"

#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <map>
#include <utility>
#include <vector>

#include "core/fail.h"
#include "core/mutex.h"

namespace headrace::kv_bench {
namespace {

constexpr std::string_view kLine = "\r\n";
constexpr std::size_t kMostWord = 16 << 20;

struct Owned {
  explicit Owned(int opened) : fd(opened) {}
  ~Owned() {
    if (fd >= 0) ::close(fd);
  }
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;
  const int fd;
};

// Clients whose value has arrived, reported by threads of the library.
class Arrivals {
 public:
  int fd() const { return event_.fd; }
  void add(std::uint64_t client) {
    {
      const MutexLock lock(mutex_);
      clients_.push_back(client);
    }
    const std::uint64_t one = 1;
    (void)!::write(event_.fd, &one, sizeof(one));
  }
  std::vector<std::uint64_t> take() {
    std::uint64_t count = 0;
    (void)!::read(event_.fd, &count, sizeof(count));
    const MutexLock lock(mutex_);
    return std::exchange(clients_, {});
  }

 private:
  const Owned event_{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  Mutex mutex_;
  std::vector<std::uint64_t> clients_ GUARDED_BY(mutex_);
};

// Takes an array of strings off the front of the received bytes. nullopt: it is incomplete, or
// `broken` is set.
std::optional<std::array<std::string_view, 3>> words_of(std::string_view came, std::size_t& taken,
                                                        bool& broken) {
  std::size_t at = taken;
  const auto number = [&](char mark) -> std::optional<std::size_t> {
    const std::size_t end = came.find(kLine, at);
    if (end == came.npos) return std::nullopt;
    std::size_t value = 0;
    const auto [stopped, error] = std::from_chars(came.data() + at + 1, came.data() + end, value);
    broken |= came[at] != mark || error != std::errc{} || value > kMostWord;
    at = end + kLine.size();
    return broken ? std::nullopt : std::optional(value);
  };
  std::array<std::string_view, 3> words;
  const auto count = number('*');
  if (!count) return std::nullopt;
  broken = *count == 0 || *count > words.size();
  for (std::size_t i = 0; !broken && i < *count; ++i) {
    const auto size = number('$');
    if (!size || came.size() < at + *size + kLine.size()) return std::nullopt;
    words[i] = came.substr(at, *size);
    at += *size + kLine.size();
  }
  if (broken) return std::nullopt;
  taken = at;
  return words;
}

class Serving {
 public:
  Serving(Store& store, int listening, int stop)
      : store_(store), listening_(listening), stop_(stop) {}
  ~Serving() {
    for (const auto& [number, client] : clients_) ::close(client.fd);
  }
  Serving(const Serving&) = delete;
  Serving& operator=(const Serving&) = delete;

  Status run() {
    HEADRACE_TRY_STATUS(watch(listening_, kListening));
    HEADRACE_TRY_STATUS(watch(arrivals_->fd(), kArrivals));
    if (stop_ >= 0) HEADRACE_TRY_STATUS(watch(stop_, kStop));
    std::array<epoll_event, 64> events;
    while (true) {
      const int ready = ::epoll_wait(epoll_.fd, events.data(), events.size(), -1);
      if (ready < 0 && errno != EINTR) return fail_errno(errno, "cannot wait for clients");
      for (int i = 0; i < ready; ++i) {
        const std::uint64_t number = events[static_cast<std::size_t>(i)].data.u64;
        if (number == kStop) return {};
        handle(number, events[static_cast<std::size_t>(i)].events);
      }
    }
  }

 private:
  static constexpr std::uint64_t kListening = 0, kArrivals = 1, kStop = 2, kFirstClient = 3;

  struct Client {
    int fd = -1;
    std::string in = {}, out = {};
    std::size_t taken = 0, sent = 0;
    std::optional<Block> awaited = {};
    bool writing = false;  // more than the socket takes at once
  };

  Status watch(int fd, std::uint64_t number) {
    epoll_event event{.events = EPOLLIN, .data = {.u64 = number}};
    if (::epoll_ctl(epoll_.fd, EPOLL_CTL_ADD, fd, &event) == 0) return {};
    return fail_errno(errno, "cannot wait for clients");
  }

  void handle(std::uint64_t number, std::uint32_t events) {
    if (number == kListening) return accept();
    if (number == kArrivals) {
      for (const std::uint64_t client : arrivals_->take()) go_on(client);
      return;
    }
    const auto found = clients_.find(number);
    if (found == clients_.end()) return;
    if ((events & ~std::uint32_t{EPOLLOUT}) != 0 && !receive(found->second)) return drop(found);
    go_on(number);
  }

  void accept() {
    const int fd = ::accept4(listening_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) return;
    if (watch(fd, next_)) {
      clients_.emplace(next_++, Client{.fd = fd});
    } else {
      ::close(fd);
    }
  }

  void drop(std::map<std::uint64_t, Client>::iterator client) {
    ::close(client->second.fd);
    clients_.erase(client);
  }

  // False: the client has closed.
  static bool receive(Client& client) {
    std::array<char, 65536> bytes;
    const ssize_t got = ::recv(client.fd, bytes.data(), bytes.size(), 0);
    if (got < 0) return errno == EAGAIN || errno == EINTR;
    client.in.append(bytes.data(), static_cast<std::size_t>(got));
    return got > 0;
  }

  // Processes all complete requests and sends the responses.
  void go_on(std::uint64_t number) {
    const auto found = clients_.find(number);
    if (found == clients_.end()) return;
    Client& client = found->second;
    if (client.awaited) {
      if (client.awaited->state() == BlockState::filling) return;
      answer_block(client, *client.awaited);
      client.awaited.reset();
    }
    bool broken = false;
    while (!client.awaited) {
      const auto words = words_of(client.in, client.taken, broken);
      if (!words) break;
      answer(number, client, *words);
    }
    if (client.taken == client.in.size()) {
      client.in.clear();
      client.taken = 0;
    }
    if (broken || !send(number, client)) drop(found);
  }

  void answer(std::uint64_t number, Client& client, const std::array<std::string_view, 3>& words) {
    const auto& [command, name, value] = words;
    if (command == "SET") {
      const Status done = store_.set(name, value);
      client.out += done ? "+OK\r\n" : refusal(done.error());
      return;
    }
    if (command == "INFO") return answer_value(client, fmt::format("slow_gets:{}\r\n", slow_gets_));
    if (command != "GET") {
      client.out += "-ERR only SET, GET and INFO\r\n";
      return;
    }
    auto found = store_.get(name);
    if (!found) {
      client.out += "$-1\r\n";
    } else if (!found->block) {
      answer_value(client, found->value);
    } else if (found->block->state() != BlockState::filling) {
      answer_block(client, *found->block);
    } else {
      ++slow_gets_;
      client.awaited = std::move(found->block);
      client.awaited->on_ready([arrivals = arrivals_, number] { arrivals->add(number); });
    }
  }

  static std::string refusal(const Error& error) {
    return fmt::format("-{} {}\r\n", error.code == ErrorCode::exhausted ? "OOM" : "ERR",
                       error.message);
  }

  static void answer_value(Client& client, std::string_view value) {
    client.out += fmt::format("${}\r\n", value.size());
    client.out += value;
    client.out += kLine;
  }

  static void answer_block(Client& client, const Block& block) {
    const Result<std::string> value = Store::value_of(block);
    if (value) {
      answer_value(client, *value);
    } else {
      client.out += refusal(value.error());
    }
  }

  // False: the client has closed.
  bool send(std::uint64_t number, Client& client) {
    while (client.sent < client.out.size()) {
      const ssize_t done = ::send(client.fd, client.out.data() + client.sent,
                                  client.out.size() - client.sent, MSG_NOSIGNAL);
      if (done < 0 && errno == EAGAIN) break;
      if (done < 0 && errno != EINTR) return false;
      if (done > 0) client.sent += static_cast<std::size_t>(done);
    }
    const bool writing = client.sent < client.out.size();
    if (!writing) {
      client.out.clear();
      client.sent = 0;
    }
    if (writing == client.writing) return true;
    client.writing = writing;
    epoll_event event{.events = EPOLLIN, .data = {.u64 = number}};
    if (writing) event.events |= EPOLLOUT;
    return ::epoll_ctl(epoll_.fd, EPOLL_CTL_MOD, client.fd, &event) == 0;
  }

  Store& store_;
  const int listening_;
  const int stop_;
  const Owned epoll_{::epoll_create1(EPOLL_CLOEXEC)};
  const std::shared_ptr<Arrivals> arrivals_ = std::make_shared<Arrivals>();
  std::map<std::uint64_t, Client> clients_;
  std::uint64_t next_ = kFirstClient;
  std::uint64_t slow_gets_ = 0;  // values that were not in memory
};

}  // namespace

Status serve(Store& store, const std::string& socket, int stop) {
  sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
  if (socket.size() >= sizeof(address.sun_path)) {
    return fail(ErrorCode::invalid, "too long for a socket's name: {}", socket);
  }
  std::memcpy(address.sun_path, socket.c_str(), socket.size() + 1);
  const Owned listening(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (::bind(listening.fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 ||
      ::listen(listening.fd, SOMAXCONN) != 0) {
    return fail_errno(errno, "cannot listen at " + socket);
  }
  return Serving(store, listening.fd, stop).run();
}

}  // namespace headrace::kv_bench
