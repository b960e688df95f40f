// How a tier of another process begins: what it needs is found out, and taken.

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <string>

#include "core/fail.h"
#include "core/text/files.h"
#include "memory/memory.h"
#include "tier/process/process_tier.h"

namespace headrace {
namespace {

constexpr std::size_t kTriedPages = 64;
// A random read of an SSD: what was just written is in the swap cache yet, and tells nothing.
constexpr Nanoseconds kReadOfDisk = std::chrono::microseconds{80};

Status check(const ProcessTierOptions& options) {
  const TierPolicy& policy = options.policy;
  if (policy.budget.value == 0) {
    return fail(ErrorCode::invalid, "a budget of no bytes; say how much may stay in memory");
  }
  const auto share = [](double value) { return value >= 0 && value <= 1; };
  if (!share(policy.hysteresis) || !share(policy.least_heat) || !share(options.guard)) {
    return fail(ErrorCode::invalid,
                "hysteresis {}, least heat {} and guard {} are shares: give 0 "
                "to 1",
                policy.hysteresis, policy.least_heat, options.guard);
  }
  if (policy.per_second.value == 0 || options.half_life.count() <= 0) {
    return fail(ErrorCode::invalid, "the rate and the half-life are more than 0");
  }
  const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  if (!std::has_single_bit(options.chunk.value) || options.chunk.value < page) {
    return fail(ErrorCode::invalid, "a chunk of {} is no power of two of pages of {}",
                to_string(options.chunk), to_string(Bytes{page}));
  }
  return {};
}

std::unexpected<Error> no_swap() {
  const auto swaps = read_file("/proc/swaps");
  if (swaps && std::ranges::count(*swaps, '\n') <= 1) {
    return fail(ErrorCode::unsupported,
                "there is no swap, so that cold pages have nowhere to go; make some: a zram device "
                "or a swap file, see swapon(8)");
  }
  return fail(ErrorCode::unsupported,
              "a page that was to go out stayed: swap is full, or the cgroup allows none "
              "(memory.swap.max), or the kernel is older than 5.4");
}

// What a page takes from swap, tried on some of our own.
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
  const auto swaps = read_file("/proc/swaps");
  const bool compressed = swaps && swaps->find("/dev/zram") != swaps->npos;
  return compressed ? each : std::max(each, kReadOfDisk);
}

// Hint faults if they are to be had, or are asked for.
Status choose_source(const ProcessTierOptions& options, const std::filesystem::path& directory,
                     OtherProcess& process, ProcessTierStart& start) {
  if (options.source == ProcessHotness::refaults) {
    start.why = "asked for";
    return {};
  }
  HEADRACE_TRY(const ProcessState state, process.state());
  if (const Status listens = process.listen(); !listens) {
    start.why =
        fmt::format("no hint faults: {}; surveys see what came back", listens.error().message);
  } else if (state.threads < 2) {
    start.why = "no hint faults: the kernel gives none to a process of one thread";
    start.hints_later = [directory] { return HintFaults::take(directory); };
  } else if (auto hints = HintFaults::take(directory); !hints) {
    start.why = "no hint faults: " + hints.error().message;
  } else {
    start.why = hints->note();
    start.hints.emplace(*std::move(hints));
  }
  if (!start.hints && options.source) return fail(ErrorCode::unsupported, "{}", start.why);
  return {};
}

}  // namespace

std::string_view to_string(ProcessHotness source) {
  return source == ProcessHotness::hint_faults ? "hint-faults" : "refaults";
}

Result<std::unique_ptr<ProcessTier>> ProcessTier::open(int pid, const ProcessTierOptions& options) {
  HEADRACE_TRY_STATUS(check(options));
  HEADRACE_TRY(auto process, open_process(pid));
  HEADRACE_TRY(const ProcessState state, process->state());
  // Asked for nothing, the kernel says whether it would.
  HEADRACE_TRY_STATUS(process->page_out({}));
  std::filesystem::path directory = options.directory;
  if (directory.empty()) {
    HEADRACE_TRY(directory, state_directory());
  }
  restore_hint_faults(directory);
  ProcessTierStart start;
  HEADRACE_TRY(ProcessClaim claim, ProcessClaim::take(directory, pid, state.started));
  start.claim.emplace(std::move(claim));
  HEADRACE_TRY(start.of_fault, time_of_fault());
  HEADRACE_TRY_STATUS(choose_source(options, directory, *process, start));
  HEADRACE_TRY(auto inside, Inside::open(std::move(process), options, std::move(start)));
  return std::unique_ptr<ProcessTier>(new ProcessTier(std::move(inside)));
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
  if (!directory.empty()) return restore_hint_faults(directory);
  const auto usual = state_directory();
  return usual && restore_hint_faults(*usual);
}

}  // namespace headrace
