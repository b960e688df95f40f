// SPDX-License-Identifier: Apache-2.0
// Opens a tier of another process: checks and acquires what it needs.

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <string>

#include "core/check.h"
#include "core/fail.h"
#include "core/text/files.h"
#include "core/thread.h"
#include "memory/memory.h"
#include "tier/page/slow_memory.h"
#include "tier/process/process_nodes.h"
#include "tier/process/process_tier.h"
#include "tier/process/swap_device.h"

namespace headrace {
namespace {

constexpr Nanoseconds kFirstHalfLife = std::chrono::minutes{2};
constexpr std::size_t kTriedPages = 64;
// A random read of an SSD, for devices that cannot be read directly.
constexpr Nanoseconds kReadOfDisk = std::chrono::microseconds{80};

Status check(const ProcessTierOptions& options) {
  HEADRACE_TRY_STATUS(PageTier::Inside::check({.policy = options.policy,
                                               .fast = options.fast,
                                               .slow = options.slow,
                                               .half_life = half_life_of(options)}));
  if (!(options.guard >= 0 && options.guard <= 1)) {
    return fail(ErrorCode::invalid, "guard {} is no share: give 0 to 1", options.guard);
  }
  if (const bool nodes = !options.fast.empty();
      options.source && options.source != ProcessHotness::damon &&
      nodes != (options.source == ProcessHotness::referenced)) {
    return fail(ErrorCode::invalid, "{} tells what is hot {} only; leave the source out",
                to_string(*options.source), nodes ? "beside swap" : "between nodes");
  }
  if (options.hold && !options.fast.empty()) {
    return fail(ErrorCode::invalid,
                "a cgroup limits memory on all nodes together, and holds beside swap only; leave "
                "that out, or take swap for the slow memory");
  }
  if (!std::has_single_bit(options.chunk.value)) {
    return fail(ErrorCode::invalid, "a chunk of {} is no power of two of bytes",
                to_string(options.chunk));
  }
  return {};
}

// Time to read a page from the slowest swap device in use. New pages cannot measure it: they are
// still in the swap cache.
Nanoseconds time_from_disk() {
  Nanoseconds longest{};
  const auto swaps = read_file("/proc/swaps");
  if (!swaps) return longest;
  for (const SwapDevice& each : next_in_turn(parse_swaps(*swaps))) {
    if (!each.compressed()) longest = std::max(longest, time_of_read(each).value_or(kReadOfDisk));
  }
  return longest;
}

// Time to read a page from swap, measured with pages of this process.
Result<Nanoseconds> time_of_fault() {
  const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  auto mapped = MappedMemory::make({kTriedPages * page}, {1}, {1}, PROT_READ | PROT_WRITE);
  if (!mapped) return fail_errno(mapped.error(), "cannot map memory");
  std::byte* const memory = mapped->memory();
  for (std::size_t i = 0; i < kTriedPages * page; ++i) memory[i] = static_cast<std::byte>(i * i);
  (void)::madvise(memory, kTriedPages * page, MADV_PAGEOUT);
  std::array<std::uint64_t, kTriedPages> entries{};
  const OwnDescriptor pagemap(::open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC));
  const auto at = static_cast<off_t>(reinterpret_cast<std::uintptr_t>(memory) / page * 8);
  if (::pread(pagemap.get(), entries.data(), sizeof entries, at) != sizeof entries) {
    return fail_errno(errno, "cannot read /proc/self/pagemap");
  }
  std::int64_t out = 0;
  const Nanoseconds began = system_clock().now();
  for (std::size_t i = 0; i < kTriedPages; ++i) {
    if ((entries[i] & kPageSwapped) == 0) continue;
    *static_cast<volatile std::byte*>(&memory[i * page]) = std::byte{1};
    ++out;
  }
  if (out == 0) return no_swap();
  const Nanoseconds each = (system_clock().now() - began) / out;
  return std::max(each, time_from_disk());
}

// The kernel's own balancing between nodes, as text; "": none.
std::string note_on_balancing() {
  const std::string mode = first_line("/proc/sys/kernel/numa_balancing");
  if (mode.empty() || (mode.back() - '0') % 2 == 0) return {};
  return "; kernel.numa_balancing pulls what is hot to the node of the CPU besides, out of HBM "
         "too: set it to 0 or 2";
}

Status watch(int pid, const std::filesystem::path& directory, ProcessTierStart& start) {
  HEADRACE_TRY(start.sampler, watch_by_damon(pid, directory));
  start.why = "a kdamond is set up for as long as this runs";
  return {};
}

Result<std::filesystem::path> directory_of(const ProcessTierOptions& options) {
  if (!options.directory.empty()) return options.directory;
  return state_directory();
}

// Hint faults only if requested or already on: they are one setting of the host, and all other
// programs pay a part of their cost.
Status choose_source(int pid, const ProcessTierOptions& options,
                     const std::filesystem::path& directory, OtherProcess& process,
                     ProcessTierStart& start) {
  if (options.source == ProcessHotness::refaults) {
    start.why = "asked for";
    return {};
  }
  if (options.source == ProcessHotness::damon) return watch(pid, directory, start);
  HEADRACE_TRY(const ProcessState state, process.state());
  const auto may_set = options.source ? HintFaults::Set::if_need_be : HintFaults::Set::never;
  const auto take = [directory, may_set] { return HintFaults::take(directory, may_set); };
  if (const Status listens = process.listen(); !listens) {
    start.why =
        fmt::format("no hint faults: {}; surveys see what came back", listens.error().message);
    if (options.source) return fail(ErrorCode::unsupported, "{}", start.why);
  } else if (state.threads < 2) {
    start.why = "no hint faults: the kernel gives none to a process of one thread";
    start.hints_later = take;
  } else if (auto hints = take(); hints) {
    start.why = hints->note();
    start.hints.emplace(*std::move(hints));
  } else {
    start.why = "no hint faults: " + hints.error().message;
    if (options.source) return fail(ErrorCode::unsupported, "{}", start.why);
  }
  return {};
}

}  // namespace

