// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>
#include <new>
#include <set>
#include <thread>
#include <utility>

#include "core/fail.h"
#include "core/fork.h"
#include "core/mutex.h"
#include "core/text/printable.h"
#include "core/thread.h"
#include "headrace/tier/arena.h"
#include "tier/arena/names.h"
#include "tier/source.h"

namespace headrace {
namespace {

constexpr Nanoseconds kLeastInterval = std::chrono::milliseconds{100};
// Pieces that one look begins to track; the limit bounds the time of a look.
constexpr std::size_t kPiecesALook = 4096;

using Memory = std::span<const std::byte>;

}  // namespace

class Arenas::Inside {
 public:
  Inside(const Machine& machine, Placement otherwise)
      : machine_(machine), otherwise_(std::move(otherwise)) {}
  ~Inside();

  Status read(const ArenaPlan& plan);
  Status watch(Nanoseconds look_every);
  // False in a child of fork().
  bool here() const { return origin_.here(); }
  Result<Heap*> heap(std::string_view name);
  Status look();
  std::vector<ArenaUse> uses() const;

 private:
  struct Arena final : HeapObserver {
    Arena(Inside& of, std::string name) : inside(of) { use.name = std::move(name); }
    void took(Memory memory) override { inside.took(*this, memory); }
    void giving(Memory memory) override { inside.giving(*this, memory); }

    Inside& inside;
    // The rest is guarded by inside.watching_.
    ArenaUse use;          // why_unseen: of pieces that the source refuses
    std::string shortage;  // of pieces that are retried; "": none
    Bytes now;             // current memory
    double touched = 0;    // touched bytes, summed over all looks
    double seen = 0;       // tracked bytes, summed over all looks

    std::unique_ptr<Heap> heap;  // constant; destroyed first
  };
  // Memory of a heap.
  struct Piece {
    Arena* arena = nullptr;
    Memory memory;
    enum { fresh, begun, tracked, refused } state = fresh;
  };

  void took(Arena& arena, Memory memory);
  void giving(Arena& arena, Memory memory);
  // Adds the touches to the arenas.
  void count(const HotnessSample& sample) EXCLUDES(watching_);
  // These may throw std::bad_alloc.
  std::vector<Memory> begin_new() EXCLUDES(watching_);
  Status track_new() REQUIRES(looking_);
  // Records the outcome of tracking.
  void settle(Piece& piece, Result<Tracking> tracking) REQUIRES(watching_);
  Status look_once() REQUIRES(looking_);
  void keep_looking(Nanoseconds look_every);
  std::string why_never_seen(const ArenaUse& use) const REQUIRES(watching_);

  // Immutable.
  const Origin origin_;
  const Machine machine_;
  const Placement otherwise_;
  std::map<std::string, Placement, std::less<>> planned_;

