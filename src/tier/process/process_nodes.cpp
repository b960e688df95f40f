// SPDX-License-Identifier: Apache-2.0
#include "tier/process/process_nodes.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "core/fail.h"
#include "core/text/files.h"
#include "core/thread.h"
#include "headrace/cpus.h"
#include "host/files.h"
#include "memory/memory.h"

namespace headrace {
namespace {

constexpr std::uint64_t kMostFound = 64 << 10;  // finding each takes a system call
constexpr Nanoseconds kLeastBetweenLooks = std::chrono::seconds{1};
// The most that the first write to a page after a look costs the program: one fault.
constexpr Nanoseconds kOfWrite = std::chrono::microseconds{1};

class KernelOfProcess final : public Kernel {
 public:
  explicit KernelOfProcess(int pid)
      : pid_(pid), self_(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0))) {}
  // A step may take long, and move_pages identifies a process only by number.
  std::int64_t move_pages(std::span<void* const> pages, const int* nodes, int* status) override {
    if (self_.get() < 0 || has_ended(self_.get())) return -ESRCH;
    return headrace::move_pages(pages, nodes, status, pid_);
  }

 private:
  const int pid_;
  const OwnDescriptor self_;  // a pidfd
};

Bytes written(const MappingUse& mapping) {
  Bytes sum;
  for (const TrackedRange& each : mapping.written) sum += each.bytes();
  return sum;
}

// The nodes that a process's cpuset allows.
CpuSet allowed_nodes(int pid) {
  const std::string status = read_file(fmt::format("/proc/{}/status", pid)).value_or(std::string());
  const auto nodes = parse_cpu_list(text_after(status, "Mems_allowed_list:\t").value_or(""));
  return nodes ? *nodes : CpuSet{};
}

}  // namespace

HotnessSample sample_of(std::span<const MappingUse> mappings, Nanoseconds covered) {
  HotnessSample sample{.covered = covered};
  for (const MappingUse& mapping : mappings) {
    const Bytes all = written(mapping);
    const Bytes read = mapping.touched - std::min(all, mapping.touched);
    const Bytes unwritten = mapping.present - std::min(all, mapping.present);
    const double share =
        read < unwritten ? static_cast<double>(read.value) / static_cast<double>(unwritten.value)
                         : (read.value > 0 ? 1 : 0);
    const auto add = [&](std::uintptr_t begin, std::uintptr_t end, double touched) {
      const double bytes = static_cast<double>(end - begin) * touched;
      if (bytes >= 1) {
        sample.touches.push_back(touch_of(begin, end, {static_cast<std::uint64_t>(bytes)}));
      }
    };
    std::uintptr_t at = mapping.begin;
    for (const TrackedRange& each : mapping.written) {
      add(at, each.begin, share);
      add(each.begin, each.end, 1);
      at = each.end;
    }
    add(at, mapping.end, share);
  }
  return sample;
}

HotnessSample sample_of(std::span<const SampledRegion> regions, Nanoseconds covered) {
  HotnessSample sample{.covered = covered};
  for (const SampledRegion& each : regions) {
    const auto touched =
        static_cast<std::uint64_t>(static_cast<double>(each.bytes().value) * each.share);
    if (touched > 0) sample.touches.push_back(touch_of(each.begin, each.end, {touched}));
  }
  return sample;
}

std::unique_ptr<Kernel> kernel_of(int pid) { return std::make_unique<KernelOfProcess>(pid); }

Status try_nodes(int pid, const ProcessTierOptions& options, OtherProcess& process) {
  // With an empty list, the kernel only checks permission.
  const std::int64_t asked = KernelOfProcess(pid).move_pages({}, nullptr, nullptr);
  if (asked == -ESRCH) return fail(ErrorCode::absent, "process {} has ended", pid);
  if (asked == -EPERM || asked == -EACCES) {
    return fail(ErrorCode::denied,
                "the kernel refuses to move pages of process {}; ask as its user, or as root "
                "(CAP_SYS_PTRACE, CAP_SYS_NICE)",
                pid);
  }
  if (asked < 0) return fail_errno(static_cast<int>(-asked), "move_pages");
  // Tries it with a page of this process.
  HEADRACE_TRY(const auto tried, open_nodes(system_kernel(), options.fast, options.slow));
  const CpuSet allowed = allowed_nodes(pid);
  for (const auto* nodes : {&options.fast, &options.slow}) {
    for (const NodeId node : *nodes) {
      if (allowed.empty() || std::ranges::find(allowed, raw(node)) != allowed.end()) continue;
      return fail(ErrorCode::denied,
                  "process {} may not use node {} (its cpuset has {}); name others, or widen its "
                  "cpuset.mems",
                  pid, raw(node), to_string(allowed));
    }
  }
  return options.source == ProcessHotness::damon ? Status{} : process.forget_use();
}

