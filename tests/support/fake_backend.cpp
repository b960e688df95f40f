// SPDX-License-Identifier: Apache-2.0
#include "tests/support/fake_backend.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "core/check.h"
#include "core/fail.h"
#include "headrace/file.h"

namespace headrace {
namespace {

// Neither zero nor ASCII: the content of a destination while its piece is in flight.
constexpr int kGarbage = 0xA5;

// Sleep of the own thread while nothing calls it; it bounds a wait, and decides nothing.
constexpr Nanoseconds kIdle = std::chrono::milliseconds{50};
// The same while pieces wait for their time.
constexpr Nanoseconds kTick = std::chrono::microseconds{20};

std::pair<NodeId, NodeId> link_of(const Piece& piece) {
  return {piece.from.object->node(), piece.to.object->node()};
}

Capabilities describe(const FakeOptions& options) {
  Capabilities facts;
  facts.name = options.name;
  facts.engines = options.engines;
  facts.max_piece = options.max_piece;
  facts.max_in_flight = options.max_in_flight;
  facts.inline_below = options.inside_chance >= 1 ? options.max_piece + 1_B : 0_B;
  facts.completes_itself = options.own_thread;
  facts.note = "for tests";
  return facts;
}

Status copy(const Piece& piece) {
  const std::size_t bytes = piece.to.length.value;
  if (piece.from.memory() != nullptr && piece.to.memory() != nullptr) {
    std::memcpy(piece.to.memory(), piece.from.memory(), bytes);
    return {};
  }
  const bool reads = piece.to.memory() != nullptr;
  const Extent& file = reads ? piece.from : piece.to;
  const int descriptor = static_cast<const File&>(*file.object).buffered_fd();
  const auto at = static_cast<off_t>(file.offset);
  const ssize_t done = reads ? pread(descriptor, piece.to.memory(), bytes, at)
                             : pwrite(descriptor, piece.from.memory(), bytes, at);
  return done == static_cast<ssize_t>(bytes) ? Status{} : fail(ErrorCode::io, "short");
}

}  // namespace

FakeBackend::FakeBackend(FakeOptions options)
    : options_(std::move(options)),
      capabilities_(describe(options_)),
      state_(std::make_unique<State>(options_.seed)) {
  if (options_.own_thread) thread_ = std::thread([this] { run(); });
}

FakeBackend::~FakeBackend() {
  if (!origin_.here()) {
    abandon(std::move(thread_));
    abandon(std::move(state_));
    return;
  }
  {
    MutexLock lock(state_->mutex);
    state_->stopping = true;
  }
  state_->work.notify_all();
  if (thread_.joinable()) thread_.join();
  while (finish(SIZE_MAX) > 0) {
  }
}

// The number of `pieces` that this submit() accepts.
std::size_t FakeBackend::acceptable(std::span<const Piece> pieces) {
  std::size_t most = std::min(pieces.size(), state_->at_most.value_or(pieces.size()));
  if (most > 0 && state_->random.chance(options_.partial_chance)) most = state_->random.below(most);
  std::map<EngineId, std::size_t> taken;
  for (std::size_t i = 0; i < most; ++i) {
    const EngineId engine = pieces[i].engine;
    if (state_->engines[engine].in_flight + ++taken[engine] > options_.max_in_flight) return i;
  }
  return most;
}

Status FakeBackend::decide(const Piece& piece) {
  EngineState& engine = state_->engines[piece.engine];
  if (engine.broken) return Unexpected(*engine.broken);
  const std::uint64_t number = state_->stats.accepted;
  if (engine.fail_next > 0) {
    --engine.fail_next;
    return fail(ErrorCode::io, "the fake fails piece {}", number);
  }
  if (state_->random.chance(options_.fail_chance)) {
    return fail(ErrorCode::io, "the fake failed piece {}", number);
  }
  return options_.script ? options_.script(piece, number) : Status{};
}

void FakeBackend::watch(const Piece& piece) {
  for (const auto& other : state_->flights) {
    if (overlap(piece.to, other->piece.to)) {
      state_->violations.push_back(
          fmt::format("piece {} writes where another in flight writes, offset {}",
                      state_->stats.accepted, piece.to.offset));
    }
    if (overlap(piece.to, other->piece.from) || overlap(piece.from, other->piece.to)) {
      state_->violations.push_back(
          fmt::format("piece {} reads or writes what another in flight does not "
                      "expect, offset {}",
                      state_->stats.accepted, piece.to.offset));
    }
  }
}

std::shared_ptr<FakeBackend::Flight> FakeBackend::accept(const Piece& piece,
                                                         Completion& completion) {
  watch(piece);
  auto flight = std::make_shared<Flight>(Flight{.piece = piece,
                                                .completion = &completion,
                                                .outcome = decide(piece),
                                                .due = options_.clock->now() + options_.delay,
                                                .polls_left = options_.polls});
  if (options_.jitter.count() > 0) {
    flight->due += Nanoseconds{static_cast<std::int64_t>(
        state_->random.below(static_cast<std::uint64_t>(options_.jitter.count())))};
  }
  ++state_->stats.accepted;
  if (options_.log) state_->accepted.push_back(piece);
  const std::size_t now = ++state_->engines[piece.engine].in_flight;
  std::size_t& most = state_->stats.most_in_flight[piece.engine];
  most = std::max(most, now);
  const Bytes bytes = state_->link_bytes[link_of(piece)] += piece.to.length;
  Bytes& most_bytes = state_->stats.most_link_bytes[link_of(piece)];
  most_bytes = std::max(most_bytes, bytes);
  state_->flights.push_back(flight);
  return flight;
}

Result<std::size_t> FakeBackend::submit(std::span<const Piece> pieces, Completion& completion) {
  HEADRACE_TRY_STATUS(origin_.check("the fake backend"));
  for (const Piece& piece : pieces) {
    HEADRACE_TRY_STATUS(check_piece(capabilities_, piece));
    if (!options_.files && (piece.from.memory() == nullptr || piece.to.memory() == nullptr)) {
      return fail(ErrorCode::unsupported, "the fake copies memory only; give it no files");
    }
  }
  std::vector<std::shared_ptr<Flight>> inside;
  std::size_t taken = 0;
  {
    MutexLock lock(state_->mutex);
    ++state_->stats.submits;
    for (const Piece& piece : pieces) {
      if (const auto& refusal = state_->engines[piece.engine].refusal) {
        ++state_->stats.refused;
        return Unexpected(*refusal);
      }
    }
    taken = acceptable(pieces);
    state_->stats.partial += taken < pieces.size();
    for (const Piece& piece : pieces.first(taken)) {
      auto flight = accept(piece, completion);
      if (piece.to.length > 0_B && piece.to.memory() != nullptr)
        std::memset(piece.to.memory(), kGarbage, piece.to.length.value);
      if (!state_->random.chance(options_.inside_chance)) continue;
      flight->ending = true;
      inside.push_back(std::move(flight));
    }
  }
  if (options_.own_thread) state_->work.notify_one();
  for (const auto& flight : inside) end(*flight);
  return taken;
}

// Copies, removes and completes the piece.
void FakeBackend::end(Flight& flight) {
  const Piece& piece = flight.piece;
  if (flight.outcome && piece.to.length > 0_B) flight.outcome = copy(piece);
  std::shared_ptr<Flight> keep;
  {
    MutexLock lock(state_->mutex);
    const auto at =
        std::ranges::find_if(state_->flights, [&](auto& f) { return f.get() == &flight; });
    CHECK(at != state_->flights.end());
    keep = std::move(*at);
    state_->flights.erase(at);
    --state_->engines[piece.engine].in_flight;
    state_->link_bytes[link_of(piece)] -= piece.to.length;
    if (flight.outcome) {
      state_->stats.bytes += piece.to.length;
    } else {
      ++state_->stats.failed;
    }
  }
  flight.completion->complete(piece.tag, std::move(flight.outcome));
}

// The pieces that a poll completes now, in order. Without reordering, a piece that is not due
// blocks those behind it.
std::vector<std::shared_ptr<FakeBackend::Flight>> FakeBackend::take_due() {
  std::vector<std::shared_ptr<Flight>> due;
  if (state_->held) return due;
  const Nanoseconds now = options_.clock->now();
  bool blocked = false;
  for (const auto& flight : state_->flights) {
    if (flight->ending) continue;
    const bool ripe = flight->due <= now && flight->polls_left == 0;
    if (flight->polls_left > 0) --flight->polls_left;
    blocked = blocked || !ripe;
    if (!ripe || (blocked && !options_.reorder)) continue;
    flight->ending = true;
    due.push_back(flight);
  }
  if (options_.reorder) std::ranges::shuffle(due, state_->random);
  return due;
}

std::size_t FakeBackend::poll() {
  if (options_.own_thread || !origin_.here()) return 0;
  std::vector<std::shared_ptr<Flight>> due;
  {
    MutexLock lock(state_->mutex);
    due = take_due();
  }
  for (const auto& flight : due) end(*flight);
  return due.size();
}

std::size_t FakeBackend::finish(std::size_t count) {
  std::vector<std::shared_ptr<Flight>> oldest;
  {
    MutexLock lock(state_->mutex);
    for (const auto& flight : state_->flights) {
      if (oldest.size() == count) break;
      if (std::exchange(flight->ending, true)) continue;
      oldest.push_back(flight);
    }
  }
  for (const auto& flight : oldest) end(*flight);
  return oldest.size();
}

void FakeBackend::run() {
  MutexLock lock(state_->mutex);
  while (!state_->stopping) {
    const auto due = take_due();
    if (due.empty()) {
      state_->work.wait_for(state_->mutex, state_->flights.empty() || state_->held ? kIdle : kTick);
      continue;
    }
    lock.unlock();
    for (const auto& flight : due) end(*flight);
    lock.lock();
  }
}

void FakeBackend::refuse(EngineId engine, std::optional<Error> error) {
  MutexLock lock(state_->mutex);
  state_->engines[engine].refusal = std::move(error);
}

void FakeBackend::break_engine(EngineId engine, std::optional<Error> error) {
  MutexLock lock(state_->mutex);
  state_->engines[engine].broken = std::move(error);
}

void FakeBackend::fail_next(EngineId engine, unsigned count) {
  MutexLock lock(state_->mutex);
  state_->engines[engine].fail_next = count;
}

void FakeBackend::accept_at_most(std::optional<std::size_t> pieces) {
  MutexLock lock(state_->mutex);
  state_->at_most = pieces;
}

void FakeBackend::hold(bool held) {
  {
    MutexLock lock(state_->mutex);
    state_->held = held;
  }
  state_->work.notify_all();
}

FakeStats FakeBackend::stats() const {
  MutexLock lock(state_->mutex);
  return state_->stats;
}

std::size_t FakeBackend::in_flight() const {
  MutexLock lock(state_->mutex);
  return state_->flights.size();
}

bool FakeBackend::writes_to(const Extent& extent) const {
  MutexLock lock(state_->mutex);
  return std::ranges::any_of(state_->flights,
                             [&](const auto& f) { return overlap(f->piece.to, extent); });
}

std::vector<Piece> FakeBackend::accepted() const {
  MutexLock lock(state_->mutex);
  return state_->accepted;
}

std::vector<std::string> FakeBackend::violations() const {
  MutexLock lock(state_->mutex);
  return state_->violations;
}

}  // namespace headrace
