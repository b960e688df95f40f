// SPDX-License-Identifier: Apache-2.0
#include "dsa_sim/rates/rates.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "core/check.h"
#include "core/fail.h"
#include "measure/experiments/dsa/dsa.h"
#include "topology/topology.h"

namespace headrace::dsa_rates {
namespace {

// No run takes so long in modelled time.
constexpr Nanoseconds kNever = std::chrono::hours{24};
constexpr Nanoseconds kNothing{0};

// Data have addresses that say on which node they are, and nothing else.
constexpr unsigned kNodeShift = 40;
constexpr std::uint64_t kDestinations = std::uint64_t{1} << 39;  // of a node's addresses
constexpr unsigned kThreadShift = 33;

std::uint64_t address_on(NodeId node, std::size_t thread) {
  return (std::uint64_t{raw(node)} + 1) << kNodeShift | std::uint64_t{thread} << kThreadShift;
}

NodeId node_at(std::uint64_t address) { return static_cast<NodeId>((address >> kNodeShift) - 1); }

// Descriptor lists and records are at their addresses; there are no data.
class ModelSpace final : public emulator::AddressSpace {
 public:
  bool read(std::uint64_t address, std::span<std::byte> to) override {
    std::memcpy(to.data(), reinterpret_cast<const void*>(address), to.size());
    return true;
  }
  bool write(std::uint64_t address, std::span<const std::byte> from) override {
    std::memcpy(reinterpret_cast<void*>(address), from.data(), from.size());
    return true;
  }
  bool imaginary() const override { return true; }
};

// What data pass besides devices, each of which moves so many bytes per second, one copy's after
// the other's: memories, and links, these in each direction and where that is limited in both.
class ModelPaths {
 public:
  ModelPaths(const Machine& machine, const DsaCosts& costs) : machine_(machine) {
    for (const Node& node : machine.nodes) {
      double rate = 0;
      for (const AccessAttributes& access : node.access) {
        if (access.read_bandwidth) rate = std::max(rate, access.read_bandwidth->value);
      }
      const bool as_observed = rate == 0 || rate == kRatedOfDdr.value;
      if (node.kind == NodeKind::dram && as_observed) rate = kObservedFromDdr.value;
      if (rate > 0) nodes_[node.id].rate = BytesPerSecond{rate};
    }
    for (const Link& link : machine.links) {
      auto each_way = link.each_way;
      if (!each_way && link.kind == LinkKind::mesh) each_way = costs.mesh;
      links_.push_back({.forward = {each_way}, .back = {each_way}, .both = {link.both_ways}});
    }
  }

  // A device at `home` reads from where the data are, and writes to where they go.
  Nanoseconds move(const dsa::Descriptor& descriptor, NodeId home, Nanoseconds begin) {
    const NodeId from = node_at(descriptor.source);
    const NodeId to = node_at(descriptor.destination);
    const Bytes bytes{descriptor.size};
    Nanoseconds end = std::max(pass(nodes_[from], bytes, begin), pass(nodes_[to], bytes, begin));
    for (const auto& [one, other] : {std::pair(from, home), std::pair(home, to)}) {
      for (const Crossing& crossing : way(one, other)) {
        Directions& link = links_[crossing.link];
        end = std::max({end, pass(crossing.forward ? link.forward : link.back, bytes, begin),
                        pass(link.both, bytes, begin)});
      }
    }
    return end;
  }

 private:
  struct Limit {
    std::optional<BytesPerSecond> rate;
    Nanoseconds free{0};
  };
  struct Directions {
    Limit forward;  // from the link's `a` to its `b`
    Limit back;
    Limit both;
  };

  static Nanoseconds pass(Limit& limit, Bytes bytes, Nanoseconds begin) {
    if (!limit.rate) return begin;
    limit.free = std::max(limit.free, begin) + bytes / *limit.rate;
    return limit.free;
  }

  const std::vector<Crossing>& way(NodeId from, NodeId to) {
    const auto [found, is_new] = ways_.try_emplace({from, to});
    if (is_new) found->second = way_between(machine_, from, to);
    return found->second;
  }

