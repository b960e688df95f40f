// SPDX-License-Identifier: Apache-2.0
#include "measure/experiments/dsa/host.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "core/fail.h"
#include "headrace/buffer.h"
#include "headrace/clock.h"
#include "measure/instruments/cpu_share.h"
#include "measure/instruments/side_by_side/loads.h"
#include "measure/instruments/side_by_side/side_by_side.h"
#include "measure/instruments/worker_pool.h"
#include "measure/session/experiment.h"
#include "memory/memory.h"

namespace headrace::experiment_dsa {

using namespace instruments;

namespace {

// CPUs near each thread's device: a core of its own for each thread, as long as there are any.
CpuSet cpus_of(const Machine& machine, const std::vector<DsaThread>& threads) {
  CpuSet cpus;
  std::map<NodeId, std::size_t> next;
  for (const DsaThread& thread : threads) {
    const NodeId home = machine.find(thread.engine)->home;
    CpuSet near = usable_cpus(machine.find(home));
    if (near.empty()) near = usable_cpus();
    cpus.push_back(near[next[home]++ % near.size()]);
  }
  return cpus;
}

// The memory that the copies of a thread use: its `index`-th buffer on either side.
Result<DsaArea> copy_area(BufferPool& buffers, const DsaThread& thread, std::size_t index) {
  DsaArea area{.copies = copies_of_area(thread)};
  const Bytes bytes = thread.bytes * area.copies;
  HEADRACE_TRY(const auto from, buffers.get({thread.from}, 2 * index, bytes));
  HEADRACE_TRY(const auto to, buffers.get({thread.to}, 2 * index + 1, bytes));
  area.from = reinterpret_cast<std::uintptr_t>(from.data());
  area.to = reinterpret_cast<std::uintptr_t>(to.data());
  return area;
}

// A batch that was taken apart would be measured as something else.
Status check_method(DsaMethod method, const dsa::OpenQueue& lane) {
  if (method != DsaMethod::batch || lane.stats().batches > 0) return {};
  return fail(ErrorCode::unsupported, "{} takes no batch descriptors from users; see vectored",
              lane.queue().name);
}

// One thread with its lane and memory. A round ends when nothing is in flight, so the next round
// can use the same open queue: opening and mapping a portal is not timed.
struct Member {
  DsaThread plan;
  DsaArea area;
  std::unique_ptr<dsa::OpenQueue> lane;
  // Written by the thread itself.
  Nanoseconds begin{0};
  Nanoseconds end{0};
  double cpu_seconds = 0;
  Status status;

  void copy() {
    DsaSubmitter submitter(*lane, plan, area);
    status = Status{};
    const CpuTime cpu = CpuTime::of_thread();
    begin = system_clock().now();
    while (status && !submitter.over()) status = submitter.step();
    end = system_clock().now();
    cpu_seconds = cpu.seconds();
  }
};

class HostRun final : public DsaRun {
 public:
  HostRun(std::vector<std::unique_ptr<Member>> members, CpuSet cpus)
      : members_(std::move(members)), cpus_(std::move(cpus)) {}

  Result<DsaTimes> round() override {
    HEADRACE_TRY(const double share,
                 run_together(cpus_, [&](std::size_t i) { members_[i]->copy(); }));
    DsaTimes times{.mapped = members_.front()->lane->mapped(), .cpu_seconds = 0};
    // Threads that share a CPU wait for each other, and are not disturbed by that.
    if (std::set(cpus_.begin(), cpus_.end()).size() == cpus_.size()) times.cpu_share = share;
    Nanoseconds first = members_.front()->begin, last = members_.front()->end;
    for (const auto& member : members_) {
      HEADRACE_TRY_STATUS(std::move(member->status));
      HEADRACE_TRY_STATUS(check_method(member->plan.method, *member->lane));
      times.each.push_back(member->end - member->begin);
      *times.cpu_seconds += member->cpu_seconds;
      first = std::min(first, member->begin);
      last = std::max(last, member->end);
    }
    times.all = last - first;
    return times;
  }

