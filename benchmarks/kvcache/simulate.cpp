// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/kvcache/simulate.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "benchmarks/query/simulated/option_reader.h"
#include "core/fail.h"
#include "headrace/kvcache/store.h"
#include "sim/sim.h"

namespace headrace {
namespace simulated {
namespace {

using Json = nlohmann::ordered_json;

// The longest virtual time that a load or a store may take.
constexpr Nanoseconds kLongest = std::chrono::hours{10};
// A stop is noticed between two such parts of a sleep.
constexpr Nanoseconds kNap = std::chrono::seconds{1};
constexpr double kMostComputing = 1e6;  // seconds of all requests
constexpr unsigned kMostLayers = 1024;
constexpr std::uint64_t kMostBlocks = std::uint64_t{1} << 32;  // numbers of contents

struct Request {
  double seconds = 0;  // when it comes
  std::uint64_t tokens = 0;
  std::vector<std::uint64_t> blocks;
};

struct Plan {
  kvcache::Geometry geometry{.model = "simulated", .kv_heads = 1, .element_bytes = 1, .tensors = 1};
  NodeId gpu{};
  NodeId memory{};
  Bytes pool;
  Bytes dram;
  Bytes ssd;
  bool layer_order = true;
  double layer_token_seconds = 0;
  std::vector<Request> requests;
  std::uint64_t untimed = 0;

  // The most blocks of a request.
  std::size_t longest() const {
    std::size_t most = 1;
    for (const Request& each : requests) most = std::max(most, each.blocks.size());
    return most;
  }
};

// A request that was served.
struct Answer {
  std::vector<std::size_t> found;  // blocks, by tier
  std::uint64_t computed = 0;      // tokens
  Nanoseconds time{0};
  Nanoseconds waited{0};   // for layers
  Nanoseconds loading{0};  // from the beginning of the load to its end
};

struct Simulation {
  Machine machine;
  Plan plan;
  std::atomic<std::size_t> done{0};  // requests; read by the caller's thread, too
  std::vector<Answer> answers;
  Nanoseconds time{0};
  kvcache::StoreStats stats;
  std::vector<sim::FlowUse> flows;
  std::uint64_t pieces = 0;
  std::uint64_t switches = 0;
  std::uint64_t solved = 0;
  bool bound = false;
  bool interrupted = false;
  Status outcome;
};

// ---- options

std::optional<std::vector<Request>> read_requests(const Json& array) try {
  std::vector<Request> requests;
  for (const Json& one : array) {
    Request request{.seconds = one.at("seconds").get<double>(),
                    .tokens = one.at("tokens").get<std::uint64_t>(),
                    .blocks = one.at("blocks").get<std::vector<std::uint64_t>>()};
    const bool right = request.seconds >= 0 && request.seconds < 1e9 && request.tokens > 0 &&
                       std::ranges::all_of(request.blocks,
                                           [](std::uint64_t block) { return block < kMostBlocks; });
    if (!right) return std::nullopt;
    requests.push_back(std::move(request));
  }
  if (requests.empty()) return std::nullopt;
  return requests;
} catch (const Json::exception&) {
  return std::nullopt;
}

Result<Plan> read_plan(std::string_view options) {
  const Json object = Json::parse(options, nullptr, false);
  if (!object.is_object()) return fail(ErrorCode::invalid, "options: no JSON object");
  Plan plan;
  OptionReader reader(object);
  const auto any = [](auto) { return true; };
  reader.count("layers", plan.geometry.layers, kMostLayers);
  reader.count("layer_token_bytes", plan.geometry.head_dim, 1U << 24);
  reader.count("block_tokens", plan.geometry.block_tokens, 1U << 16);
  std::uint32_t gpu = 0;
  std::uint32_t memory = 0;
  reader.read("gpu", gpu, any, "a node");
  reader.read("memory", memory, any, "a node");
  plan.gpu = NodeId{gpu};
  plan.memory = NodeId{memory};
  reader.bytes("pool_bytes", plan.pool, 0_B);
  reader.bytes("memory_bytes", plan.dram, 0_B);
  reader.bytes("ssd_bytes", plan.ssd, 0_B);
  reader.read("layer_order", plan.layer_order, any, "true or false");
  reader.positive("layer_token_seconds", plan.layer_token_seconds);
  reader.read("untimed", plan.untimed, any, "a whole number");
  if (const Json* const requests = reader.member("requests")) {
    auto read = read_requests(*requests);
    if (!read) reader.complain("\"requests\" are no list of seconds, tokens and blocks");
    plan.requests = read.value_or(std::vector<Request>{});
  } else {
    reader.complain("no \"requests\"; give one or more");
  }
  HEADRACE_TRY_STATUS(reader.end());
  HEADRACE_TRY_STATUS(kvcache::check(plan.geometry));
  const std::uint64_t block_tokens = plan.geometry.block_tokens;
  double computing = 0;
  for (const Request& each : plan.requests) {
    computing += plan.layer_token_seconds * plan.geometry.layers * static_cast<double>(each.tokens);
    if (each.blocks.size() > each.tokens / block_tokens) {
      return fail(ErrorCode::invalid, "options: {} blocks of {} tokens in a request of {}",
                  each.blocks.size(), block_tokens, each.tokens);
    }
  }
  if (computing > kMostComputing) {
    return fail(ErrorCode::invalid,
                "options: {:.3g} s of computing; give fewer tokens, at most {} s", computing,
                kMostComputing);
  }
  return plan;
}

// ---- the store

// A folder that is there only while its files are opened.
class PassingFolder {
 public:
  PassingFolder() = default;
  ~PassingFolder() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  PassingFolder(const PassingFolder&) = delete;
  PassingFolder& operator=(const PassingFolder&) = delete;

