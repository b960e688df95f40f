#include "workload/kv/live/connection.h"

#include <array>
#include <utility>

#include "core/fail.h"

#ifdef HEADRACE_WITH_HIREDIS
#include <hiredis/hiredis.h>
#endif

namespace headrace::kv_bench {

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

#ifdef HEADRACE_WITH_HIREDIS

namespace {

constexpr int kAnswerSeconds = 10;
constexpr std::uint64_t kAtOnce = 64;  // records on their way while loading

struct Free {
  void operator()(redisContext* context) const { redisFree(context); }
  void operator()(redisReply* reply) const { freeReplyObject(reply); }
};
using Context = std::unique_ptr<redisContext, Free>;
using Reply = std::unique_ptr<redisReply, Free>;

std::unexpected<Error> gone(const redisContext& context) {
  return fail(ErrorCode::io, "the server has gone: {}", context.errstr);
}

Result<Context> connected(redisContext* made, const std::string& socket) {
  Context context(made);
  if (context == nullptr) return out_of_memory();
  if (context->err == 0) return context;
  return fail(ErrorCode::absent, "no server at {}: {}", socket, context->errstr);
}

void append(redisContext& context, const Operation& operation, const std::string& key,
            const std::string& value) {
  const bool read = operation.kind == Kind::read;
  std::array<const char*, 3> words = {read ? "GET" : "SET", key.data(), value.data()};
  const std::array<std::size_t, 3> sizes = {3, key.size(), value.size()};
  redisAppendCommandArgv(&context, read ? 2 : 3, words.data(), sizes.data());
}

// What the server says to a question; it refuses where memory is short, for example.
Status check_reply(const redisReply& reply) {
  if (reply.type != REDIS_REPLY_ERROR) return {};
  return fail(ErrorCode::io, "the server refuses: {}", std::string_view(reply.str, reply.len));
}

}  // namespace

#endif

struct Connection::Inside {
#ifdef HEADRACE_WITH_HIREDIS
  Context context;
  Operation operation;
  std::string key;
  bool right = true;
#endif
};

#ifdef HEADRACE_WITH_HIREDIS

Result<Connection> Connection::open(const std::string& socket) {
  HEADRACE_TRY(Context context, connected(redisConnectUnixNonBlock(socket.c_str()), socket));
  return Connection(std::make_unique<Inside>(Inside{.context = std::move(context)}));
}

int Connection::fd() const { return inside_->context->fd; }
bool Connection::right() const { return inside_->right; }

Status Connection::ask(const Operation& operation, std::string value) {
  inside_->operation = operation;
  inside_->key = key_of(operation.record);
  append(*inside_->context, operation, inside_->key, value);
  return {};
}

Result<bool> Connection::send() {
  int done = 0;
  if (redisBufferWrite(inside_->context.get(), &done) != REDIS_OK) return gone(*inside_->context);
  return done != 0;
}

Result<bool> Connection::take(std::size_t value_bytes) {
  redisContext& context = *inside_->context;
  void* found = nullptr;
  if (redisBufferRead(&context) != REDIS_OK ||
      redisGetReplyFromReader(&context, &found) != REDIS_OK) {
    return gone(context);
  }
  const Reply reply(static_cast<redisReply*>(found));
  if (reply == nullptr) return false;
  HEADRACE_TRY_STATUS(check_reply(*reply));
  if (inside_->operation.kind == Kind::read) {
    inside_->right = reply->type == REDIS_REPLY_STRING && reply->len == value_bytes &&
                     std::string_view(reply->str, reply->len)
                         .starts_with((inside_->key + ' ').substr(0, value_bytes));
  } else {
    inside_->right = reply->type == REDIS_REPLY_STATUS;
  }
  return true;
}

Status load(const std::string& socket, std::uint64_t records, std::size_t value_bytes,
            std::uint64_t seed) {
  const timeval bound{.tv_sec = kAnswerSeconds};
  HEADRACE_TRY(const Context context,
               connected(redisConnectUnixWithTimeout(socket.c_str(), bound), socket));
  redisSetTimeout(context.get(), bound);
  Random random(seed);
  std::uint64_t answered = 0;
  for (std::uint64_t asked = 0; answered < records;) {
    for (; asked < records && asked < answered + kAtOnce; ++asked) {
      append(*context, {Kind::insert, asked}, key_of(asked), value_of(asked, value_bytes, random));
    }
    for (; answered < asked; ++answered) {
      void* found = nullptr;
      if (redisGetReply(context.get(), &found) != REDIS_OK) return gone(*context);
      HEADRACE_TRY_STATUS(check_reply(*Reply(static_cast<redisReply*>(found))));
    }
  }
  return {};
}

#else

namespace {

std::unexpected<Error> without() {
  return fail(ErrorCode::unsupported,
              "this build has no hiredis, by which servers are asked; install it and headrace "
              "again: sudo apt install libhiredis-dev && pip install .");
}

}  // namespace

Result<Connection> Connection::open(const std::string&) { return without(); }
int Connection::fd() const { return -1; }
bool Connection::right() const { return false; }
Status Connection::ask(const Operation&, std::string) { return without(); }
Result<bool> Connection::send() { return without(); }
Result<bool> Connection::take(std::size_t) { return without(); }
Status load(const std::string&, std::uint64_t, std::size_t, std::uint64_t) { return without(); }

#endif

Connection::Connection(std::unique_ptr<Inside> inside) : inside_(std::move(inside)) {}
Connection::Connection(Connection&&) noexcept = default;
Connection& Connection::operator=(Connection&&) noexcept = default;
Connection::~Connection() = default;

}  // namespace headrace::kv_bench
