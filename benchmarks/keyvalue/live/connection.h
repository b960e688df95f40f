// SPDX-License-Identifier: Apache-2.0
// One connection to a key-value server over a unix socket: one request at a time, as by a client
// without pipelining; only load() pipelines. Requires: SIGPIPE is ignored, which hiredis does not
// prevent if the server has ended. Single-thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "benchmarks/keyvalue/ycsb/operations.h"
#include "headrace/result.h"

namespace headrace::kv_bench {

// The server's protocol: Redis' by hiredis, or memcached's text.
enum class Protocol : std::uint8_t { redis, memcached };

// A record's value: its name and a space, then random text that hardly compresses.
std::string value_of(std::uint64_t record, std::size_t bytes, Random& random);

class Connection {
 public:
  // Errors: absent: no server listens there; unsupported: Redis' protocol in a build without
  // hiredis; io.
  static Result<std::unique_ptr<Connection>> open(Protocol protocol, const std::string& socket);
  virtual ~Connection() = default;

  virtual int fd() const = 0;
  // Queues a request behind those in flight.
  virtual void ask(const Operation& operation, const std::string& value) = 0;
  // Sends queued requests. True: all are sent. Errors: io: the connection is closed.
  virtual Result<bool> send() = 0;
  // Takes one response from the received bytes. True: it was complete. A value that does not match
  // its record makes right() false. Errors: exhausted: the server has no memory for a value now;
  // io: another refusal, or the connection is closed.
  virtual Result<bool> take(std::size_t value_bytes) = 0;
  // Whether the last response was right.
  bool right() const { return right_; }

 protected:
  bool right_ = true;
};

// Connections by hiredis, and by memcached's text (get and set); Connection::open chooses one.
Result<std::unique_ptr<Connection>> open_redis(const std::string& socket);
Result<std::unique_ptr<Connection>> open_memcached(const std::string& socket);

// Whether these bytes are a value of this record.
bool is_value_of(std::string_view bytes, std::string_view key, std::size_t value_bytes);

struct LoadOptions {
  Protocol protocol = Protocol::redis;
  std::string socket;
  std::uint64_t records = 0;
  std::size_t value_bytes = 1024;
  std::optional<double> rate;  // maximum records per second
  std::uint64_t seed = 1;
};

// Stores `records` records, many at a time, and waits at most 10 s per response. If memcached has
// no memory for the moment, because it writes to SSD more slowly than requests come, retries the
// request.
Status load(const LoadOptions& options);

}  // namespace headrace::kv_bench
