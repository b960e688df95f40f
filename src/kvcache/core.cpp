// SPDX-License-Identifier: Apache-2.0
#include "kvcache/core.h"

#include <algorithm>
#include <tuple>

#include "core/check.h"
#include "core/fail.h"
#include "core/thread.h"
#include "core/waiting/backoff.h"
#include "core/waiting/duration.h"
#include "core/waiting/patience.h"

namespace headrace::kvcache {
namespace {

// The first nap of a waiting thread before it polls the Mover and runs jobs.
constexpr Nanoseconds kFirstNap = std::chrono::microseconds{50};
constexpr Nanoseconds kLongestNap = std::chrono::milliseconds{1};
constexpr Nanoseconds kWorkerSleep = std::chrono::seconds{1};
// The most jobs that one poll() runs.
constexpr unsigned kJobsOfPoll = 64;

std::size_t hash_of(const Key& key) { return key.low; }

Status check(const StoreOptions& options) {
  HEADRACE_TRY_STATUS(check(options.geometry));
  if (options.tiers.empty() || options.tiers.size() > kMostTiers) {
    return fail(ErrorCode::invalid, "{} tiers; a KV store has 1 to {}", options.tiers.size(),
                kMostTiers);
  }
  if (!options.eviction) return fail(ErrorCode::invalid, "no eviction order; leave the default");
  const Bytes slot = Folder::slot_bytes(options.geometry);
  for (std::size_t i = 0; i < options.tiers.size(); ++i) {
    const TierOptions& tier = options.tiers[i];
    if (tier.budget < slot) {
      return fail(ErrorCode::invalid, "a budget of {} for tier {}, where one block takes {}",
                  to_string(tier.budget), i, to_string(slot));
    }
    if (tier.budget / slot >= UINT32_MAX) {
      return fail(ErrorCode::invalid, "a budget of {} for tier {} has more than 2^32 blocks of {}",
                  to_string(tier.budget), i, to_string(slot));
    }
    if (tier.folder.native().find('\0') != std::string::npos) {
      return fail(ErrorCode::invalid, "the folder \"{}\" has a NUL byte in its name; leave it out",
                  tier.folder.c_str());
    }
    if (!tier.folder.empty() && (i == 0 || i + 1 != options.tiers.size())) {
      return fail(ErrorCode::invalid,
                  "the folder \"{}\" is tier {} of {}; give it last, after one of memory",
                  tier.folder.string(), i, options.tiers.size());
    }
  }
  return {};
}

}  // namespace

std::optional<unsigned> Entry::fastest() const {
  for (unsigned tier = 0; tier < copies.size(); ++tier) {
    if (!removed && copies[tier].served()) return tier;
  }
  return std::nullopt;
}

StoreCore::StoreCore(Mover& mover, StoreOptions options)
    : mover_(mover),
      options_(std::move(options)),
      block_(options_.geometry.block().value),
      slot_(Folder::slot_bytes(options_.geometry).value),
      tiers_(options_.tiers.size()),
      entries_(0, hash_of) {}

void StoreCore::note(const Error& error) noexcept {
  last_error_at_ = mover_.clock().now();
  try {
    last_error_ = error.message;
  } catch (const std::bad_alloc&) {
    last_error_ = kNoMemory.message;
  }
}

Placement StoreCore::passage_memory() const {
  // CPUs with HBM and no DIMMs have no dram.
  const auto& nodes = mover_.machine().nodes;
  const bool dram = std::ranges::find(nodes, NodeKind::dram, &Node::kind) != nodes.end();
  Placement memory = for_cpus_ ? options_.tiers[*for_cpus_].memory
                               : Placement::on(dram ? NodeKind::dram : NodeKind::hbm);
  memory.strict = memory.touch = memory.lock = memory.pin = false;
  return memory;
}

Result<std::unique_ptr<StoreCore>> StoreCore::open(Mover& mover, StoreOptions options) {
  if (mover.in_callback()) {
    return fail(ErrorCode::invalid,
                "opening a KV store waits for its list; not in a callback of a Mover");
  }
  HEADRACE_TRY_STATUS(mover.check_here());
  HEADRACE_TRY_STATUS(check(options));
  std::unique_ptr<StoreCore> core(new StoreCore(mover, std::move(options)));
  for (unsigned i = 0; i < core->tiers_.size(); ++i) HEADRACE_TRY_STATUS(core->open_tier(i));
  core->unlisting_.core = core.get();
  if (core->tiers_.back().folder != nullptr) {
    core->unlisting_.slots.reserve(core->tiers_.back().slots);
  }
  if (core->options_.worker) {
    HEADRACE_TRY(core->worker_, start_thread("headrace-kv", [&core = *core] { core.work(); }));
    core->worker_id_ = core->worker_.get_id();
  }
  return core;
}

Status StoreCore::open_tier(unsigned index) {
  const TierOptions& options = options_.tiers[index];
  Tier& tier = tiers_[index];
  tier.slots = static_cast<std::uint32_t>(options.budget.value / slot_);
  if (options.folder.empty()) {
    if (storage_of(mover_.machine(), options.memory) != nullptr) {
      return fail(ErrorCode::invalid,
                  "tier {} is memory in a file on storage; give a folder there, which is kept",
                  index);
    }
    HEADRACE_TRY(tier.buffer,
                 allocate(mover_.machine(), Bytes{tier.slots * slot_}, options.memory));
    const Node* const node = mover_.machine().find(tier.buffer->node());
    tier.counts.name = node == nullptr ? "memory" : to_string(node->kind);
    if (!for_cpus_ && tier.buffer->memory() != nullptr) for_cpus_ = index;
  } else {
    NodeId headers{0};
    if (for_cpus_) {
      headers = tiers_[*for_cpus_].object().node();
    } else {
      const auto& nodes = mover_.machine().nodes;
      const auto found = std::ranges::find_if(nodes, &Node::byte_addressable);
      if (found != nodes.end()) headers = found->id;
    }
    HEADRACE_TRY(tier.folder,
                 Folder::open(mover_, options.folder, options_.geometry, tier.slots, headers));
    tier.counts.name = options.folder.string();
  }
  tier.counts.budget = Bytes{tier.slots * slot_};
  tier.order = options_.eviction();
  const MutexLock lock(mutex_);
  tier.free.reserve(tier.slots);
  if (tier.folder != nullptr) {
    tier.disk.none.reserve(tier.slots);
    tier.disk.written.resize(tier.slots);
  }
  for (std::uint32_t slot = tier.slots; slot > 0; --slot) tier.free.push_back(slot - 1);
  if (tier.folder != nullptr) take_over_found(tier);
  return {};
}

void StoreCore::take_over_found(Tier& tier) {
  const auto index = static_cast<unsigned>(&tier - tiers_.data());
  std::vector<bool> taken(tier.slots);
  for (const Folder::Found& found : tier.folder->found()) {
    Entry& entry = entries_[found.key];
    entry.key = found.key;
    fill(entry.copies[index], entry, index, found.slot);
    ready(entry.copies[index], index);
    taken[found.slot] = true;
    tier.disk.written[found.slot] = true;
    ++counts_.reopened;
  }
  std::erase_if(tier.free, [&](std::uint32_t slot) { return taken[slot]; });
  tier.folder->forget_found();
}

StoreCore::~StoreCore() {
  {
    const MutexLock lock(mutex_);
    const bool no_match_outlives_the_store = pinned_ == 0 || !loads_.empty();
    CHECK(no_match_outlives_the_store);
  }
  const bool copies_ended_within_the_shutdown_bound = close(kShutdownBound, {}).has_value();
  CHECK(copies_ended_within_the_shutdown_bound);
}

Status StoreCore::check_open() const {
  HEADRACE_TRY_STATUS(origin_.check(kTheStore));
  if (closed()) return fail(ErrorCode::cancelled, "the KV store is closed; open another");
  return {};
}

// The bound of a close(), and its `stop`.
class StoreCore::Closing {
 public:
  Closing(StoreCore& core, Nanoseconds timeout, const Stop& stop)
      : core_(core),
        stop_(stop),
        patience_(core.mover_.clock(), core.mover_.waiting(), timeout),
        asked_(core.mover_.clock().now()) {}

