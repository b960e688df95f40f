// SPDX-License-Identifier: Apache-2.0
// A server for tests: SET and GET of Redis' protocol over a unix socket, in its own thread.
#pragma once

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <string>
#include <thread>
#include <vector>

namespace headrace::kv_bench {

// A unix socket in a temporary directory.
class UnixSocket {
 public:
  UnixSocket() {
    char name[] = "/tmp/headrace-kv-test-XXXXXX";
    directory = ::mkdtemp(name);
  }
  ~UnixSocket() {
    if (fd >= 0) ::close(fd);
    std::filesystem::remove_all(directory);
  }
  UnixSocket(const UnixSocket&) = delete;
  UnixSocket& operator=(const UnixSocket&) = delete;

  std::string path() const { return directory + "/socket"; }
  sockaddr_un address() const {
    sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
    std::snprintf(address.sun_path, sizeof(address.sun_path), "%s", path().c_str());
    return address;
  }
  void listen() {
    const sockaddr_un to = address();
    fd = ::socket(AF_UNIX, SOCK_STREAM, 0);
    if (::bind(fd, reinterpret_cast<const sockaddr*>(&to), sizeof(to)) != 0 ||
        ::listen(fd, 64) != 0) {
      std::abort();
    }
  }
  int accept() const { return ::accept(fd, nullptr, nullptr); }

  std::string directory;
  int fd = -1;
};

struct ServerHabits {
  int stall_ms = 0;      // before the first response
  bool wrong = false;    // returns another record's value
  bool refuses = false;  // every SET
  int ends_after = 0;    // closes after this many responses; 0: never
};

class TestServer {
 public:
  explicit TestServer(ServerHabits habits = {}) : habits_(habits) {
    std::signal(SIGPIPE, SIG_IGN);
    socket_.listen();
    if (::pipe(stop_) != 0) std::abort();
    thread_ = std::thread([this] { serve(); });
  }
  ~TestServer() {
    end();
    ::close(stop_[0]);
  }
  TestServer(const TestServer&) = delete;
  TestServer& operator=(const TestServer&) = delete;

  std::string socket() const { return socket_.path(); }
  // The stored values. Ends the server.
  const std::map<std::string, std::string>& stored() {
    end();
    return stored_;
  }

 private:
  void end() {
    if (!thread_.joinable()) return;
    ::close(stop_[1]);
    thread_.join();
  }

  void serve() {
    std::map<int, std::string> clients;
    while (true) {
      std::vector<pollfd> waited = {{stop_[0], POLLIN, 0}, {socket_.fd, POLLIN, 0}};
      for (const auto& [fd, came] : clients) waited.push_back({fd, POLLIN, 0});
      if (::poll(waited.data(), waited.size(), -1) < 0 || waited[0].revents != 0) break;
      if (waited[1].revents != 0) clients[socket_.accept()];
      for (std::size_t i = 2; i < waited.size(); ++i) {
        if (waited[i].revents == 0 || take(waited[i].fd, clients[waited[i].fd])) continue;
        ::close(waited[i].fd);
        clients.erase(waited[i].fd);
      }
    }
    for (const auto& [fd, came] : clients) ::close(fd);
  }

  // False: the connection is closed.
  bool take(int fd, std::string& came) {
    char bytes[65536];
    const ssize_t got = ::read(fd, bytes, sizeof(bytes));
    if (got <= 0) return false;
    came.append(bytes, static_cast<std::size_t>(got));
    while (step(fd, came)) {
      if (habits_.ends_after != 0 && answers_ >= habits_.ends_after) return false;
    }
    return true;
  }

  // Takes one request off the front of the received bytes and answers it. False: it is incomplete.
  bool step(int fd, std::string& came) {
    std::size_t at = 0;
    const auto number = [&](char mark) -> long {
      const std::size_t end = came.find("\r\n", at);
      if (end == std::string::npos || came[at] != mark) return -1;
      const long value = std::strtol(came.c_str() + at + 1, nullptr, 10);
      at = end + 2;
      return value;
    };
    const long count = number('*');
    std::vector<std::string> words;
    for (long i = 0; i < count; ++i) {
      const long size = number('$');
      if (size < 0 || came.size() < at + static_cast<std::size_t>(size) + 2) return false;
      words.push_back(came.substr(at, static_cast<std::size_t>(size)));
      at += static_cast<std::size_t>(size) + 2;
    }
    if (words.size() < 2) return false;
    came.erase(0, at);
    if (answers_++ == 0) std::this_thread::sleep_for(std::chrono::milliseconds(habits_.stall_ms));
    const std::string said = answer(words);
    return ::send(fd, said.data(), said.size(), MSG_NOSIGNAL) >= 0;
  }

  std::string answer(const std::vector<std::string>& words) {
    if (words[0] == "SET") {
      if (habits_.refuses) return "-OOM no memory\r\n";
      stored_[words[1]] = words[2];
      return "+OK\r\n";
    }
    auto found = stored_.find(words[1]);
    if (found == stored_.end()) return "$-1\r\n";
    if (habits_.wrong && ++found == stored_.end()) found = stored_.begin();
    return "$" + std::to_string(found->second.size()) + "\r\n" + found->second + "\r\n";
  }

  ServerHabits habits_;
  UnixSocket socket_;
  int stop_[2] = {-1, -1};
  int answers_ = 0;
  std::map<std::string, std::string> stored_;
  std::thread thread_;
};

// Whether this build can talk to servers.
inline bool with_hiredis() {
#ifdef HEADRACE_WITH_HIREDIS
  return true;
#else
  return false;
#endif
}

}  // namespace headrace::kv_bench