  Status make() {
    std::error_code error;
    std::string name = std::filesystem::temp_directory_path(error) / "headrace-simulated-XXXXXX";
    if (error || mkdtemp(name.data()) == nullptr) {
      return fail(ErrorCode::io, "cannot make the folder {} for the tier on SSD; set TMPDIR", name);
    }
    path_ = name;
    return {};
  }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

Result<std::unique_ptr<kvcache::Store>> open_store(sim::Host& host, Mover& mover,
                                                   const Plan& plan) {
  PassingFolder folder;
  kvcache::StoreOptions options{.geometry = plan.geometry};
  if (plan.pool > 0_B) {
    options.tiers.push_back({.budget = plan.pool, .memory = Placement::on(plan.gpu)});
  }
  if (plan.dram > 0_B) {
    options.tiers.push_back({.budget = plan.dram, .memory = Placement::on(plan.memory)});
  }
  if (plan.ssd > 0_B) {
    HEADRACE_TRY_STATUS(folder.make());
    // An own block is not verified. All others are zeros, which fit: nothing is copied.
    options.tiers.push_back(
        {.budget = plan.ssd, .folder = folder.path() / "store", .verify = kvcache::Verify::found});
  }
  // An engine that stores whole prompts needs space for two.
  options.in_flight = std::max(options.in_flight, plan.geometry.block() * (2 * plan.longest()));
  options.allocate = [&host, node = plan.memory](const Placement& memory, Bytes bytes) {
    return host.reserve_object(memory.nodes.empty() ? node : memory.nodes.front().node, bytes);
  };
  return kvcache::Store::open(mover, std::move(options));
}

// ---- requests

// Serves the requests of a plan. The destructor waits for stores.
class Server {
 public:
  static Result<std::unique_ptr<Server>> open(sim::Host& host, Mover& mover,
                                              Simulation& simulation) {
    const Plan& plan = simulation.plan;
    std::unique_ptr<Server> server(new Server(host, simulation));
    const Bytes all = plan.geometry.block() * plan.longest();
    HEADRACE_TRY(server->prompt_, host.reserve_object(plan.gpu, all));
    HEADRACE_TRY(server->store_, open_store(host, mover, plan));
    return server;
  }

  Status serve() {
    for (const Request& request : plan_.requests) {
      if (host_.turns().stopping()) break;
      HEADRACE_TRY_STATUS(serve(request));
      if (host_.turns().stopping()) break;
      if (++simulation_.done <= plan_.untimed) HEADRACE_TRY_STATUS(settle());
    }
    simulation_.interrupted = simulation_.done < plan_.requests.size();
    HEADRACE_TRY_STATUS(settle());
    simulation_.stats = store_->stats();
    return {};
  }