 private:
  const std::vector<std::unique_ptr<Member>> members_;
  const CpuSet cpus_;
};

}  // namespace

DsaHost::DsaHost(Machine machine, DsaHostOptions options)
    : machine_(std::move(machine)), options_(std::move(options)) {}

Result<std::unique_ptr<dsa::OpenQueue>> DsaHost::open_lane(const DsaThread& thread,
                                                           const DsaShape& shape) const {
  HEADRACE_TRY_STATUS(machine_.node(thread.from));
  HEADRACE_TRY_STATUS(machine_.node(thread.to));
  const Engine* engine = machine_.find(thread.engine);
  const std::string name = engine == nullptr ? "no dsa engine" : engine->name;
  const auto device = std::ranges::find(options_.devices, name, &dsa::Device::name);
  if (device == options_.devices.end()) {
    return fail(ErrorCode::absent, "{} has no device {}; headrace topo shows them", machine_.name,
                name);
  }
  const auto fits = [&](const dsa::WorkQueue& queue) {
    return queue.unusable.empty() && queue.shared == shape.shared;
  };
  const auto queue = std::ranges::find_if(device->queues, fits);
  const unsigned engines = shape.engines.value_or(device->engines);
  if (queue == device->queues.end() || device->engines != engines) {
    return fail(ErrorCode::absent,
                "{} has no {} queue with {} engines; headrace dsa setup --show says how to "
                "configure one",
                name, shape.shared ? "shared" : "dedicated", engines);
  }
  const bool by_write = thread.method == DsaMethod::vectored;
  return dsa::OpenQueue::open(
      *queue,
      {.open = [open = options_.open, by_write](const auto& of) { return open(of, by_write); },
       .at_once = thread.at_once,
       .batches = thread.method == DsaMethod::batch});
}

std::vector<EngineId> DsaHost::engines() const {
  std::vector<EngineId> engines;
  for (const Engine& engine : machine_.engines) {
    const auto is_it = [&](const dsa::Device& device) { return device.name == engine.name; };
    if (std::ranges::any_of(options_.devices, is_it)) engines.push_back(engine.id);
  }
  return engines;
}

Result<std::unique_ptr<DsaRun>> DsaHost::prepare(const std::vector<DsaThread>& threads,
                                                 const DsaShape& shape, BufferPool& buffers) const {
  std::vector<std::unique_ptr<Member>> members;
  for (const DsaThread& thread : threads) {
    auto member = std::make_unique<Member>();
    member->plan = thread;
    HEADRACE_TRY(member->lane, open_lane(thread, shape));
    HEADRACE_TRY(member->area, copy_area(buffers, thread, members.size()));
    members.push_back(std::move(member));
  }
  return std::make_unique<HostRun>(std::move(members), cpus_of(machine_, threads));
}

namespace {

constexpr Nanoseconds kStreamWindow = std::chrono::milliseconds{100};
constexpr std::size_t kPollsPerStep = 100;

Result<CpuSet> cores_of(const Machine& machine, NodeId node, std::size_t count) {
  HEADRACE_TRY(const Node* of, machine.node(node));
  CpuSet cpus = usable_cpus(of);
  if (cpus.size() < count) {
    return fail(ErrorCode::absent, "{} cores asked for, but this process may use {} of node {}",
                count, cpus.size(), raw(node));
  }
  cpus.resize(count);
  return cpus;
}

// A background load of copies by a device, counted in bytes.
class DeviceLoad final : public Load {
 public:
  DeviceLoad(dsa::OpenQueue& lane, DsaThread thread, const DsaArea& area)
      : bytes_(static_cast<double>(thread.bytes.value)), submitter_(lane, endless(thread), area) {}

  Result<double> step() override {
    const std::size_t before = submitter_.ended();
    for (std::size_t i = 0; i < kPollsPerStep; ++i) HEADRACE_TRY_STATUS(submitter_.step());
    return static_cast<double>(submitter_.ended() - before) * bytes_;
  }
  // Waits until nothing is in flight. After that the memory may be freed.
  Status finish() {
    submitter_.stop();
    while (!submitter_.over()) HEADRACE_TRY_STATUS(submitter_.step());
    return {};
  }

 private:
  static DsaThread endless(DsaThread thread) {
    thread.copies = SIZE_MAX;
    return thread;
  }

