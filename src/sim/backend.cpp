// SPDX-License-Identifier: Apache-2.0
#include "sim/backend.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <map>
#include <queue>
#include <thread>
#include <utility>

#include "core/check.h"
#include "core/fail.h"
#include "core/fork.h"
#include "core/thread.h"

namespace headrace::sim {
namespace {

// Lines in flight of a core, where the machine's model has none: the misses that the second-level
// cache of Golden Cove tracks (Intel's optimization manual); assumed for others.
constexpr double kAssumedLines = 48;
// Rate and latency of a DSA device without a copy rate (Fürst 2024, 3.2.1; Kuper et al.,
// ASPLOS'24).
constexpr BytesPerSecond kDsaRate{30.0 * (1 << 30)};
constexpr Nanoseconds kDsaLatency{850};
// Other engines without a copy rate are held back by the ceilings of the machine's model alone.
constexpr BytesPerSecond kNoCap{1e12};
// Time of the thread that submits a piece to a DSA device: an ENQCMD, fitted to Kuper et al.
constexpr Nanoseconds kDsaSubmission{263};
// Pieces of a device in progress at once: the engines of a DSA device.
constexpr std::size_t kDeviceParallel = 4;
// An engine without known bytes in flight has enough for its peak at twice the idle latency.
constexpr double kSpareInFlight = 2;
// How often a backend that ends looks.
constexpr Nanoseconds kLook = std::chrono::microseconds{10};

// As the production backends.
Capabilities capabilities_of(EngineKind kind, const EngineOptions& options) {
  Capabilities facts{.max_in_flight = 128, .completes_itself = true};
  switch (kind) {
    case EngineKind::cpu:
      facts.name = "sim cpu";
      facts.max_piece = 8_GiB;
      facts.max_in_flight = 64;
      facts.min_efficient = facts.inline_below = 16_KiB;
      break;
    case EngineKind::dsa:
      facts.name = "sim dsa";
      facts.max_piece = 2_GiB;
      facts.min_efficient = 4_KiB;
      facts.completes_itself = false;
      break;
    case EngineKind::ssd:
      facts.name = "sim ssd";
      facts.max_piece = 64_MiB;
      break;
    case EngineKind::gpu:
      facts.name = "sim gpu";
      facts.max_piece = 64_MiB;
      facts.piece = 16_MiB;
      facts.in_flight = 32_MiB;
      break;
    case EngineKind::migrate: break;
  }
  if (options.max_in_flight > 0) facts.max_in_flight = options.max_in_flight;
  facts.note = "simulated: pieces are flows of bytes, and nothing is copied";
  return facts;
}

// Copies from one node to another by one engine.
struct NodePairFlow {
  std::size_t flow = 0;
  Nanoseconds latency{0};
};

class SimBackend;
struct DrivenEngine;

// An accepted piece.
struct Flight final : Job {
  Flight(SimBackend& its, DrivenEngine& by, const Piece& what, Completion& to)
      : backend(its), engine(by), piece(what), completion(to) {}
  void done() override;

  SimBackend& backend;
  DrivenEngine& engine;
  const Piece piece;
  Completion& completion;
  Nanoseconds latency{0};
  Status outcome;
};

struct DrivenEngine {
  NodeId home{};
  std::size_t parallel = 1;
  std::size_t in_flight = 0;    // accepted and not yet reported
  std::size_t in_progress = 0;  // of them, flows
  std::deque<std::unique_ptr<Flight>> waiting = {};
  std::map<std::pair<NodeId, NodeId>, NodePairFlow> pairs = {};
};

class SimBackend final : public Backend, public EventSource {
 public:
  SimBackend(Host& host, EngineKind kind, std::vector<EngineId> engines,
             const EngineOptions& options)
      : host_(host), turns_(host.turns()), kind_(kind), facts_(capabilities_of(kind, options)) {
    for (const EngineId id : engines) {
      engines_[id] = {.home = host.machine().find(id)->home,
                      .parallel = kind == EngineKind::cpu ? options.workers : kDeviceParallel};
    }
    facts_.engines = std::move(engines);
    turns_.add(*this);
  }
  ~SimBackend() override;
  Status start();

  const Capabilities& capabilities() const override { return facts_; }
  Result<std::size_t> submit(std::span<const Piece> pieces, Completion& completion) override;
  std::size_t poll() override;

  Nanoseconds next() override { return ending_.empty() ? Nanoseconds::max() : ending_.top().due; }
  void advance(Nanoseconds now) override;

  // For Flight: begins flows for waiting pieces; reports a piece after a time.
  void begin(DrivenEngine& engine);
  void end(std::unique_ptr<Flight> flight, Nanoseconds after);

 private:
  struct Due {
    Nanoseconds due;
    std::uint64_t order;
    Flight* flight;
    friend bool operator>(const Due& a, const Due& b) {
      return std::pair(a.due, a.order) > std::pair(b.due, b.order);
    }
  };

