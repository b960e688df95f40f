// SPDX-License-Identifier: Apache-2.0
// The public classes: Store, Match, Load and Stored.
#include "headrace/kvcache/store.h"

#include <algorithm>
#include <utility>

#include "core/fail.h"
#include "kvcache/core.h"

namespace headrace::kvcache {
namespace {

// How long a thread that waits for the first layer looks at a time whether a GPU has it. No work
// hides the first layer; later layers are read ahead.
constexpr Nanoseconds kFirstLook = std::chrono::microseconds{200};

// In a child of fork() no thread ends unfinished operations, and their lock may be held forever.
void call_at(Ending& ending, const StoreCore& core, std::function<void()> then) {
  if (!ending.over) {
    if (!core.origin.here()) return;
    const MutexLock lock(ending.mutex);
    if (!ending.over) {
      ending.thens.push_back(std::move(then));
      return;
    }
  }
  then();
}

// The reported outcome. Requires: the group is over. Takes no lock, since a child of fork() may
// call it.
Status outcome_of(const LoadGroup& group) NO_THREAD_SAFETY_ANALYSIS { return group.outcome; }
StoredCounts counts_of(const StoredState& state) NO_THREAD_SAFETY_ANALYSIS { return state.counts; }

}  // namespace

Match::Match(Match&& other) noexcept
    : core_(std::exchange(other.core_, nullptr)),
      keys_(std::move(other.keys_)),
      tiers_(std::move(other.tiers_)) {
  other.keys_.clear();
  other.tiers_.clear();
}

Match& Match::operator=(Match&& other) noexcept {
  Match taken(std::move(other));
  std::swap(core_, taken.core_);
  keys_.swap(taken.keys_);
  tiers_.swap(taken.tiers_);
  return *this;
}

Match::~Match() {
  if (core_ != nullptr) core_->release(*this);
}

unsigned Load::layers() const {
  if (state_ == nullptr) return 0;
  return state_->layers;
}

bool Load::done() const {
  return state_ == nullptr || std::ranges::all_of(state_->groups, [](const LoadGroup& group) {
           return group.ending.over.load();
         });
}

std::optional<Status> Load::poll(unsigned layer) const {
  const LoadGroup& group = state_->group_of(layer);
  if (!group.ending.over) return std::nullopt;
  return outcome_of(group);
}

Status Load::wait_layer(unsigned layer, Nanoseconds timeout) const {
  LoadGroup& group = state_->group_of(layer);
  if (!group.ending.over) {
    urgent(layer);
    HEADRACE_TRY_STATUS(state_->core->wait(
        state_->word, [&] { return group.ending.over.load(); }, timeout, "the layer",
        group.first == 0 ? kFirstLook : Nanoseconds{0}));
  }
  return *poll(layer);
}

void Load::urgent(unsigned layer) const {
  LoadGroup& group = state_->group_of(layer);
  if (!group.ending.over && state_->core->origin.here()) state_->core->loads.make_urgent(group);
}

Status Load::wait(Nanoseconds timeout) const {
  if (!done()) {
    HEADRACE_TRY_STATUS(
        state_->core->wait(state_->word, [this] { return done(); }, timeout, "the load"));
  }
  for (unsigned layer = 0; layer < layers(); ++layer) HEADRACE_TRY_STATUS(*poll(layer));
  return {};
}

std::size_t Load::leading() const { return state_ == nullptr ? 0 : state_->leading.load(); }

bool Load::loaded(std::size_t block) const {
  if (state_ == nullptr) return false;
  const auto item = std::ranges::lower_bound(state_->numbers, block);
  if (item == state_->numbers.end() || *item != block) return false;
  return !state_->items[static_cast<std::size_t>(item - state_->numbers.begin())].failed.load();
}

void Load::cancel() const {
  if (!done()) state_->core->loads.cancel(*state_);
}

void Load::on_layer(unsigned layer, std::function<void()> then) const {
  call_at(state_->group_of(layer).ending, *state_->core, std::move(then));
}

bool Stored::done() const { return state_ == nullptr || state_->ending.over; }

std::optional<StoredCounts> Stored::poll() const {
  if (!done()) return std::nullopt;
  if (state_ == nullptr) return StoredCounts{};
  return counts_of(*state_);
}

Result<StoredCounts> Stored::wait(Nanoseconds timeout) const {
  if (!done()) {
    HEADRACE_TRY_STATUS(
        state_->core->wait(state_->word, [this] { return done(); }, timeout, "the store"));
  }
  return *poll();
}

void Stored::on_done(std::function<void()> then) const {
  if (state_ == nullptr) return then();
  call_at(state_->ending, *state_->core, std::move(then));
}

Store::Store(std::unique_ptr<StoreCore> core) : core_(std::move(core)) {}

Store::~Store() {
  if (!core_->origin.here()) abandon(std::move(core_));
}

Result<std::unique_ptr<Store>> Store::open(Mover& mover, StoreOptions options) {
  HEADRACE_TRY(auto core, StoreCore::open(mover, std::move(options)));
  return std::unique_ptr<Store>(new Store(std::move(core)));
}

const Geometry& Store::geometry() const { return core_->geometry(); }

Match Store::match(std::span<const Key> keys) { return core_->match(keys, false); }

Match Store::match(std::span<const std::uint32_t> tokens, std::string_view salt) {
  return core_->match(kvcache::keys(geometry(), tokens, salt), false);
}

Match Store::pin(std::span<const Key> keys) { return core_->match(keys, true); }

void Store::touch(std::span<const Key> keys) { core_->touch(keys); }

Result<Stored> Store::store(std::span<const Key> keys, Extent from, const StoreRequest& request) {
  return store(keys, std::span(&from, 1), request);
}

Result<Stored> Store::store(std::span<const Key> keys, std::span<const Extent> from,
                            const StoreRequest& request) {
  return core_->arrivals.store(keys, from, request);
}

Result<Load> Store::load(std::span<const Key> keys, Extent into, const LoadOptions& options) {
  return load(keys, std::span(&into, 1), options);
}

Result<Load> Store::load(std::span<const Key> keys, std::span<const Extent> into,
                         const LoadOptions& options) {
  return core_->loads.load(keys, into, options);
}

std::vector<bool> Store::contains(std::span<const Key> keys) const {
  const auto found = core_->sizes(keys);
  std::vector<bool> there(found.size());
  for (std::size_t i = 0; i < found.size(); ++i) there[i] = found[i].has_value();
  return there;
}

std::vector<std::optional<Bytes>> Store::sizes(std::span<const Key> keys) const {
  return core_->sizes(keys);
}

std::vector<Key> Store::take_dropped() { return core_->take_dropped(); }

Result<std::size_t> Store::remove(std::span<const Key> keys) { return core_->remover.remove(keys); }

Result<std::size_t> Store::clear() { return core_->remover.clear(); }

Status Store::close(Nanoseconds timeout, const std::function<bool()>& stop) {
  HEADRACE_TRY_STATUS(core_->origin.check(kTheStore));
  if (core_->mover.in_callback() || core_->jobs.of_worker()) {
    return fail(ErrorCode::invalid,
                "closing a KV store waits for its copies; not in on_layer() or on_done()");
  }
  return core_->close(timeout, stop);
}

bool Store::closed() const { return core_->closed(); }

Status Store::flush(Nanoseconds timeout, const std::function<bool()>& stop) {
  return core_->flusher.flush(timeout, stop);
}

void Store::poll() { core_->poll(); }

std::optional<SharedFiles> Store::shared() const { return core_->table.sharing.files(); }

StoreStats Store::stats() const { return core_->stats(); }

}  // namespace headrace::kvcache