  const double bytes_;
  DsaSubmitter submitter_;
};

// STREAM's cores: two lines read for each that is written.
struct StreamLoads {
  std::vector<std::unique_ptr<Buffer>> memory;
  std::vector<std::unique_ptr<TrafficLoad>> loads;
};

Result<StreamLoads> stream_loads(const Machine& machine, NodeId node, const CpuSet& cpus) {
  const Mix* triad = find_mix("2:1");
  Row row;
  const Bytes part =
      session::past_caches(row, machine, cpus, kCachesPassed, Bytes{0}) / cpus.size();
  const Bytes each = std::max(base_page() * (part / base_page()), 32_MiB);
  StreamLoads made;
  for (std::size_t i = 0; i < cpus.size(); ++i) {
    HEADRACE_TRY(auto memory, allocate_for_cpus(machine, each, Placement::on(node)));
    std::memset(memory->bytes().data(), 1, memory->bytes().size());
    made.loads.push_back(
        std::make_unique<TrafficLoad>(TrafficKernel(*triad), divide(*triad, memory->bytes())));
    made.memory.push_back(std::move(memory));
  }
  return made;
}

// Copies and STREAM run together; each is the other's background load. Errors: absent: there is
// only one core; timed_out: one of them had no CPU.
Result<double> run_with_stream(const DsaHost& host, const DsaThread& thread, const DsaShape& shape,
                               bool of_stream) {
  const Machine& machine = host.machine();
  // The first core submits and keeps the time.
  const std::size_t all = usable_cpus(machine.find(thread.from)).size();
  HEADRACE_TRY(const CpuSet cpus, cores_of(machine, thread.from, std::max<std::size_t>(2, all)));
  BufferPool buffers(machine);
  HEADRACE_TRY(const DsaArea area, copy_area(buffers, thread, 0));
  HEADRACE_TRY(const auto lane, host.open_lane(thread, shape));
  HEADRACE_TRY(const StreamLoads stream,
               stream_loads(machine, thread.from, CpuSet(cpus.begin() + 1, cpus.end())));
  DeviceLoad copies(*lane, thread, area);
  std::vector<Load*> loads{&copies};
  for (const auto& load : stream.loads) loads.push_back(load.get());
  HEADRACE_TRY(const SideBySide both, side_by_side(cpus, loads, kStreamWindow));
  HEADRACE_TRY_STATUS(copies.finish());
  double rate = 0;
  for (std::size_t i = 1; i < both.rates.size(); ++i) rate += both.rates[i];
  return of_stream ? rate : both.rates.front();
}

}  // namespace

WithStream DsaHost::with_stream() const {
  return [this](const DsaThread& thread, const DsaShape& shape, bool of_stream) {
    return run_with_stream(*this, thread, shape, of_stream);
  };
}

Result<DsaHostOptions> find_dsa_host(const Machine& machine, const dsa::Roots& roots) {
  constexpr const char* kInstead = "headrace predict copy --by dsa predicts copies instead";
  if (std::getenv("HEADRACE_DSA_SYSFS") != nullptr) {
    return fail(ErrorCode::unsupported,
                "HEADRACE_DSA_SYSFS is set, whose devices may be software; unset it, or {}",
                kInstead);
  }
  DsaHostOptions options;
  std::string software;
  for (dsa::Device& device : dsa::find_devices(roots)) {
    std::erase_if(device.queues, [&](const dsa::WorkQueue& queue) {
      if (!queue.unusable.empty() || dsa::is_character_device(queue)) return false;
      software = queue.file.string();
      return true;
    });
    const bool usable = device.unusable.empty() &&
                        std::ranges::any_of(device.queues, [](const dsa::WorkQueue& queue) {
                          return queue.unusable.empty();
                        });
    const auto engine = std::ranges::find(machine.engines, device.name, &Engine::name);
    if (usable && engine != machine.engines.end()) options.devices.push_back(std::move(device));
  }
  if (options.devices.empty() && !software.empty()) {
    return fail(ErrorCode::unsupported,
                "{} is no character device: software stands in for the DSA device; {}", software,
                kInstead);
  }
  if (options.devices.empty()) {
    return fail(ErrorCode::unsupported, "no DSA device here that this user may use ({}); {}",
                "headrace doctor says why", kInstead);
  }
  options.open = [](const dsa::WorkQueue& queue, bool by_write) {
    return dsa::open_character_device(queue, {.force_write = by_write});
  };
  return options;
}

}  // namespace headrace::experiment_dsa
