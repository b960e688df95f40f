// One connection to a server that speaks Redis' protocol, by hiredis: one question at a time, as a
// client without pipelining asks. Requires: SIGPIPE is ignored, which hiredis lets through where
// the server has gone. Single-thread.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "headrace/result.h"
#include "workload/kv/ycsb/operations.h"

namespace headrace::kv_bench {

// A record's value: its name and a space, then text drawn anew each time, which hardly compresses.
std::string value_of(std::uint64_t record, std::size_t bytes, Random& random);

class Connection {
 public:
  // Over a unix socket. absent: nobody listens there; unsupported: built without hiredis; io.
  static Result<Connection> open(const std::string& socket);

  Connection(Connection&&) noexcept;
  Connection& operator=(Connection&&) noexcept;
  ~Connection();

  int fd() const;
  // Begins an operation. Requires: none is under way. io: the server has gone.
  Status ask(const Operation& operation, std::string value);
  // Sends what is left of the question. True: all is sent.
  Result<bool> send();
  // Takes what has come. True: the answer is complete. io: the server refuses or has gone; a value
  // that is not its record's makes right() false.
  Result<bool> take(std::size_t value_bytes);
  bool right() const;

 private:
  struct Inside;
  explicit Connection(std::unique_ptr<Inside> inside);
  std::unique_ptr<Inside> inside_;
};

// Stores so many records, many at a time; each answer is waited for 10 s at most.
Status load(const std::string& socket, std::uint64_t records, std::size_t value_bytes,
            std::uint64_t seed);

}  // namespace headrace::kv_bench