  Result<NodePairFlow*> pair_of(const Piece& piece);
  Result<NodePairFlow> make_pair(EngineId id, NodeId from, NodeId to);
  Status check(const Piece& piece);
  bool is_inline(const Piece& piece) const { return piece.from.length < facts_.inline_below; }
  std::size_t report();
  bool idle() const {
    return std::ranges::all_of(engines_, [](const auto& one) { return one.second.in_flight == 0; });
  }
  void work();

  const Origin origin_;
  Host& host_;
  Scheduler& turns_;
  const EngineKind kind_;
  Capabilities facts_;
  std::map<EngineId, DrivenEngine> engines_;
  std::priority_queue<Due, std::vector<Due>, std::greater<>> ending_;  // owns its flights
  std::uint64_t order_ = 0;
  std::deque<std::unique_ptr<Flight>> ended_;  // to be reported
  bool stopping_ = false;
  std::thread thread_;
};

void Flight::done() {
  --engine.in_progress;
  backend.end(std::unique_ptr<Flight>(this), latency);
  backend.begin(engine);
}

SimBackend::~SimBackend() {
  if (!origin_.here()) {
    abandon(std::move(engines_));
    abandon(std::move(ended_));
    abandon(std::move(thread_));
    return;
  }
  while (!idle()) {
    poll();
    turns_.sleep(kLook);
  }
  stopping_ = true;
  turns_.notify(this, 1);
  if (thread_.joinable()) join(thread_);
  turns_.remove(*this);
}

Status SimBackend::start() {
  if (!facts_.completes_itself) return {};
  HEADRACE_TRY(thread_, start_thread("headrace-sim", [this] { work(); }));
  return {};
}

// Reports pieces that have ended, as the threads of a production backend do.
void SimBackend::work() {
  while (!stopping_) {
    if (report() > 0) continue;
    turns_.expect(this);
    turns_.await(std::chrono::hours{1});
  }
}

std::size_t SimBackend::report() {
  std::size_t count = 0;
  for (; !ended_.empty(); ++count) {
    const std::unique_ptr<Flight> flight = std::move(ended_.front());
    ended_.pop_front();
    --flight->engine.in_flight;  // before the report, whose receiver may submit again
    flight->completion.complete(flight->piece.tag, std::move(flight->outcome));
  }
  return count;
}

std::size_t SimBackend::poll() {
  if (facts_.completes_itself || !origin_.here()) return 0;
  return report();
}

void SimBackend::advance(Nanoseconds now) {
  bool any = false;
  for (; !ending_.empty() && ending_.top().due <= now; ending_.pop(), any = true) {
    ended_.emplace_back(ending_.top().flight);
  }
  if (any) turns_.notify(this, 1);
}

// ---- pieces

Result<NodePairFlow> SimBackend::make_pair(EngineId id, NodeId from, NodeId to) {
  const Machine& machine = host_.machine();
  const Engine& engine = *machine.find(id);
  const CopyRate* const rate = machine.rate(id, from, to);
  const std::string name =
      fmt::format("{} copies node {} to node {}", engine.name, raw(from), raw(to));
  Flow flow{.name = name,
            .initiator = engine.home,
            .accesses = {{.node = from}, {.node = to, .kind = AccessKind::write}}};
  const CoreModel* const cores = cores_of(host_.solver().model(), engine.home);
  const auto lines_of = [&](const char* key) -> std::optional<double> {
    if (cores == nullptr || !cores->lines_in_flight.contains(key)) return std::nullopt;
    return cores->lines_in_flight.at(key);
  };
  NodePairFlow pair{.latency = rate != nullptr ? rate->latency : Nanoseconds{0}};
  if (kind_ == EngineKind::cpu) {
    const double lines = lines_of("copy").value_or(lines_of("nt store").value_or(kAssumedLines));
    flow.in_flight_bytes = lines * kLineBytes;
    pair.latency = Nanoseconds{0};  // of the rate: that of a hand-over, measured without a queue
    HEADRACE_TRY(pair.flow, host_.flows().add_class(std::move(flow)));
    return pair;
  }
  const bool dsa = kind_ == EngineKind::dsa;
  if (rate == nullptr && !dsa && host_.solver().model().bound) {
    return fail(ErrorCode::unsupported, "{} has no copy rate from node {} to node {}; give one",
                engine.name, raw(from), raw(to));
  }
  const BytesPerSecond peak = rate != nullptr ? rate->bandwidth : dsa ? kDsaRate : kNoCap;
  if (rate == nullptr && dsa) pair.latency = kDsaLatency;
  flow.engine = id;
  flow.cap_bytes_per_second = peak.value;
  const auto lines = dsa ? lines_of("dsa") : std::nullopt;
  if (lines) {
    flow.in_flight_bytes = *lines * kLineBytes;
  } else if (rate != nullptr || dsa) {
    HEADRACE_TRY(const IdleLatency read, host_.solver().idle_latency(engine.home, from));
    HEADRACE_TRY(const IdleLatency write, host_.solver().idle_latency(engine.home, to));
    const double idle_ns = read.read_ns + write.write_ns.value_or(write.read_ns);
    flow.in_flight_bytes = kSpareInFlight * peak.value * 1e-9 * idle_ns;
  }
  HEADRACE_TRY(pair.flow, host_.flows().add_class(std::move(flow), true));
  return pair;
}

Result<NodePairFlow*> SimBackend::pair_of(const Piece& piece) {
  DrivenEngine& engine = engines_.at(piece.engine);
  const std::pair nodes(piece.from.object->node(), piece.to.object->node());
  const auto found = engine.pairs.find(nodes);
  if (found != engine.pairs.end()) return &found->second;
  HEADRACE_TRY(const NodePairFlow made, make_pair(piece.engine, nodes.first, nodes.second));
  return &engine.pairs.emplace(nodes, made).first->second;
}

Status SimBackend::check(const Piece& piece) {
  HEADRACE_TRY_STATUS(check_piece(facts_, piece));
  const bool memories = piece.from.memory() != nullptr && piece.to.memory() != nullptr;
  if (!memories && (kind_ == EngineKind::cpu || kind_ == EngineKind::dsa)) {
    return fail(ErrorCode::unsupported, "engine {} copies only between memories",
                raw(piece.engine));
  }
  if (const auto pair = pair_of(piece); !pair) return Unexpected(pair.error());
  return {};
}

Result<std::size_t> SimBackend::submit(std::span<const Piece> pieces, Completion& completion) {
  HEADRACE_TRY_STATUS(origin_.check("the simulated backend"));
  for (const Piece& piece : pieces) HEADRACE_TRY_STATUS(check(piece));
  std::size_t accepted = 0;
  for (const Piece& piece : pieces) {
    if (piece.from.length == 0_B || is_inline(piece)) {
      if (piece.from.length > 0_B) {
        host_.flows().run((*pair_of(piece))->flow, piece.from.length);
      }
      completion.complete(piece.tag, {});
    } else {
      DrivenEngine& engine = engines_.at(piece.engine);
      if (engine.in_flight >= facts_.max_in_flight) break;
      ++engine.in_flight;
      if (kind_ == EngineKind::dsa) turns_.sleep(kDsaSubmission);
      engine.waiting.push_back(std::make_unique<Flight>(*this, engine, piece, completion));
      begin(engine);
    }
    ++accepted;
  }
  return accepted;
}

void SimBackend::begin(DrivenEngine& engine) {
  while (!engine.waiting.empty() && engine.in_progress < engine.parallel) {
    std::unique_ptr<Flight> flight = std::move(engine.waiting.front());
    engine.waiting.pop_front();
    const std::atomic<bool>* const cancelled = flight->piece.cancelled;
    if (cancelled != nullptr && cancelled->load()) {
      flight->outcome = fail(ErrorCode::cancelled, "the piece was cancelled before it began");
      end(std::move(flight), Nanoseconds{0});
      continue;
    }
    const NodePairFlow& pair = **pair_of(flight->piece);
    flight->latency = pair.latency;
    ++engine.in_progress;
    const Bytes length = flight->piece.from.length;
    host_.flows().begin(pair.flow, length, *flight.release());  // Flight::done() owns it again
  }
}

void SimBackend::end(std::unique_ptr<Flight> flight, Nanoseconds after) {
  ending_.push({.due = turns_.now() + after, .order = order_++, .flight = flight.release()});
}

}  // namespace

Result<std::unique_ptr<Backend>> open(Host& host, std::vector<EngineId> engines,
                                      const EngineOptions& options) {
  CHECK(options.workers > 0);
  std::optional<EngineKind> kind;
  for (const EngineId id : engines) {
    const Engine* const engine = host.machine().find(id);
    if (engine == nullptr) {
      return fail(ErrorCode::absent, "no engine {} in {}", raw(id), host.machine().name);
    }
    if (kind.value_or(engine->kind) != engine->kind) {
      return fail(ErrorCode::invalid, "engines of several kinds; open each kind by itself");
    }
    kind = engine->kind;
  }
  if (!kind) return fail(ErrorCode::invalid, "no engines to open");
  if (*kind == EngineKind::migrate) {
    return fail(ErrorCode::unsupported, "page migration is not simulated; take another engine");
  }
  auto backend = std::make_unique<SimBackend>(host, *kind, std::move(engines), options);
  HEADRACE_TRY_STATUS(backend->start());
  return backend;
}

Result<Backends> open_kinds(Host& host, std::span<const EngineKind> kinds,
                            const EngineOptions& options) {
  Backends backends;
  for (const EngineKind kind : kinds) {
    std::vector<EngineId> engines;
    for (const Engine& engine : host.machine().engines) {
      if (engine.kind == kind) engines.push_back(engine.id);
    }
    if (engines.empty()) {
      return fail(ErrorCode::absent, "{} has no engine of kind {}", host.machine().name,
                  to_string(kind));
    }
    HEADRACE_TRY(auto backend, open(host, std::move(engines), options));
    backends.add(std::move(backend));
  }
  return backends;
}

}  // namespace headrace::sim