  const Machine& machine_;
  std::map<NodeId, Limit> nodes_;
  std::vector<Directions> links_;
  std::map<std::pair<NodeId, NodeId>, std::vector<Crossing>> ways_;
};

// A thread's way into a queue: what it submits arrives one descriptor after the other, and until
// the last has arrived the thread is busy. A full queue it asks again and again.
class ModelPortal final : public dsa::Portal {
 public:
  ModelPortal(emulator::Device& device, emulator::AddressSpace& space, const Clock& clock,
              const DsaCosts& costs, DsaMethod method)
      : device_(device),
        space_(space),
        clock_(clock),
        shared_(device.setup().queues[0].shared),
        written_(method == DsaMethod::vectored),
        each_(shared_ ? costs.enqcmd : costs.movdir64b),
        call_(written_ ? costs.system_call : kNothing) {}

  Result<std::size_t> submit(std::span<const dsa::Descriptor> descriptors) override {
    CHECK(waiting_.empty());
    waiting_.assign(descriptors.begin(), descriptors.end());
    due_ = clock_.now() + call_ + each_;
    return descriptors.size();
  }
  bool takes_batches() const override { return true; }
  bool mapped() const override { return !written_; }
  std::string_view name() const override {
    if (written_) return "write()";
    return shared_ ? "ENQCMD" : "MOVDIR64B";
  }

  std::optional<Nanoseconds> next_due() const {
    return waiting_.empty() ? std::nullopt : std::optional(due_);
  }
  bool busy() const { return !waiting_.empty(); }
  void arrive() {
    if (waiting_.empty() || due_ > clock_.now()) return;
    due_ += each_;
    if (!shared_) {
      device_.movdir64b(0, space_, waiting_.front());
    } else if (!device_.enqcmd(0, space_, waiting_.front())) {
      return;
    }
    waiting_.pop_front();
  }

 private:
  emulator::Device& device_;
  emulator::AddressSpace& space_;
  const Clock& clock_;
  const bool shared_;
  const bool written_;
  const Nanoseconds each_;
  const Nanoseconds call_;
  std::deque<dsa::Descriptor> waiting_;
  Nanoseconds due_{0};
};

emulator::DeviceSetup setup_of(const DsaShape& shape) {
  emulator::DeviceSetup setup = emulator::sapphire_rapids();
  setup.engines = shape.engines.value_or(1);
  setup.queues.front().shared = shape.shared;
  return setup;
}

// One run: everything that happens, in the order of its time.
class ModelWorld {
 public:
  ModelWorld(const Machine& machine, const DsaCosts& costs, const DsaShape& shape)
      : machine_(machine), costs_(costs), shape_(shape), paths_(machine, costs) {}

  Status add(const DsaThread& thread);
  Result<DsaTimes> run();

 private:
  struct Thread {
    std::unique_ptr<dsa::OpenQueue> lane;
    ModelPortal* portal = nullptr;  // of the lane
    std::unique_ptr<DsaSubmitter> submitter;
    std::optional<Nanoseconds> end;
  };

  Result<emulator::Device*> device(EngineId engine);
  std::optional<Nanoseconds> next_due() const;
  Status go_on(Thread& thread);
  Status happen();