 private:
  Server(sim::Host& host, Simulation& simulation)
      : host_(host), simulation_(simulation), plan_(simulation.plan) {}

  Status serve(const Request& request) {
    sim::Scheduler& turns = host_.turns();
    const Nanoseconds due{static_cast<std::int64_t>(request.seconds * 1e9)};
    rest(due - turns.now());
    std::vector<kvcache::Key> keys;
    for (const std::uint64_t block : request.blocks) {
      keys.push_back({.low = (block + 1) * 0x9e3779b97f4a7c15, .high = block});
    }
    const std::size_t block_tokens = plan_.geometry.block_tokens;
    const std::size_t most =
        std::min<std::size_t>((request.tokens - 1) / block_tokens, keys.size());
    const Nanoseconds begin = turns.now();
    Answer answer;
    {
      const kvcache::Match match = store_->match(std::span(keys).first(most));
      answer.computed = request.tokens - match.size() * block_tokens;
      answer.found.resize(kvcache::kMostTiers);
      for (const unsigned tier : match.tiers()) ++answer.found[tier];
      HEADRACE_TRY_STATUS(prefill(match.keys(), answer));
      keys.erase(keys.begin(), keys.begin() + static_cast<std::ptrdiff_t>(match.size()));
    }
    if (turns.stopping()) return {};
    answer.time = turns.now() - begin;
    if (simulation_.done >= plan_.untimed) simulation_.answers.push_back(std::move(answer));
    return keep(keys, request.blocks.size() - keys.size());
  }

  Status prefill(std::span<const kvcache::Key> found, Answer& answer) {
    sim::Scheduler& turns = host_.turns();
    const Nanoseconds layer{static_cast<std::int64_t>(plan_.layer_token_seconds *
                                                      static_cast<double>(answer.computed) * 1e9)};
    const Nanoseconds begin = turns.now();
    kvcache::Load load;
    if (!found.empty()) {
      HEADRACE_TRY(load, store_->load(found, whole(*prompt_),
                                      {.layout = kvcache::Layout::page_first,
                                       .layer_order = plan_.layer_order}));
    }
    // Callbacks may outlive an error.
    const auto ended = std::make_shared<Nanoseconds>(begin);
    for (unsigned i = 0; i < load.layers(); ++i) {
      load.on_layer(i, [&turns, ended] { *ended = turns.now(); });
    }
    for (unsigned i = 0; i < plan_.geometry.layers && !turns.stopping(); ++i) {
      if (i < load.layers()) {
        const Nanoseconds wait = turns.now();
        HEADRACE_TRY_STATUS(load.wait_layer(i, kLongest));
        answer.waited += turns.now() - wait;
      }
      rest(layer);
    }
    answer.loading = *ended - begin;
    return {};
  }

  // Sleeps until the time is over, or a stop.
  void rest(Nanoseconds time) {
    sim::Scheduler& turns = host_.turns();
    for (; time > Nanoseconds{0} && !turns.stopping(); time -= kNap) {
      turns.sleep(std::min(time, kNap));
    }
  }

  // Stores blocks behind those that were loaded.
  Status keep(std::span<const kvcache::Key> keys, std::size_t first) {
    if (keys.empty()) return {};
    kvcache::StoreRequest request;
    for (std::size_t i = 0; i < keys.size(); ++i) request.positions.push_back(first + i);
    HEADRACE_TRY(kvcache::Stored stored, store_->store(keys, whole(*prompt_), request));
    std::erase_if(stores_, [](const kvcache::Stored& each) { return each.done(); });
    stores_.push_back(std::move(stored));
    return {};
  }

  Status settle() {
    for (const kvcache::Stored& each : stores_) {
      if (const auto ended = each.wait(kLongest); !ended) return Unexpected(ended.error());
    }
    stores_.clear();
    return {};
  }