  // Sets the word from 0 to 1, which only one thread at a time can.
  Status take(std::atomic<std::uint32_t>& word) {
    for (std::uint32_t free = 0; !word.compare_exchange_strong(free, 1); free = 0) {
      HEADRACE_TRY_STATUS(
          nap(word, 1, "another thread was still closing the KV store; wait for it"));
    }
    return {};
  }
  // Waits until no operation accesses the store any more.
  Status settle() {
    const std::atomic<std::uint32_t> never{0};
    while (core_.operations_.load() != 0) {
      core_.poll();
      if (core_.operations_.load() == 0) break;
      HEADRACE_TRY_STATUS(nap(never, 0,
                              "copies of the KV store were still in flight; it takes nothing any "
                              "more, so close it again when they have ended"));
    }
    return {};
  }

 private:
  // `late`: the error message after the timeout.
  Status nap(const std::atomic<std::uint32_t>& word, std::uint32_t seen, const char* late) {
    if (patience_.over()) return fail(ErrorCode::timed_out, "{}", late);
    const Nanoseconds now = core_.mover_.clock().now();
    if (stop_ && now - asked_ >= kAskToStop) {
      asked_ = now;
      if (stop_()) return fail(ErrorCode::cancelled, "closing was stopped; close it again");
    }
    patience_.sleep(word, seen, naps_.next());
    return {};
  }