  // Lock order: a thread that holds one of these may take those below it, never those above.
  // watching_ is held only briefly and never during a look of the kernel, because threads that
  // allocate, and so fork(), wait for it.
  mutable Mutex looking_;  // held for a whole look
  mutable Mutex watching_;
  std::unique_ptr<SourceBase> source_;  // immutable; nullptr: not watched
  std::map<const std::byte*, Piece> pieces_ GUARDED_BY(watching_);  // by address
  std::string failure_ GUARDED_BY(watching_);                       // of the last look; "": none
  CondVar stopped_;
  bool stop_ GUARDED_BY(watching_) = false;
  std::thread thread_;
  std::map<std::string, std::unique_ptr<Arena>, std::less<>> arenas_ GUARDED_BY(watching_);
};

Arenas::Inside::~Inside() {
  {
    const MutexLock lock(watching_);
    stop_ = true;
    stopped_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
  // Without the lock, which heaps take when they give their memory back.
  MutexLock lock(watching_);
  const auto arenas = std::move(arenas_);
  lock.unlock();
}

Status Arenas::Inside::read(const ArenaPlan& plan) {
  HEADRACE_TRY_STATUS(resolve_with_storage(machine_, otherwise_));
  for (const ArenaPlace& each : plan.arenas) {
    if (each.place == kNoPlace) continue;
    auto placement = Placement::parse(machine_, each.place);
    if (placement) {
      if (auto resolved = resolve_with_storage(machine_, *placement); !resolved) {
        placement = Unexpected(std::move(resolved).error());
      }
    }
    if (!placement) {
      return fail(placement.error().code, "the plan puts arena {} on {}: {}", each.name, each.place,
                  placement.error().message);
    }
    planned_.insert_or_assign(each.name, *std::move(placement));
  }
  return {};
}

Status Arenas::Inside::watch(Nanoseconds look_every) {
  if (look_every < kLeastInterval) {
    return fail(ErrorCode::invalid, "a look each {:.1f} ms; give 100 ms or more",
                seconds(look_every) * 1e3);
  }
  HEADRACE_TRY(auto source, open_hotness(HotnessKind::referenced, {.least_interval = {}}));
  source_.reset(static_cast<SourceBase*>(source.release()));
  HEADRACE_TRY(thread_,
               start_thread("headrace-arenas", [this, look_every] { keep_looking(look_every); }));
  return {};
}

Result<Heap*> Arenas::Inside::heap(std::string_view name) {
  if (!is_arena_name(name)) {
    return fail(ErrorCode::invalid,
                "an arena named \"{}\": give 1 to 64 letters, digits or any of _ . - / and :",
                printable(name.substr(0, 80)));
  }
  HEADRACE_TRY_STATUS(origin_.check("the set of arenas"));
  {
    const MutexLock lock(watching_);
    if (const auto found = arenas_.find(name); found != arenas_.end()) {
      return found->second->heap.get();
    }
  }
  auto arena = std::make_unique<Arena>(*this, std::string(name));
  const auto planned = planned_.find(name);
  HEADRACE_TRY(arena->heap,
               Heap::open(machine_, planned != planned_.end() ? planned->second : otherwise_,
                          {.observer = arena.get()}));
  // If another thread has opened the arena meanwhile, that one counts.
  const MutexLock lock(watching_);
  return arenas_.try_emplace(std::string(name), std::move(arena)).first->second->heap.get();
}

void Arenas::Inside::took(Arena& arena, Memory memory) {
  const MutexLock lock(watching_);
  arena.now += Bytes{memory.size()};
  arena.use.most = std::max(arena.use.most, arena.now);
  if (source_ == nullptr) return;
  try {
    pieces_.emplace(memory.data(), Piece{&arena, memory});
  } catch (const std::bad_alloc&) {
    // The allocation succeeds all the same; the memory is not watched.
  }
}

void Arenas::Inside::giving(Arena& arena, Memory memory) {
  {
    const MutexLock lock(watching_);
    arena.now -= Bytes{memory.size()};
    const auto piece = pieces_.find(memory.data());
    if (piece == pieces_.end()) return;
    const auto state = piece->second.state;
    pieces_.erase(piece);
    if (state != Piece::begun && state != Piece::tracked) return;
  }
  source_->forget(memory);
}

void Arenas::Inside::count(const HotnessSample& sample) {
  std::set<Arena*> seen;
  const MutexLock lock(watching_);
  for (const auto& [begin, piece] : pieces_) {
    if (piece.state != Piece::tracked) continue;
    piece.arena->seen += static_cast<double>(piece.memory.size());
    if (seen.insert(piece.arena).second) ++piece.arena->use.looks;
  }
  for (const Touch& touch : sample.touches) {
    const auto after = pieces_.upper_bound(touch.range.data());
    if (after == pieces_.begin()) continue;
    const Piece& piece = std::prev(after)->second;
    // Memory that was freed meanwhile does not count, nor does its successor at the same address.
    const Memory& memory = piece.memory;
    if (piece.state != Piece::tracked ||
        touch.range.data() + touch.range.size() > memory.data() + memory.size()) {
      continue;
    }
    piece.arena->touched += static_cast<double>(touch.touched.value);
  }
}

std::vector<Memory> Arenas::Inside::begin_new() {
  std::vector<Memory> begun;
  const MutexLock lock(watching_);
  const std::size_t most = std::min(pieces_.size(), kPiecesALook);
  begun.reserve(most);
  source_->expect(most);
  for (auto& [begin, piece] : pieces_) {
    if (piece.state != Piece::fresh || begun.size() == kPiecesALook) continue;
    begun.push_back(piece.memory);
    piece.state = Piece::begun;
  }
  return begun;
}

// Call it after a look, since tracking resets the touches so far.
Status Arenas::Inside::track_new() {
  const std::vector<Memory> begun = begin_new();
  if (begun.empty()) return {};
  auto tracking = source_->track_all(begun);
  const MutexLock lock(watching_);
  // Failures come last: an arena then reports its shortage even if other memory of it is seen.
  for (const bool seen : {true, false}) {
    for (std::size_t i = 0; i < begun.size(); ++i) {
      if (seen != (tracking && (*tracking)[i])) continue;
      const auto found = pieces_.find(begun[i].data());
      // The memory was freed, or other memory took its place.
      if (found == pieces_.end() || found->second.state != Piece::begun) continue;
      found->second.state = Piece::fresh;
      if (tracking) settle(found->second, std::move((*tracking)[i]));
    }
  }
  if (!tracking) return Unexpected(std::move(tracking).error());
  return {};
}

void Arenas::Inside::settle(Piece& piece, Result<Tracking> tracking) {
  Arena& arena = *piece.arena;
  if (tracking) {
    piece.state = Piece::tracked;
    arena.shortage.clear();
    return;
  }
  // Other errors are temporary: too few mappings, or too little kernel memory.
  const ErrorCode code = tracking.error().code;
  const bool for_good = code == ErrorCode::unsupported || code == ErrorCode::invalid;
  if (for_good) piece.state = Piece::refused;
  (for_good ? arena.use.why_unseen : arena.shortage) = std::move(tracking).error().message;
}

Status Arenas::Inside::look() {
  HEADRACE_TRY_STATUS(origin_.check("the set of arenas"));
  if (source_ == nullptr) {
    return fail(ErrorCode::unsupported, "the arenas are not watched; open them with look_every");
  }
  const MutexLock lock(looking_);
  return look_once();
}

Status Arenas::Inside::look_once() {
  Status done = no_throw([&]() -> Status {
    HEADRACE_TRY(const HotnessSample sample, source_->look());
    count(sample);
    return {};
  });
  if (done) done = no_throw([&]() NO_THREAD_SAFETY_ANALYSIS { return track_new(); });
  const MutexLock lock(watching_);
  failure_.clear();
  if (!done) {
    (void)no_throw([&]() NO_THREAD_SAFETY_ANALYSIS -> Status {
      failure_ = done.error().message;
      return {};
    });
  }
  return done;
}

void Arenas::Inside::keep_looking(Nanoseconds look_every) {
  MutexLock lock(watching_);
  Nanoseconds due = system_clock().now() + look_every;
  while (!stop_) {
    const Nanoseconds now = system_clock().now();
    if (now < due) {
      stopped_.wait_for(watching_, due - now);
      continue;
    }
    lock.unlock();
    {
      // A failed look saw nothing.
      const MutexLock looking(looking_);
      (void)look_once();
    }
    lock.lock();
    due = system_clock().now() + look_every;
  }
}

std::string Arenas::Inside::why_never_seen(const ArenaUse& use) const {
  if (use.most == Bytes{}) return "it had no memory";
  if (!failure_.empty()) return failure_;
  return "no two looks came while it had the same memory; it is seen where it lives longer";
}

std::vector<ArenaUse> Arenas::Inside::uses() const {
  std::vector<ArenaUse> uses;
  if (!here()) return uses;
  const MutexLock lock(watching_);
  for (const auto& [name, arena] : arenas_) {
    ArenaUse use = arena->use;
    if (arena->seen > 0) use.heat = std::min(arena->touched / arena->seen, 1.0);
    if (use.why_unseen.empty()) use.why_unseen = arena->shortage;
    if (source_ == nullptr) use.why_unseen = "not watched";
    if (use.looks == 0 && use.why_unseen.empty()) use.why_unseen = why_never_seen(use);
    uses.push_back(std::move(use));
  }
  return uses;
}

Result<std::unique_ptr<Arenas>> Arenas::open(const Machine& machine, const ArenasOptions& options) {
  return no_throw([&]() -> Result<std::unique_ptr<Arenas>> {
    auto inside = std::make_unique<Inside>(machine, options.otherwise);
    HEADRACE_TRY_STATUS(inside->read(options.plan));
    if (options.look_every) HEADRACE_TRY_STATUS(inside->watch(*options.look_every));
    return std::unique_ptr<Arenas>(new Arenas(std::move(inside)));
  });
}

Arenas::Arenas(std::unique_ptr<Inside> inside) : inside_(std::move(inside)) {}
Arenas::~Arenas() {
  if (!inside_->here()) abandon(std::move(inside_));
}
Result<Heap*> Arenas::heap(std::string_view name) {
  return no_throw([&] { return inside_->heap(name); });
}
Status Arenas::look() { return inside_->look(); }
std::vector<ArenaUse> Arenas::uses() const { return inside_->uses(); }

}  // namespace headrace