  sim::Host& host_;
  Simulation& simulation_;
  const Plan& plan_;
  std::shared_ptr<const Object> prompt_;  // on the GPU
  std::unique_ptr<kvcache::Store> store_;
  std::vector<kvcache::Stored> stores_;
};

Status simulate(sim::Scheduler& turns, Simulation& simulation) {
  HEADRACE_TRY(const auto host, sim::Host::create(turns, simulation.machine));
  simulation.bound = host->solver().model().bound;
  std::vector<EngineKind> kinds;
  for (const EngineKind kind : {EngineKind::cpu, EngineKind::ssd, EngineKind::gpu}) {
    const auto& engines = simulation.machine.engines;
    if (std::ranges::find(engines, kind, &Engine::kind) != engines.end()) kinds.push_back(kind);
  }
  HEADRACE_TRY(Backends backends, sim::open_kinds(*host, kinds));
  Status outcome;
  {
    Mover mover(simulation.machine, backends, {.clock = &turns, .waiting = &turns});
    auto server = Server::open(*host, mover, simulation);
    outcome = server ? (*server)->serve() : Unexpected(server.error());
    simulation.time = turns.now();
    if (server) server->reset();
    simulation.pieces = mover.stats().pieces;
  }
  simulation.flows = host->flows().flow_use();
  simulation.solved = host->flows().solved();
  simulation.switches = turns.switches();
  return outcome;
}

// ---- the report

Json answers_json(const Simulation& simulation) {
  Json answers = Json::array();
  for (const Answer& each : simulation.answers) {
    Json found = Json::array();
    for (std::size_t i = 0; i < simulation.stats.tiers.size(); ++i) found.push_back(each.found[i]);
    answers.push_back({{"found", std::move(found)},
                       {"computed_tokens", each.computed},
                       {"seconds", seconds(each.time)},
                       {"waited_seconds", seconds(each.waited)},
                       {"loading_seconds", seconds(each.loading)}});
  }
  return answers;
}

std::string report(const Simulation& simulation) {
  Json tiers = Json::array();
  const bool folder = simulation.plan.ssd > 0_B;
  for (const kvcache::TierStats& tier : simulation.stats.tiers) {
    const bool last = tiers.size() + 1 == simulation.stats.tiers.size();
    tiers.push_back({{"name", folder && last ? "ssd" : tier.name},
                     {"budget_bytes", tier.budget.value},
                     {"blocks", tier.blocks},
                     {"hits", tier.hits},
                     {"loaded_bytes", tier.loaded.value},
                     {"arrived", tier.arrived},
                     {"evicted", tier.evicted},
                     {"dropped", tier.dropped}});
  }
  Json flows = Json::array();
  for (const sim::FlowUse& use : simulation.flows) {
    Json limited = Json::array();
    for (const auto& one : use.limited) {
      limited.push_back({{"by", one.by}, {"seconds", one.seconds}});
    }
    flows.push_back({{"flow", use.flow}, {"bytes", use.bytes}, {"limited", std::move(limited)}});
  }
  const kvcache::StoreStats& stats = simulation.stats;
  const Json document = {{"machine", simulation.machine.name},
                         {"interrupted", simulation.interrupted},
                         {"seconds", seconds(simulation.time)},
                         {"block_bytes", simulation.plan.geometry.block().value},
                         {"requests", answers_json(simulation)},
                         {"tiers", std::move(tiers)},
                         {"stored", stats.stores.stored},
                         {"refused", stats.stores.refused},
                         {"failed", stats.failed + stats.stores.failed + stats.damaged},
                         {"last_error", stats.last_error},
                         {"flows", std::move(flows)},
                         {"upper_bound", simulation.bound},
                         {"pieces", simulation.pieces},
                         {"turns", simulation.switches},
                         {"solutions", simulation.solved}};
  return document.dump();
}

}  // namespace
}  // namespace simulated

Result<std::string> simulate_kvcache(std::string_view machine, std::string_view options,
                                     const SimulationCalls& calls) {
  const auto simulation = std::make_shared<simulated::Simulation>();
  HEADRACE_TRY(simulation->machine, Machine::from_json(machine));
  HEADRACE_TRY(simulation->plan, simulated::read_plan(options));
  const auto look = [&](Nanoseconds) {
    if (calls.progress) calls.progress(simulation->done, simulation->plan.requests.size());
    return calls.stop && calls.stop();
  };
  HEADRACE_TRY_STATUS(
      sim::run({.limit = Nanoseconds::max(), .stop = look}, [simulation](sim::Scheduler& turns) {
        simulation->outcome = simulated::simulate(turns, *simulation);
      }));
  HEADRACE_TRY_STATUS(std::move(simulation->outcome));
  return simulated::report(*simulation);
}

}  // namespace headrace
