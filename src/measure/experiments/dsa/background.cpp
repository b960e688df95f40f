// SPDX-License-Identifier: Apache-2.0
#include "measure/experiments/dsa/background.h"

#include <algorithm>
#include <cstring>
#include <memory>

#include "core/fail.h"
#include "headrace/buffer.h"
#include "measure/instruments/side_by_side/loads.h"
#include "measure/instruments/side_by_side/side_by_side.h"
#include "measure/instruments/worker_pool.h"
#include "measure/session/experiment.h"
#include "memory/memory.h"

namespace headrace::experiment_dsa {

using namespace instruments;

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

// Copies by a device for as long as others are at work; in bytes.
class DeviceLoad final : public Load {
 public:
  DeviceLoad(dsa::OpenQueue& lane, DsaThread thread, const DsaArea& area)
      : bytes_(static_cast<double>(thread.bytes.value)), submitter_(lane, endless(thread), area) {}

  Result<double> step() override {
    const std::size_t before = submitter_.ended();
    for (std::size_t i = 0; i < kPollsPerStep; ++i) HEADRACE_TRY_STATUS(submitter_.step());
    return static_cast<double>(submitter_.ended() - before) * bytes_;
  }
  // Waits for what is in flight: its memory may go then.
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

}  // namespace

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

}  // namespace headrace::experiment_dsa
