#include "measure/dsa_beside.h"

#include <algorithm>
#include <memory>

#include "core/fail.h"
#include "headrace/buffer.h"
#include "headrace/copy.h"
#include "measure/dsa_submitter.h"
#include "measure/loads.h"
#include "measure/side_by_side.h"
#include "measure/team.h"

namespace headrace {
namespace {

constexpr Nanoseconds kBesideStream = std::chrono::milliseconds{100};
constexpr std::uint64_t kCachesOfStream = 4;
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
  DeviceLoad(dsa::Lane& lane, DsaThread thread, const DsaArea& area)
      : bytes_(static_cast<double>(thread.bytes.value)), submitter_(lane, endless(thread), area) {}

  Result<double> step() override {
    const std::size_t before = submitter_.ended();
    for (std::size_t i = 0; i < kPollsPerStep; ++i) HEADRACE_TRY_STATUS(submitter_.step());
    return static_cast<double>(submitter_.ended() - before) * bytes_;
  }
  // Waits for what is under way: its memory may go then.
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
struct StreamTeam {
  std::vector<std::unique_ptr<Buffer>> memory;
  std::vector<std::unique_ptr<TrafficLoad>> loads;
};

Result<StreamTeam> stream_team(const Machine& machine, NodeId node, const CpuSet& cpus) {
  const Mix* triad = find_mix("2:1");
  const Bytes each =
      std::max(cache_to_pass(machine, cpus) * kCachesOfStream / cpus.size() / 4096 * 4096, 32_MiB);
  StreamTeam team;
  for (std::size_t i = 0; i < cpus.size(); ++i) {
    HEADRACE_TRY(auto memory, allocate(machine, each, Placement::on(node)));
    std::ranges::fill(memory->bytes(), std::byte{1});
    team.loads.push_back(std::make_unique<TrafficLoad>(*triad, memory->bytes()));
    team.memory.push_back(std::move(memory));
  }
  return team;
}

}  // namespace

Result<std::vector<double>> copy_by_cores(const Machine& machine, const DsaRow& row,
                                          unsigned rounds) {
  HEADRACE_TRY(const CpuSet cpus, cores_of(machine, *row.from, row.threads));
  HEADRACE_TRY(auto from, allocate(machine, row.bytes, Placement::on(*row.from)));
  HEADRACE_TRY(auto to, allocate(machine, row.bytes, Placement::on(*row.to)));
  std::ranges::fill(from->bytes(), std::byte{1});
  std::ranges::fill(to->bytes(), std::byte{2});
  const std::size_t each = row.bytes.value / cpus.size();
  std::vector<double> rates;
  for (unsigned round = 0; round < rounds; ++round) {
    std::vector<Nanoseconds> begin(cpus.size()), end(cpus.size());
    const auto part = [&](std::size_t i) {
      begin[i] = system_clock().now();
      copy_bytes(to->bytes().data() + i * each, from->bytes().data() + i * each, each,
                 CopyHint::stream);
      end[i] = system_clock().now();
    };
    HEADRACE_TRY([[maybe_unused]] const double share, run_together(cpus, part));
    const Nanoseconds took = std::ranges::max(end) - std::ranges::min(begin);
    rates.push_back((Bytes{each * cpus.size()} / std::max(took, Nanoseconds{1})).value);
  }
  return rates;
}

Result<std::vector<double>> run_beside_stream(const DsaHost& host, const DsaPoint& point,
                                              unsigned rounds) {
  const Machine& machine = host.machine();
  const DsaThread& thread = point.threads.front();
  // The first core hands over and keeps the time.
  const std::size_t all = usable_cpus(machine.find(thread.from)).size();
  HEADRACE_TRY(const CpuSet cpus, cores_of(machine, thread.from, std::max<std::size_t>(2, all)));
  Arenas arenas(machine);
  HEADRACE_TRY(const DsaArea area, copy_area(arenas, thread, 0));
  HEADRACE_TRY(const auto lane, host.open_lane(thread, point.shape));
  HEADRACE_TRY(const StreamTeam team,
               stream_team(machine, thread.from, CpuSet(cpus.begin() + 1, cpus.end())));
  const bool of_stream = point.row.method == "stream";
  std::vector<double> rates;
  for (unsigned round = 0; round < rounds; ++round) {
    DeviceLoad copies(*lane, thread, area);
    std::vector<Load*> loads{&copies};
    for (const auto& load : team.loads) loads.push_back(load.get());
    HEADRACE_TRY(const SideBySide both, side_by_side(cpus, loads, kBesideStream));
    double stream = 0;
    for (std::size_t i = 1; i < both.rates.size(); ++i) stream += both.rates[i];
    rates.push_back(of_stream ? stream : both.rates.front());
    HEADRACE_TRY_STATUS(copies.finish());
  }
  return rates;
}

}  // namespace headrace