ProcessNodes::ProcessNodes(std::unique_ptr<OtherProcess> process, std::unique_ptr<Kernel> kernel,
                           const ProcessTierOptions& options, ProcessTierStart start,
                           const ProcessState& state)
    : Inside(std::move(process), options, std::move(start), state), kernel_(std::move(kernel)) {}

Result<std::unique_ptr<ProcessNodes>> ProcessNodes::open(std::unique_ptr<OtherProcess> process,
                                                         std::unique_ptr<Kernel> kernel,
                                                         const ProcessTierOptions& options,
                                                         ProcessTierStart start) {
  HEADRACE_TRY(const ProcessState state, process->state());
  ProcessTierOptions with = options;
  with.chunk =
      chunk_for(std::max(state.resident * 2, options.policy.budget * 2), options.chunk, kMostFound);
  if (start.sampler == nullptr) {
    start.why =
        (process->tells_written()
             ? "accessed bits of each mapping, and its written pages"
             : "accessed bits of each mapping; this kernel does not tell which of its pages "
               "are written") +
        start.why;
  }
  std::unique_ptr<ProcessNodes> inside(
      new ProcessNodes(std::move(process), std::move(kernel), with, std::move(start), state));
  HEADRACE_TRY(inside->engine_,
               PageTier::Inside::open({.policy = with.policy,
                                       .fast = with.fast,
                                       .slow = with.slow,
                                       .chunk = with.chunk,
                                       .half_life = half_life_of(with),
                                       .least_interval = {},
                                       .clock = with.clock},
                                      *inside->kernel_,
                                      nodes_untried(*inside->kernel_, with.fast, with.slow)));
  return inside;
}

// Looks take a small share of one CPU's time, however long each takes.
bool ProcessNodes::due() const {
  if (!looked_) return true;
  const Nanoseconds since = now() - *looked_;
  const double share = options_.guard > 0 ? options_.guard : 1;
  return since >= kLeastBetweenLooks && seconds(cost_) <= seconds(since) * share;
}

Status ProcessNodes::move(std::span<const MappingUse> mappings, const HotnessSample& sample) {
  std::vector<PageTier::Inside::Managed> ranges;
  const Bytes whole = std::max(kernel_->huge_page(), options_.chunk);
  for (const MappingUse& each : mappings) {
    const Bytes chunk = each.huge ? whole : options_.chunk;
    ranges.push_back({{each.begin, each.end}, chunk.value});
  }
  const PageTier::Inside::Moved before = engine_->moved();
  engine_->see(std::move(ranges), sample);
  HEADRACE_TRY(const TierStep done, engine_->step());
  const PageTier::Inside::Moved after = engine_->moved();
  step_.resident = done.resident;
  step_.out = done.out;
  step_.refused = done.refused + done.backed_off;
  step_.went_out = after.out - before.out;
  step_.came_in = after.in - before.in;
  step_.surveyed = true;
  totals_.went_out = after.out;
  totals_.came_in = after.in;
  totals_.mover_cpu = after.cpu;
  return {};
}

Status ProcessNodes::look() {
  const Nanoseconds began = thread_cpu();
  HEADRACE_TRY(const std::vector<MappingUse> mappings, process_->use());
  // The first look only begins: before it nothing is known.
  const Nanoseconds covered = looked_ ? now() - *looked_ : Nanoseconds{};
  if (start_.sampler != nullptr) {
    HEADRACE_TRY(const auto regions, start_.sampler->look());
    if (looked_) HEADRACE_TRY_STATUS(move(mappings, sample_of(regions, covered)));
    looked_ = now();
    cost_ = thread_cpu() - began;
    return {};
  }
  if (looked_) HEADRACE_TRY_STATUS(move(mappings, sample_of(mappings, covered)));
  // A move may count as a touch, so it comes before the reset.
  HEADRACE_TRY_STATUS(process_->forget_use());
  looked_ = now();
  const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  cost_ = thread_cpu() - began;
  for (const MappingUse& each : mappings) {
    cost_ += kOfWrite * static_cast<std::int64_t>(written(each) / Bytes{page});
  }
  return {};
}

}  // namespace headrace
