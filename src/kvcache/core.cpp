// SPDX-License-Identifier: Apache-2.0
#include "kvcache/core.h"

#include <algorithm>

#include "core/check.h"
#include "core/fail.h"
#include "core/waiting/backoff.h"
#include "core/waiting/duration.h"
#include "core/waiting/patience.h"

namespace headrace::kvcache {
namespace {

// The first nap of a waiting thread before it polls the Mover and runs jobs.
constexpr Nanoseconds kFirstNap = std::chrono::microseconds{50};
constexpr Nanoseconds kLongestNap = std::chrono::milliseconds{1};
// The most jobs that one poll() runs.
constexpr unsigned kJobsOfPoll = 64;

// `folders`: of tier `i`; for memory, one without a name.
Status check(std::span<const FolderOptions> folders, std::size_t i, Bytes slot) {
  std::uint64_t slots = 0;
  for (const FolderOptions& each : folders) {
    if (each.budget < slot) {
      return fail(ErrorCode::invalid, "a budget of {} for tier {}, where one block takes {}",
                  to_string(each.budget), i, to_string(slot));
    }
    slots += each.budget / slot;
    if (slots >= UINT32_MAX) {
      return fail(ErrorCode::invalid, "a budget of {} for tier {} has more than 2^32 blocks of {}",
                  to_string(each.budget), i, to_string(slot));
    }
    if (each.folder.native().find('\0') != std::string::npos) {
      return fail(ErrorCode::invalid, "the folder \"{}\" has a NUL byte in its name; leave it out",
                  each.folder.c_str());
    }
    if (each.folder.empty() && folders.size() > 1) {
      return fail(ErrorCode::invalid, "a folder of tier {} has no name; give its path", i);
    }
  }
  return {};
}

Status check(const StoreOptions& options) {
  HEADRACE_TRY_STATUS(check(options.geometry));
  if (options.tiers.empty() || options.tiers.size() > kMostTiers) {
    return fail(ErrorCode::invalid, "{} tiers; a KV store has 1 to {}", options.tiers.size(),
                kMostTiers);
  }
  if (!options.eviction) return fail(ErrorCode::invalid, "no eviction order; leave the default");
  if (options.shared && options.geometry.any_size) {
    return fail(ErrorCode::unsupported,
                "blocks of any size cannot be shared with other processes; give them one size");
  }
  const Bytes slot = Folder::slot_bytes(options.geometry);
  for (std::size_t i = 0; i < options.tiers.size(); ++i) {
    const TierOptions& tier = options.tiers[i];
    if (tier.folder.empty() && !tier.more_folders.empty()) {
      return fail(ErrorCode::invalid, "tier {} is memory and has folders; give it one or the other",
                  i);
    }
    std::vector<FolderOptions> folders{{tier.folder, tier.budget}};
    folders.insert(folders.end(), tier.more_folders.begin(), tier.more_folders.end());
    HEADRACE_TRY_STATUS(check(folders, i, slot));
    if (!tier.folder.empty() && i + 1 != options.tiers.size()) {
      return fail(ErrorCode::invalid, "the folder \"{}\" is tier {} of {}; give it last",
                  tier.folder.string(), i, options.tiers.size());
    }
  }
  return {};
}

// CPUs with HBM and no DIMMs have no dram.
Placement memory_of_cpus(const Machine& machine) {
  const bool dram =
      std::ranges::find(machine.nodes, NodeKind::dram, &Node::kind) != machine.nodes.end();
  return Placement::on(dram ? NodeKind::dram : NodeKind::hbm);
}

}  // namespace

StoreCore::StoreCore(Mover& with, StoreOptions wanted) : mover(with), options(std::move(wanted)) {}

Result<std::shared_ptr<const Object>> StoreCore::passage(Bytes bytes) const {
  Placement memory =
      table.for_cpus() ? options.tiers[*table.for_cpus()].memory : memory_of_cpus(mover.machine());
  memory.strict = memory.touch = memory.lock = memory.pin = false;
  return allocate(mover.machine(), options, memory, bytes);
}

Result<std::unique_ptr<StoreCore>> StoreCore::open(Mover& mover, StoreOptions options) {
  if (mover.in_callback()) {
    return fail(ErrorCode::invalid,
                "opening a KV store waits for its list; not in a callback of a Mover");
  }
  HEADRACE_TRY_STATUS(mover.check_here());
  HEADRACE_TRY_STATUS(check(options));
  std::unique_ptr<StoreCore> core(new StoreCore(mover, std::move(options)));
  HEADRACE_TRY_STATUS(core->table.open());
  core->remover.open();
  HEADRACE_TRY_STATUS(
      core->jobs.start(core->options.workers, [&core = *core] { return core.do_due_work(); }));
  return core;
}

Nanoseconds StoreCore::do_due_work() {
  remover.retry_due();
  flusher.write_while_idle();
  return std::min(loads.make_due_urgent(), streams.look());
}

void StoreCore::go_on(Parked& parked) noexcept {
  if (parked.load != nullptr) {
    if (parked.outcome) return loads.begin(*parked.load);
    return loads.give_up(*parked.load, parked.outcome.error());
  }
  {
    Later later;
    const TableLock lock(table);
    if (!parked.outcome) table.note(parked.outcome.error());
    arrivals.resume(*parked.arrivals, parked.outcome.has_value(), later);
  }
  jobs.end_operation();
}

StoreCore::~StoreCore() {
  {
    const bool no_loads = loads.none();  // first: a load that ends in between pins nothing then
    const TableLock lock(table);
    const bool no_match_outlives_the_store = !no_loads || !table.pins_any();
    CHECK(no_match_outlives_the_store);
  }
  const bool copies_ended_within_the_shutdown_bound = close(kShutdownBound, {}).has_value();
  CHECK(copies_ended_within_the_shutdown_bound);
}

Status StoreCore::check_open() const {
  HEADRACE_TRY_STATUS(origin.check(kTheStore));
  if (closed()) return fail(ErrorCode::cancelled, "the KV store is closed; open another");
  return {};
}

// The bound of a close(), and its `stop`.
class StoreCore::Closing {
 public:
  Closing(StoreCore& core, Nanoseconds timeout, const Stop& stop)
      : core_(core),
        stop_(stop),
        patience_(core.mover.clock(), core.mover.waiting(), timeout),
        asked_(core.mover.clock().now()) {}

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
    while (!core_.jobs.idle()) {
      core_.poll();
      if (core_.jobs.idle()) break;
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
    const Nanoseconds now = core_.mover.clock().now();
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
    const TableLock lock(table);
    table.closing = true;
    closed_ = true;
    arrivals.place(later);
  }
  HEADRACE_TRY_STATUS(closing.take(someone_closes_));
  struct Ends {  // also if `stop` throws
    StoreCore& core;
    ~Ends() {
      core.someone_closes_ = 0;
      core.mover.waiting().wake_all(core.someone_closes_);
    }
  } const ends{*this};
  {
    const TableLock lock(table);
    if (table.released) return {};
  }
  return close(closing);
}

Status StoreCore::close(Closing& closing) {
  loads.cancel_all();
  HEADRACE_TRY_STATUS(closing.settle());
  table.release_matches();
  HEADRACE_TRY_STATUS(closing.settle());
  jobs.stop();
  table.release();
  return {};
}

Match StoreCore::match(std::span<const Key> keys, bool all) {
  Match match;
  if (!origin.here()) return match;
  table.match(keys, all, match.keys_, match.tiers_);
  if (!match.keys_.empty()) match.core_ = this;
  return match;
}

void StoreCore::release(const Match& match) {
  if (!origin.here()) return;
  Later later;
  const TableLock lock(table);
  table.unmatch(match.keys_);
  arrivals.place(later);
}

std::vector<std::optional<Bytes>> StoreCore::sizes(std::span<const Key> keys) {
  if (!origin.here()) return std::vector<std::optional<Bytes>>(keys.size());
  return table.sizes(keys);
}

void StoreCore::touch(std::span<const Key> keys) {
  if (origin.here()) table.touch(keys);
}

std::vector<Key> StoreCore::take_dropped() {
  return origin.here() ? table.take_dropped() : std::vector<Key>{};
}

StoreStats StoreCore::stats() {
  if (!origin.here()) return {};
  StoreStats stats = table.stats();
  const TableLock lock(table);
  stats.in_flight = arrivals.in_flight();
  return stats;
}

Status StoreCore::wait(const std::atomic<std::uint32_t>& word, const std::function<bool()>& ended,
                       Nanoseconds timeout, const char* what, Nanoseconds looking) {
  HEADRACE_TRY_STATUS(origin.check(kTheStore));
  if (mover.in_callback()) {
    return fail(ErrorCode::invalid,
                "waiting in a callback of a Mover would hold up what it waits for; use on_layer() "
                "or on_done()");
  }
  Patience patience(mover.clock(), mover.waiting(), timeout);
  Backoff naps(kFirstNap, kLongestNap);
  for (;;) {
    const std::uint32_t seen = word.load();
    if (ended()) return {};
    mover.poll({}, looking);
    if (ended()) return {};
    do_due_work();
    while (!ended() && jobs.run_one() && !patience.over()) {
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
  if (!origin.here()) return;
  mover.poll();
  do_due_work();
  for (unsigned done = 0; done < kJobsOfPoll && jobs.run_one(); ++done) {
  }
}

}  // namespace headrace::kvcache