  const Machine& machine_;
  const DsaCosts costs_;
  const DsaShape shape_;
  ManualClock clock_;
  ModelSpace space_;
  ModelPaths paths_;
  std::map<EngineId, std::unique_ptr<emulator::Device>> devices_;
  std::vector<std::unique_ptr<Thread>> threads_;
};

Result<emulator::Device*> ModelWorld::device(EngineId engine) {
  std::unique_ptr<emulator::Device>& device = devices_[engine];
  if (device == nullptr) {
    emulator::DeviceOptions options{.setup = setup_of(shape_), .seed = raw(engine) + 1};
    options.rates = emulator::DeviceRates{.start_up = costs_.start_up,
                                          .engine = costs_.device,
                                          .device = costs_.device,
                                          .beyond = [this, home = machine_.find(engine)->home](
                                                        const auto& descriptor, Nanoseconds begin) {
                                            return paths_.move(descriptor, home, begin);
                                          }};
    options.clock = &clock_;
    HEADRACE_TRY(device, emulator::Device::open(std::move(options)));
  }
  return device.get();
}

Status ModelWorld::add(const DsaThread& thread) {
  HEADRACE_TRY(emulator::Device* const of, device(thread.engine));
  threads_.push_back(std::make_unique<Thread>());
  Thread* const made = threads_.back().get();
  dsa::QueueOptions options{.limit = kNever,
                            .clock = &clock_,
                            .at_once = thread.at_once,
                            .batches = thread.method == DsaMethod::batch};
  options.open = [=, this, method = thread.method](
                     const dsa::WorkQueue&) -> Result<std::unique_ptr<dsa::Portal>> {
    auto portal = std::make_unique<ModelPortal>(*of, space_, clock_, costs_, method);
    made->portal = portal.get();
    return portal;
  };
  HEADRACE_TRY(made->lane,
               dsa::OpenQueue::open(emulator::facts_of(of->setup()).queues.front(), options));
  const std::size_t number = threads_.size();
  const DsaArea area{.from = address_on(thread.from, number),
                     .to = address_on(thread.to, number) + kDestinations,
                     .copies = copies_of_area(thread)};
  made->submitter = std::make_unique<DsaSubmitter>(*made->lane, thread, area);
  return {};
}

std::optional<Nanoseconds> ModelWorld::next_due() const {
  std::optional<Nanoseconds> next;
  const auto consider = [&](std::optional<Nanoseconds> due) {
    if (due && (!next || *due < *next)) next = due;
  };
  for (const auto& [engine, device] : devices_) consider(device->next_due());
  for (const auto& thread : threads_) consider(thread->portal->next_due());
  return next;
}

Status ModelWorld::go_on(Thread& thread) {
  if (thread.end || thread.portal->busy()) return {};
  HEADRACE_TRY_STATUS(thread.submitter->step());
  if (thread.submitter->over()) thread.end = clock_.now();
  return {};
}

// All that happens at this moment.
Status ModelWorld::happen() {
  for (const auto& thread : threads_) thread->portal->arrive();
  for (const auto& [engine, device] : devices_) device->run();
  for (const auto& thread : threads_) HEADRACE_TRY_STATUS(go_on(*thread));
  return {};
}

Result<DsaTimes> ModelWorld::run() {
  HEADRACE_TRY_STATUS(happen());
  while (!std::ranges::all_of(threads_, [](const auto& each) { return each->end.has_value(); })) {
    const auto due = next_due();
    if (!due) return fail(ErrorCode::io, "the model came to a halt; that is a defect of Headrace");
    if (*due > clock_.now()) clock_.advance(*due - clock_.now());
    HEADRACE_TRY_STATUS(happen());
  }
  DsaTimes times{.mapped = threads_.front()->lane->mapped()};
  for (const auto& thread : threads_) {
    times.each.push_back(*thread->end);
    times.all = std::max(times.all, *thread->end);
  }
  return times;
}

class ModelRun final : public DsaRun {
 public:
  ModelRun(const DsaModel& model, std::vector<DsaThread> threads, const DsaShape& shape)
      : model_(model), threads_(std::move(threads)), shape_(shape) {}
  Result<DsaTimes> round() override { return model_.run(threads_, shape_); }

 private:
  const DsaModel& model_;
  const std::vector<DsaThread> threads_;
  const DsaShape shape_;
};

}  // namespace

DsaModel::DsaModel(Machine machine, const DsaCosts& costs)
    : machine_(std::move(machine)), costs_(costs) {}

Result<std::unique_ptr<DsaRun>> DsaModel::prepare(const std::vector<DsaThread>& threads,
                                                  const DsaShape& shape,
                                                  instruments::BufferPool&) const {
  return std::make_unique<ModelRun>(*this, threads, shape);
}

std::vector<EngineId> DsaModel::engines() const {
  std::vector<EngineId> found;
  for (const Engine& engine : machine_.engines) {
    if (engine.kind == EngineKind::dsa) found.push_back(engine.id);
  }
  return found;
}

Result<DsaTimes> DsaModel::run(const std::vector<DsaThread>& threads, const DsaShape& shape) const {
  ModelWorld world(machine_, costs_, shape);
  for (const DsaThread& thread : threads) {
    const Engine* engine = machine_.find(thread.engine);
    if (engine == nullptr || engine->kind != EngineKind::dsa) {
      return fail(ErrorCode::absent,
                  "engine {} of {} is not a dsa engine; headrace topo shows them",
                  raw(thread.engine), machine_.name);
    }
    HEADRACE_TRY_STATUS(world.add(thread));
  }
  return world.run();
}

}  // namespace headrace::dsa_rates
