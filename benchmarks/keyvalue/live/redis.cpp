// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/keyvalue/live/connection.h"

#include <array>
#include <deque>
#include <utility>

#include "core/fail.h"

#ifdef HEADRACE_WITH_HIREDIS
#include <hiredis/hiredis.h>
#endif

namespace headrace::kv_bench {

#ifdef HEADRACE_WITH_HIREDIS

namespace {

struct Free {
  void operator()(redisContext* context) const { redisFree(context); }
  void operator()(redisReply* reply) const { freeReplyObject(reply); }
};
using Context = std::unique_ptr<redisContext, Free>;
using Reply = std::unique_ptr<redisReply, Free>;

class RedisConnection final : public Connection {
 public:
  explicit RedisConnection(Context context) : context_(std::move(context)) {}

  int fd() const override { return context_->fd; }

  void ask(const Operation& operation, const std::string& value) override {
    asked_.push_back({operation.kind == Kind::read, key_of(operation.record)});
    const auto& [read, key] = asked_.back();
    std::array<const char*, 3> words = {read ? "GET" : "SET", key.data(), value.data()};
    const std::array<std::size_t, 3> sizes = {3, key.size(), value.size()};
    redisAppendCommandArgv(context_.get(), read ? 2 : 3, words.data(), sizes.data());
  }

  Result<bool> send() override {
    int done = 0;
    if (redisBufferWrite(context_.get(), &done) != REDIS_OK) return gone();
    return done != 0;
  }

  Result<bool> take(std::size_t value_bytes) override {
    HEADRACE_TRY(Reply reply, next());
    if (reply == nullptr) {
      if (redisBufferRead(context_.get()) != REDIS_OK) return gone();
      HEADRACE_TRY(reply, next());
    }
    if (reply == nullptr) return false;
    const auto [read, key] = std::move(asked_.front());
    asked_.pop_front();
    const std::string_view said(reply->str, reply->str == nullptr ? 0 : reply->len);
    if (reply->type == REDIS_REPLY_ERROR) {
      return fail(said.starts_with("OOM") ? ErrorCode::exhausted : ErrorCode::io,
                  "the server refuses: {}", said);
    }
    right_ = read ? reply->type == REDIS_REPLY_STRING && is_value_of(said, key, value_bytes)
                  : reply->type == REDIS_REPLY_STATUS;
    return true;
  }

 private:
  Unexpected gone() const {
    return fail(ErrorCode::io, "the server has gone: {}", context_->errstr);
  }

  // nullopt: not complete yet.
  Result<Reply> next() {
    void* found = nullptr;
    if (redisGetReplyFromReader(context_.get(), &found) != REDIS_OK) return gone();
    return Reply(static_cast<redisReply*>(found));
  }

  struct Asked {
    bool read = false;
    std::string key;
  };
  Context context_;
  std::deque<Asked> asked_;
};

}  // namespace

Result<std::unique_ptr<Connection>> open_redis(const std::string& socket) {
  Context context(redisConnectUnixNonBlock(socket.c_str()));
  if (context == nullptr) return out_of_memory();
  if (context->err != 0) {
    return fail(ErrorCode::absent, "no server at {}: {}", socket, context->errstr);
  }
  return std::make_unique<RedisConnection>(std::move(context));
}

#else

Result<std::unique_ptr<Connection>> open_redis(const std::string&) {
  return fail(ErrorCode::unsupported,
              "this build has no hiredis, by which servers are asked; install it and headrace "
              "again: sudo apt install libhiredis-dev && pip install .");
}

#endif

}  // namespace headrace::kv_bench
