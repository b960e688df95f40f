// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/keyvalue/live/connection.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>

#include "benchmarks/keyvalue/live/drive.h"
#include "benchmarks/keyvalue/live/server_testing.h"

namespace headrace::kv_bench {
namespace {

// The other end of one connection; the test writes its responses.
class Peer {
 public:
  Peer() {
    socket_.listen();
    connection = *open_memcached(socket_.path());
    fd_ = socket_.accept();
  }
  ~Peer() { hang_up(); }
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  std::unique_ptr<Connection> connection;
  void hang_up() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }
  std::string asked() {
    char bytes[4096];
    const ssize_t got = ::read(fd_, bytes, sizeof(bytes));
    return {bytes, static_cast<std::size_t>(got < 0 ? 0 : got)};
  }
  void say(const std::string& words) {
    ASSERT_EQ(::write(fd_, words.data(), words.size()), static_cast<ssize_t>(words.size()));
  }

 private:
  UnixSocket socket_;
  int fd_ = -1;
};

// A server without memory for the first request; it refuses all others the same way.
class Forgetful {
 public:
  explicit Forgetful(const std::string& words) {
    socket_.listen();
    thread_ = std::thread([this, words] {
      const int fd = socket_.accept();
      char bytes[4096];
      std::string said = "SERVER_ERROR out of memory\r\n";
      while (::read(fd, bytes, sizeof(bytes)) > 0 &&
             ::send(fd, said.data(), said.size(), MSG_NOSIGNAL) > 0) {
        said = words;
      }
      ::close(fd);
    });
  }
  ~Forgetful() { thread_.join(); }
  Forgetful(const Forgetful&) = delete;
  Forgetful& operator=(const Forgetful&) = delete;
  std::string socket() const { return socket_.path(); }

 private:
  UnixSocket socket_;
  std::thread thread_;
};

TEST(Memcached, ServerWithoutMemory_IsRetried) {
  {
    const Forgetful server("STORED\r\n");
    EXPECT_TRUE(load({Protocol::memcached, server.socket(), 1, 100}));
  }
  const Forgetful server("END\r\n");
  const auto driven = drive(*find_workload("C"), {.protocol = Protocol::memcached,
                                                  .socket = server.socket(),
                                                  .records = 100,
                                                  .clients = 1,
                                                  .seconds = 0.02});
  ASSERT_TRUE(driven) << driven.error().message;
  EXPECT_EQ(driven->repeated, 1U);
  EXPECT_GT(driven->operations, 0U);
  EXPECT_EQ(driven->wrong, driven->operations);  // nothing is stored there
}

TEST(Memcached, SpeaksItsText) {
  Peer peer;
  const std::string key = key_of(7), value = key + " of 40 bytes, at least this number of them";
  peer.connection->ask({Kind::insert, 7}, value);
  peer.connection->ask({Kind::read, 7}, "");
  ASSERT_TRUE(*peer.connection->send());
  EXPECT_EQ(peer.asked(), "set " + key + " 0 0 " + std::to_string(value.size()) + "\r\n" + value +
                              "\r\nget " + key + "\r\n");
  EXPECT_FALSE(*peer.connection->take(value.size()));
  const std::string head = "VALUE " + key + " 0 " + std::to_string(value.size()) + "\r\n";
  peer.say("STORED\r\n" + head + value.substr(0, 5));  // in the middle of a value
  EXPECT_TRUE(*peer.connection->take(value.size()));
  EXPECT_TRUE(peer.connection->right());
  EXPECT_FALSE(*peer.connection->take(value.size()));
  peer.say(value.substr(5) + "\r\nEND\r\n");
  EXPECT_TRUE(*peer.connection->take(value.size()));
  EXPECT_TRUE(peer.connection->right());
}

TEST(Memcached, ValueOfAnotherRecord_IsNotRight) {
  Peer peer;
  const std::string another = key_of(8) + " x", longer = key_of(7) + " xyz";
  for (const std::string& said :
       {std::string("END\r\n"),
        "VALUE k 0 " + std::to_string(another.size()) + "\r\n" + another + "\r\nEND\r\n",
        "VALUE k 0 " + std::to_string(longer.size()) + "\r\n" + longer + "\r\nEND\r\n"}) {
    peer.connection->ask({Kind::read, 7}, "");
    ASSERT_TRUE(*peer.connection->send());
    (void)peer.asked();
    peer.say(said);
    ASSERT_TRUE(*peer.connection->take(another.size())) << said;
    EXPECT_FALSE(peer.connection->right()) << said;
  }
}

TEST(Memcached, RefusalsAndTheEndAreErrors) {
  Peer peer;
  const auto said = [&](const std::string& words) {
    peer.connection->ask({Kind::update, 7}, "v");
    (void)peer.connection->send();
    peer.say(words);
    return peer.connection->take(1).error().code;
  };
  EXPECT_EQ(said("SERVER_ERROR out of memory storing object\r\n"), ErrorCode::exhausted);
  EXPECT_EQ(said("ERROR\r\n"), ErrorCode::io);
  peer.connection->ask({Kind::read, 7}, "");
  peer.hang_up();
  EXPECT_EQ(peer.connection->take(1).error().code, ErrorCode::io);
  EXPECT_EQ(open_memcached("/nowhere/socket").error().code, ErrorCode::absent);
}

}  // namespace
}  // namespace headrace::kv_bench
