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

namespace headrace {
namespace {

constexpr Nanoseconds kLeastInterval = std::chrono::milliseconds{100};

using Memory = std::span<const std::byte>;

}  // namespace

class Arenas::Inside {
 public:
  Inside(const Machine& machine, Placement otherwise)
      : machine_(machine), otherwise_(std::move(otherwise)) {}
  ~Inside();

  Status read(const ArenaPlan& plan);
  Status watch(Nanoseconds look_every);
  // False in a child.
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
    // What follows is guarded by inside.watching_.
    ArenaUse use;
    Bytes now;           // the memory it has
    double touched = 0;  // bytes, in all looks
    double seen = 0;     // bytes that were tracked, in all looks

    std::unique_ptr<Heap> heap;  // constant; goes first
  };
  // Memory that a heap has.
  struct Piece {
    Arena* arena = nullptr;
    Memory memory;
    enum { fresh, tracked, refused } state = fresh;
  };

  void took(Arena& arena, Memory memory);
  void giving(Arena& arena, Memory memory);
  // Adds what was touched to the arenas.
  void count(const HotnessSample& sample) REQUIRES(watching_);
  void track_new() REQUIRES(watching_);
  Status look_once() REQUIRES(watching_);
  void keep_looking(Nanoseconds look_every);

  // Immutable.
  const Origin origin_;
  const Machine machine_;
  const Placement otherwise_;
  std::map<std::string, Placement, std::less<>> planned_;

  // Whoever holds opening_ may take watching_, never the other way round.
  mutable Mutex opening_;
  mutable Mutex watching_;
  std::unique_ptr<HotnessSource> source_;  // immutable; nullptr: not watched
  std::map<const std::byte*, Piece> pieces_ GUARDED_BY(watching_);  // by address
  CondVar stopped_;
  bool stop_ GUARDED_BY(watching_) = false;
  std::thread thread_;
  std::map<std::string, std::unique_ptr<Arena>, std::less<>> arenas_ GUARDED_BY(opening_);
};

Arenas::Inside::~Inside() {
  {
    const MutexLock lock(watching_);
    stop_ = true;
    stopped_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
  const MutexLock lock(opening_);
  arenas_.clear();
}

Status Arenas::Inside::read(const ArenaPlan& plan) {
  HEADRACE_TRY_STATUS(resolve_with_storage(machine_, otherwise_));
  for (const ArenaPlace& each : plan.arenas) {
    auto placement = Placement::parse(machine_, each.place);
    if (placement) {
      if (auto resolved = resolve_with_storage(machine_, *placement); !resolved) {
        placement = std::unexpected(std::move(resolved).error());
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
  HEADRACE_TRY(source_, open_hotness(HotnessKind::referenced, {.least_interval = {}}));
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
  const MutexLock lock(opening_);
  if (const auto found = arenas_.find(name); found != arenas_.end()) {
    return found->second->heap.get();
  }
  auto arena = std::make_unique<Arena>(*this, std::string(name));
  const auto planned = planned_.find(name);
  HEADRACE_TRY(arena->heap,
               Heap::open(machine_, planned != planned_.end() ? planned->second : otherwise_,
                          {.observer = arena.get()}));
  Heap* const heap = arena->heap.get();
  arenas_.emplace(std::string(name), std::move(arena));
  return heap;
}

void Arenas::Inside::took(Arena& arena, Memory memory) {
  const MutexLock lock(watching_);
  arena.now += Bytes{memory.size()};
  arena.use.most = std::max(arena.use.most, arena.now);
  if (source_ == nullptr) return;
  try {
    pieces_.emplace(memory.data(), Piece{&arena, memory});
  } catch (const std::bad_alloc&) {
    // Whoever allocates gets the memory; it is not watched.
  }
}

void Arenas::Inside::giving(Arena& arena, Memory memory) {
  const MutexLock lock(watching_);
  arena.now -= Bytes{memory.size()};
  const auto piece = pieces_.find(memory.data());
  if (piece == pieces_.end()) return;
  if (piece->second.state == Piece::tracked) (void)source_->untrack(memory);
  pieces_.erase(piece);
}

void Arenas::Inside::count(const HotnessSample& sample) {
  std::set<Arena*> seen;
  for (const auto& [begin, piece] : pieces_) {
    if (piece.state != Piece::tracked) continue;
    piece.arena->seen += static_cast<double>(piece.memory.size());
    if (seen.insert(piece.arena).second) ++piece.arena->use.looks;
  }
  for (const Touch& touch : sample.touches) {
    const auto after = pieces_.upper_bound(touch.range.data());
    if (after == pieces_.begin()) continue;
    std::prev(after)->second.arena->touched += static_cast<double>(touch.touched.value);
  }
}

// After a look, since tracking forgets what was touched before.
void Arenas::Inside::track_new() {
  for (auto& [begin, piece] : pieces_) {
    if (piece.state != Piece::fresh) continue;
    const auto tracking = source_->track(piece.memory);
    piece.state = tracking ? Piece::tracked : Piece::refused;
    if (!tracking) piece.arena->use.why_unseen = tracking.error().message;
  }
}

Status Arenas::Inside::look() {
  HEADRACE_TRY_STATUS(origin_.check("the set of arenas"));
  if (source_ == nullptr) {
    return fail(ErrorCode::unsupported, "the arenas are not watched; open them with look_every");
  }
  const MutexLock lock(watching_);
  return look_once();
}

Status Arenas::Inside::look_once() {
  HEADRACE_TRY(const HotnessSample sample, source_->look());
  count(sample);
  track_new();
  return {};
}

void Arenas::Inside::keep_looking(Nanoseconds look_every) {
  const MutexLock lock(watching_);
  Nanoseconds due = system_clock().now() + look_every;
  while (!stop_) {
    const Nanoseconds now = system_clock().now();
    if (now < due) {
      stopped_.wait_for(watching_, due - now);
      continue;
    }
    // A look that fails is one that saw nothing.
    (void)look_once();
    due = system_clock().now() + look_every;
  }
}

std::vector<ArenaUse> Arenas::Inside::uses() const {
  std::vector<ArenaUse> uses;
  if (!here()) return uses;
  const MutexLock opening(opening_);
  const MutexLock watching(watching_);
  for (const auto& [name, arena] : arenas_) {
    ArenaUse use = arena->use;
    if (arena->seen > 0) use.heat = std::min(arena->touched / arena->seen, 1.0);
    if (source_ == nullptr) use.why_unseen = "not watched";
    uses.push_back(std::move(use));
  }
  return uses;
}

Result<std::unique_ptr<Arenas>> Arenas::open(const Machine& machine, const ArenasOptions& options) {
  auto inside = std::make_unique<Inside>(machine, options.otherwise);
  HEADRACE_TRY_STATUS(inside->read(options.plan));
  if (options.look_every) HEADRACE_TRY_STATUS(inside->watch(*options.look_every));
  return std::unique_ptr<Arenas>(new Arenas(std::move(inside)));
}

Arenas::Arenas(std::unique_ptr<Inside> inside) : inside_(std::move(inside)) {}
Arenas::~Arenas() {
  if (!inside_->here()) abandon(std::move(inside_));
}
Result<Heap*> Arenas::heap(std::string_view name) { return inside_->heap(name); }
Status Arenas::look() { return inside_->look(); }
std::vector<ArenaUse> Arenas::uses() const { return inside_->uses(); }

}  // namespace headrace
