// SPDX-License-Identifier: Apache-2.0
// One connection to a server of keys and values, over a unix socket: one question at a time, as a
// client without pipelining asks; only load() asks many. Requires: SIGPIPE is ignored, which
// hiredis lets through where the server has gone. Single-thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "headrace/result.h"
#include "workload/kv/ycsb/operations.h"

namespace headrace::kv_bench {

// What a server speaks: Redis' protocol, by hiredis, or memcached's text.
enum class Protocol : std::uint8_t { redis, memcached };

// A record's value: its name and a space, then text drawn anew each time, which hardly compresses.
std::string value_of(std::uint64_t record, std::size_t bytes, Random& random);

class Connection {
 public:
  // absent: nobody listens there; unsupported: Redis' protocol, built without hiredis; io.
  static Result<std::unique_ptr<Connection>> open(Protocol protocol, const std::string& socket);
  virtual ~Connection() = default;

  virtual int fd() const = 0;
  // Begins an operation, behind those that are under way.
  virtual void ask(const Operation& operation, const std::string& value) = 0;
  // Sends what is left of the questions. True: all is sent. io: the server has gone.
  virtual Result<bool> send() = 0;
  // Takes one answer from what has come. True: it was complete. exhausted: the server has no memory
  // for a value now; io: it refuses otherwise, or has gone. A value that is not its record's makes
  // right() false.
  virtual Result<bool> take(std::size_t value_bytes) = 0;
  // The last answer taken.
  bool right() const { return right_; }

 protected:
  bool right_ = true;
};

// Whether these are the bytes of a value of this record.
bool is_value_of(std::string_view bytes, std::string_view key, std::size_t value_bytes);

struct LoadOptions {
  Protocol protocol = Protocol::redis;
  std::string socket;
  std::uint64_t records = 0;
  std::size_t value_bytes = 1024;
  std::optional<double> rate;  // records per second at most
  std::uint64_t seed = 1;
};

// Stores so many records, many at a time; each answer is waited for 10 s at most. Where memcached
// has no memory for the moment, since it writes to SSD more slowly than it is asked to store, it is
// asked again.
Status load(const LoadOptions& options);

}  // namespace headrace::kv_bench
