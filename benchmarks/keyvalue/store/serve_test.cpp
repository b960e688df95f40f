// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/keyvalue/store/serve.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>

#include "benchmarks/keyvalue/live/drive.h"
#include "benchmarks/keyvalue/live/server_testing.h"

namespace headrace::kv_bench {
namespace {

// A store served in its own thread.
class Served {
 public:
  explicit Served(bool on_file) {
    StoreOptions options{.cached = 256_KiB, .value_bytes = 200, .records = 5000};
    if (on_file) options.file = socket_.directory + "/values";
    store_ = *Store::open(options);
    if (::pipe(stop_) != 0) std::abort();
    thread_ = std::thread([this] { ended_ = serve(*store_, socket(), stop_[0]); });
    // A socket has a name before it listens.
    for (int i = 0; i < 1000 && !Connection::open(Protocol::memcached, socket()); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }
  ~Served() {
    ::close(stop_[1]);
    thread_.join();
    EXPECT_TRUE(ended_);
    ::close(stop_[0]);
  }
  Served(const Served&) = delete;
  Served& operator=(const Served&) = delete;
  std::string socket() const { return socket_.path(); }
  sockaddr_un address() const { return socket_.address(); }

 private:
  UnixSocket socket_;
  std::unique_ptr<Store> store_;
  int stop_[2] = {-1, -1};
  Status ended_;
  std::thread thread_;
};

TEST(Serve, EveryValueIsItsRecords) {
  if (!with_hiredis()) GTEST_SKIP() << "without hiredis";
  for (const bool on_file : {false, true}) {
    const Served served(on_file);
    const Status loaded = load({.socket = served.socket(), .records = 5000, .value_bytes = 200});
    ASSERT_TRUE(loaded) << loaded.error().message;
    for (const char* workload : {"A", "D"}) {
      const auto driven =
          drive(*find_workload(workload),
                {.socket = served.socket(), .records = 5000, .value_bytes = 200, .seconds = 0.1});
      ASSERT_TRUE(driven) << driven.error().message;
      EXPECT_GT(driven->operations, 0U);
      EXPECT_EQ(driven->wrong, 0U) << workload << " " << on_file;
    }
  }
}

std::string answer_to(const sockaddr_un& address, const std::string& question) {
  const int fd = ::socket(AF_UNIX, SOCK_STREAM, 0);
  std::string came;
  if (::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0 &&
      ::send(fd, question.data(), question.size(), MSG_NOSIGNAL) > 0 &&
      ::shutdown(fd, SHUT_WR) == 0) {
    char bytes[4096];
    for (ssize_t got; (got = ::read(fd, bytes, sizeof(bytes))) > 0;) {
      came.append(bytes, static_cast<std::size_t>(got));
    }
  }
  ::close(fd);
  return came;
}

TEST(Serve, InvalidRequest_IsRefusedOrClosesTheConnection) {
  const Served served(false);
  const sockaddr_un socket = served.address();
  EXPECT_EQ(answer_to(socket, "*2\r\n$3\r\nGET\r\n$1\r\nx\r\n*1\r\n$4\r\nINFO\r\n"),
            "$-1\r\n$13\r\nslow_gets:0\r\n\r\n");
  EXPECT_EQ(answer_to(socket, "*1\r\n$5\r\nFLUSH\r\n"), "-ERR only SET, GET and INFO\r\n");
  for (const char* broken :
       {"GET x\r\n", "*9\r\n", "*2\r\n$3\r\nGET\r\n$99999999999\r\n", "*-1\r\n", "*2\r\n:3\r\n"}) {
    EXPECT_EQ(answer_to(socket, broken), "") << broken;
  }
  EXPECT_EQ(answer_to(socket, "*1\r\n$4\r\nIN"), "");  // closed in the middle
}

}  // namespace
}  // namespace headrace::kv_bench