  StoreCore& core_;
  const Stop& stop_;
  Patience patience_;
  Nanoseconds asked_;
  Backoff naps_{kFirstNap, kLongestNap};
};

Status StoreCore::close(Nanoseconds timeout, const Stop& stop) {
  Closing closing(*this, timeout, stop);
  {
    Later later;
    const MutexLock lock(mutex_);
    closing_ = true;
    giving_up_ = true;
    place_pending(later);
  }
  HEADRACE_TRY_STATUS(closing.take(someone_closes_));
  struct Ends {  // also if `stop` throws
    StoreCore& core;
    ~Ends() {
      core.someone_closes_ = 0;
      core.mover_.waiting().wake_all(core.someone_closes_);
    }
  } const ends{*this};
  {
    const MutexLock lock(mutex_);
    if (tiers_gone_) return {};
  }
  return close(closing);
}

Status StoreCore::close(Closing& closing) {
  while (const auto load = one_not_cancelled()) cancel(*load);
  HEADRACE_TRY_STATUS(closing.settle());
  {
    const MutexLock lock(mutex_);
    const bool before = std::exchange(matches_hold_nothing_, true);
    for (auto next = entries_.begin(); !before && next != entries_.end();) {
      Entry& entry = (next++)->second;
      if (entry.pins == 0) continue;
      entry.pins = 1;
      unpin(entry);
    }
  }
  HEADRACE_TRY_STATUS(closing.settle());
  {
    const MutexLock lock(jobs_mutex_);
    stopping_ = true;
  }
  jobs_there_.notify_all();
  if (worker_.joinable()) worker_.join();
  worker_id_ = std::thread::id();                           // the system may reuse the id
  std::array<std::unique_ptr<Buffer>, kMostTiers> buffers;  // unmapped later: that takes time
  std::unique_ptr<Folder> folder;
  const MutexLock lock(mutex_);
  for (std::size_t i = 0; i < tiers_.size(); ++i) {
    tiers_[i].order.reset();
    buffers[i] = std::move(tiers_[i].buffer);
    if (tiers_[i].folder != nullptr) folder = std::move(tiers_[i].folder);
  }
  entries_.clear();
  tiers_gone_ = true;
  return {};
}

std::shared_ptr<LoadState> StoreCore::one_not_cancelled() {
  const MutexLock lock(mutex_);
  const auto found =
      std::ranges::find_if(loads_, [](const auto& load) { return !load.second->cancelled.load(); });
  return found == loads_.end() ? nullptr : found->second;
}

Extent StoreCore::in_slot(const Tier& tier, std::uint32_t slot, std::uint64_t from,
                          Bytes bytes) const {
  return {&tier.object(), slot * slot_ + from, bytes};
}

void StoreCore::fragments(const Extent& user, Layout layout, std::size_t position, unsigned first,
                          unsigned layers, std::vector<Fragment>& result) const {
  const std::uint64_t fragment = options_.geometry.fragment().value;
  if (layout == Layout::page_first) {
    const Bytes bytes{fragment * layers};
    result.push_back({.user = user.part(position * block_ + first * fragment, bytes),
                      .in_block = first * fragment,
                      .bytes = bytes});
    return;
  }
  const std::uint64_t blocks = user.length.value / block_;
  for (unsigned layer = first; layer < first + layers; ++layer) {
    result.push_back({.user = user.part((layer * blocks + position) * fragment, Bytes{fragment}),
                      .in_block = layer * fragment,
                      .bytes = Bytes{fragment}});
  }
}

Status StoreCore::check_user(const Extent& user, std::size_t blocks,
                             std::span<const std::size_t> positions) const {
  if (!user.valid()) return fail(ErrorCode::invalid, "an extent outside its object");
  if (user.length.value % block_ != 0) {
    return fail(ErrorCode::invalid, "{} bytes are no whole number of blocks of {}",
                user.length.value, block_);
  }
  const std::size_t room = user.length.value / block_;
  if (!positions.empty() && positions.size() != blocks) {
    return fail(ErrorCode::invalid, "{} positions for {} blocks", positions.size(), blocks);
  }
  for (std::size_t i = 0; i < blocks; ++i) {
    const std::size_t position = positions.empty() ? i : positions[i];
    if (position >= room) {
      return fail(ErrorCode::invalid, "block {} goes to position {} of memory for {} blocks", i,
                  position, room);
    }
  }
  return {};
}

Status StoreCore::wait(const std::atomic<std::uint32_t>& word, const std::function<bool()>& ended,
                       Nanoseconds timeout, const char* what, Nanoseconds looking) {
  HEADRACE_TRY_STATUS(origin_.check(kTheStore));
  if (mover_.in_callback()) {
    return fail(ErrorCode::invalid,
                "waiting in a callback of a Mover would hold up what it waits for; use on_layer() "
                "or on_done()");
  }
  Patience patience(mover_.clock(), mover_.waiting(), timeout);
  Backoff naps(kFirstNap, kLongestNap);
  for (;;) {
    const std::uint32_t seen = word.load();
    if (ended()) return {};
    mover_.poll({}, looking);
    if (ended()) return {};
    promote_due();
    look_at_streams();
    while (!ended() && run_one() && !patience.over()) {
    }
    if (ended()) return {};
    if (patience.over()) {
      return fail(ErrorCode::timed_out, "{} has not ended; it goes on, so wait again or cancel it",
                  what);
    }
    patience.sleep(word, seen, naps.next());
  }
}

void StoreCore::poll() {
  if (!origin_.here()) return;
  mover_.poll();
  promote_due();
  look_at_streams();
  for (unsigned done = 0; done < kJobsOfPoll && run_one(); ++done) {
  }
}

void StoreCore::end(Ending& ending, std::atomic<std::uint32_t>& word) noexcept {
  std::vector<std::function<void()>> thens;
  {
    const MutexLock lock(ending.mutex);
    ending.over = true;
    word.fetch_add(1);  // a thread that sees the word changed also sees `over`
    thens.swap(ending.thens);
  }
  mover_.waiting().wake_all(word);
  for (const auto& then : thens) then();
}

void Copying::hear(StoreCore& core, const Transfer& transfer) noexcept {
  try {
    // Small enough for a std::function without an allocation.
    transfer.on_done([this](const Result<MoveStats>& outcome) { copied(outcome); });
  } catch (const std::bad_alloc&) {
    unheard_ = transfer;
    core.enqueue(*this);
  }
}

bool Copying::heard_late(StoreCore& core) noexcept {
  if (!unheard_) return false;
  const Transfer transfer = *std::exchange(unheard_, std::nullopt);
  hear(core, transfer);
  return true;
}

void StoreCore::enqueue(Job& job) noexcept {
  const MutexLock lock(jobs_mutex_);
  jobs_of(job.turn()).push(job);
  job.queued = true;
  // Notifies under the lock, which the destructor takes. Otherwise the store may be destroyed
  // before, once another thread has run the job.
  jobs_there_.notify_one();
}

bool StoreCore::run_one() {
  Job* job = nullptr;
  {
    const MutexLock lock(jobs_mutex_);
    for (auto list = jobs_.begin(); job == nullptr && list != jobs_.end(); ++list) {
      job = list->pop();
    }
    if (job != nullptr) job->queued = false;
  }
  if (job == nullptr) return false;
  job->run();
  return true;
}

void StoreCore::work() {
  for (;;) {
    const Nanoseconds next = std::min(promote_due(), look_at_streams());
    {
      const MutexLock lock(jobs_mutex_);
      if (std::ranges::all_of(jobs_, &JobList::empty)) {
        if (stopping_) return;
        if (!due_changed_) jobs_there_.wait_for(jobs_mutex_, std::min(next, kWorkerSleep));
        due_changed_ = false;
      }
    }
    run_one();
  }
}

StoreStats StoreCore::stats() const {
  if (!origin_.here()) return {};
  const MutexLock lock(mutex_);
  StoreStats stats = counts_;
  for (const Tier& tier : tiers_) {
    stats.tiers.push_back(tier.counts);
    stats.tiers.back().blocks =
        tiers_gone_ ? 0 : tier.slots - tier.free.size() - tier.disk.none.size();
    stats.tiers.back().used = Bytes{stats.tiers.back().blocks * slot_};
  }
  stats.in_flight = Bytes{in_flight_};
  stats.pinned = Bytes{pinned_ * block_};
  stats.last_error = last_error_;
  if (!last_error_.empty()) stats.last_error_age = mover_.clock().now() - last_error_at_;
  return stats;
}

}  // namespace headrace::kvcache