Nanoseconds half_life_of(const ProcessTierOptions& options) {
  return options.half_life == Nanoseconds{0} ? kFirstHalfLife : options.half_life;
}

Bytes chunk_for(Bytes memory, Bytes chunk, std::uint64_t most) {
  while (memory / chunk > most) chunk = chunk * 2;
  return chunk;
}

std::string_view to_string(ProcessHotness source) {
  switch (source) {
    case ProcessHotness::hint_faults: return "hint-faults";
    case ProcessHotness::refaults: return "refaults";
    case ProcessHotness::referenced: return "referenced";
    case ProcessHotness::damon: return "damon";
  }
  CHECK(false);
  return {};
}

Result<std::unique_ptr<ProcessTier>> ProcessTier::open(int pid, const ProcessTierOptions& asked) {
  HEADRACE_TRY_STATUS(check(asked));
  ProcessTierOptions options = asked;
  options.chunk = std::max(options.chunk, base_page());
  HEADRACE_TRY(auto process, open_process(pid));
  ProcessTierStart start;
  if (!options.fast.empty()) {
    HEADRACE_TRY_STATUS(try_nodes(pid, options, *process));
    restore_after_kill(options.directory);
    if (options.source == ProcessHotness::damon) {
      HEADRACE_TRY(const auto directory, directory_of(options));
      HEADRACE_TRY_STATUS(watch(pid, directory, start));
    }
    start.why += note_on_balancing();
    HEADRACE_TRY(auto inside,
                 ProcessNodes::open(std::move(process), kernel_of(pid), options, std::move(start)));
    return std::unique_ptr<ProcessTier>(new ProcessTier(std::move(inside)));
  }
  // With an empty list, the kernel only checks permission.
  HEADRACE_TRY_STATUS(process->page_out({}));
  HEADRACE_TRY(const auto directory, directory_of(options));
  restore_after_kill(directory);
  HEADRACE_TRY(start.of_fault, time_of_fault());
  HEADRACE_TRY_STATUS(choose_source(pid, options, directory, *process, start));
  if (options.hold) {
    HEADRACE_TRY(auto hold, GroupHold::take(pid, directory));
    start.why += "; " + hold.note();
    start.hold.emplace(std::move(hold));
  }
  HEADRACE_TRY(auto inside, ProcessSwap::open(std::move(process), options, std::move(start)));
  return std::unique_ptr<ProcessTier>(new ProcessTier(std::move(inside)));
}

ProcessTier::Inside::Inside(std::unique_ptr<OtherProcess> process,
                            const ProcessTierOptions& options, ProcessTierStart start,
                            const ProcessState& state)
    : process_(std::move(process)),
      options_(options),
      start_(std::move(start)),
      first_(state),
      clock_(options.clock != nullptr ? *options.clock : system_clock()),
      begun_(clock_.now()) {}

Status ProcessTier::Inside::read_state() {
  HEADRACE_TRY(state_, process_->state());
  if (state_.started != first_.started) {
    return fail(ErrorCode::absent, "the process has ended; its number is another's now");
  }
  // The process has no memory any more.
  if (state_.start_code == 0) return fail(ErrorCode::absent, "the process has ended");
  if (state_.start_code != first_.start_code) {
    return fail(ErrorCode::absent, "the process has become another program (exec)");
  }
  totals_.elapsed = now();
  totals_.program_cpu = state_.cpu - first_.cpu;
  totals_.major_faults = state_.major_faults - first_.major_faults;
  return {};
}

Result<ProcessTierStep> ProcessTier::Inside::step() {
  HEADRACE_TRY_STATUS(origin_.check("the tier of a process"));
  if (ended_) return Unexpected(*ended_);
  step_ = {.resident = step_.resident, .out = step_.out};
  const Nanoseconds mover = totals_.mover_cpu;
  const Nanoseconds began = thread_cpu();
  Status done = read_state();
  if (done) done = work();
  totals_.tracker_cpu += thread_cpu() - began - (totals_.mover_cpu - mover);
  if (start_.sampler != nullptr) {
    const Nanoseconds used = start_.sampler->cpu();
    totals_.tracker_cpu += used - std::exchange(sampler_cpu_, used);
  }
  if (done) return step_;
  // A failure in the middle of a step mostly means that the process has just ended.
  if (const Status same = read_state(); !same) done = same;
  failed();
  if (done.error().code == ErrorCode::absent) ended_ = done.error();
  return Unexpected(done.error());
}

ProcessTier::ProcessTier(std::unique_ptr<Inside> inside) : inside_(std::move(inside)) {}
ProcessTier::~ProcessTier() {
  if (inside_ != nullptr && !inside_->here()) abandon(std::move(inside_));
}
ProcessHotness ProcessTier::source() const { return inside_->source(); }
const std::string& ProcessTier::why() const { return inside_->why(); }
Result<ProcessTierStep> ProcessTier::step() { return inside_->step(); }
std::vector<TierDecision> ProcessTier::decisions() const { return inside_->decisions(); }
ProcessTierTotals ProcessTier::totals() const { return inside_->totals(); }

bool restore_after_kill(const std::filesystem::path& directory) {
  const auto usual = directory.empty() ? state_directory() : directory;
  if (!usual) return false;
  const bool hints = restore_hint_faults(*usual);
  const bool groups = restore_groups(*usual);
  return restore_damon(*usual) || groups || hints;
}

}  // namespace headrace
