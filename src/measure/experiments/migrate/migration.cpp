// SPDX-License-Identifier: Apache-2.0
#include "measure/experiments/migrate/migration.h"

#include <fmt/core.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>

#include "core/fail.h"
#include "headrace/clock.h"
#include "headrace/copy.h"
#include "measure/experiments/migrate/stalls.h"
#include "measure/instruments/chase.h"
#include "measure/instruments/cpu_share.h"
#include "measure/instruments/ticks.h"
#include "measure/instruments/worker_pool.h"

namespace headrace::experiment_migrate {

using namespace session;

namespace {

void read_all(std::span<const std::byte> bytes) {
  unsigned sum = 0;
  for (std::size_t at = 0; at < bytes.size(); at += kLine) {
    sum += static_cast<unsigned>(bytes[at]);
  }
  asm volatile("" : : "r"(sum));  // keeps the reads
}

// From the start of the first thread to the end of the last.
struct Span {
  Nanoseconds begin{0};
  Nanoseconds end{0};
};

Nanoseconds together(const std::vector<Span>& spans) {
  return std::ranges::max(spans, {}, &Span::end).end -
         std::ranges::min(spans, {}, &Span::begin).begin;
}

class Migration final : public Probe {
 public:
  Migration(MigrateSetting setting, std::span<const std::byte> swept,
            std::unique_ptr<Region> copied, std::unique_ptr<Region> prepared)
      : setting_(std::move(setting)),
        swept_(swept),
        copied_(std::move(copied)),
        prepared_(std::move(prepared)) {}

  Result<Sample> sample() override {
    HEADRACE_TRY_STATUS(reset());
    HEADRACE_TRY(const Nanoseconds copying, copy_to_prepared());
    const std::size_t movers = setting_.movers.size();
    std::vector<Moved> moved(movers);
    std::atomic<std::size_t> moving{movers};
    CpuSet cpus = setting_.movers;
    cpus.insert(cpus.end(), setting_.observer.begin(), setting_.observer.end());
    // A thread that waits for a moving page or for another mover is off its CPU. So the CPU share
    // shows other programs only with a single mover.
    HEADRACE_TRY_STATUS(run_together(cpus, [&](std::size_t i) {
      if (i == movers) return observe(moving);
      const CpuShare own;
      const CpuTime cpu = CpuTime::of_thread();
      moved[i] = move(i);
      moved[i].cpu_seconds = cpu.seconds();
      moved[i].share = movers == 1 ? own.now() : 1;
      --moving;
    }));
    for (const Moved& each : moved) HEADRACE_TRY_STATUS(each.status);
    return sample_of_all(moved, copying);
  }

 private:
  // Result of one mover.
  struct Moved {
    Status status;
    Span span;
    Nanoseconds first{0};  // end of its first batch
    double share = 1;      // share of its time on its CPU
    double cpu_seconds = 0;
  };

  Part part(std::size_t mover) const {
    return part_of(region_->pages(), mover, setting_.movers.size());
  }

  // Makes new pages on the source, filled and no longer in any cache, and removes the pages to copy
  // from the caches.
  Status reset() {
    fresh_.clear();
    fresh_.resize(setting_.movers.size());
    region_.reset();
    HEADRACE_TRY(region_, Region::make(setting_.source(), setting_.bytes, setting_.page));
    HEADRACE_TRY_STATUS(region_->fill(setting_.fillers, setting_.source()));
    const std::size_t fillers = setting_.fillers.size();
    const std::uint64_t lines = swept_.size() / kLine;
    HEADRACE_TRY_STATUS(run_pinned(setting_.fillers, [&](std::size_t i) {
      const Part own = part_of(lines, i, fillers);
      read_all(swept_.subspan(own.first * kLine, own.count * kLine));
    }));
    written_ = 0;
    stalls_.clear();
    return {};
  }

  // Copies as many bytes by the same threads, to existing pages.
  Result<Nanoseconds> copy_to_prepared() {
    std::vector<Span> spans(setting_.movers.size());
    HEADRACE_TRY_STATUS(run_together(setting_.movers, [&](std::size_t i) {
      const std::span<std::byte> to = prepared_->bytes(part(i));
      spans[i].begin = system_clock().now();
      copy_bytes(to.data(), copied_->bytes(part(i)).data(), to.size());
      spans[i].end = system_clock().now();
    }));
    return together(spans);
  }

  Moved move(std::size_t mover) {
    const Part own = part(mover);
    Moved result;
    result.span.begin = system_clock().now();
    if (setting_.method.name == "move_pages") {
      result.status = move_in_batches(own, result);
    } else if (setting_.method.name == "mbind") {
      result.status = bind_pages(region_->bytes(own), setting_.to);
    } else {
      result.status = move_by_copy(own, fresh_[mover]);
    }
    result.span.end = system_clock().now();
    if (result.first == Nanoseconds{0}) result.first = result.span.end;
    return result;
  }

  Status move_in_batches(Part own, Moved& result) {
    const std::uint64_t batch = setting_.method.batch == 0 ? own.count : setting_.method.batch;
    for (std::uint64_t done = 0; done < own.count; done += batch) {
      HEADRACE_TRY_STATUS(
          region_->move({own.first + done, std::min(batch, own.count - done)}, setting_.to));
      if (done == 0) result.first = system_clock().now();
    }
    return {};
  }

  // Copies the part to new pages on the target; for `remap` these replace the old ones. Their
  // allocation is timed, as it is when the kernel moves; freeing them is not.
  Status move_by_copy(Part own, std::unique_ptr<Region>& fresh) {
    HEADRACE_TRY(fresh, Region::make(setting_.target(), setting_.page * own.count, setting_.page));
    const std::span<std::byte> old = region_->bytes(own);
    copy_bytes(fresh->bytes().data(), old.data(), old.size());
    if (setting_.method.name != "remap") return {};
    // MREMAP_DONTUNMAP (Linux 5.7) keeps the new pages' old addresses mapped: otherwise another
    // mapping could take them, and `fresh` would unmap that.
    constexpr int kFlags = MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP;
    if (mremap(fresh->bytes().data(), old.size(), old.size(), kFlags, old.data()) == MAP_FAILED) {
      return fail_errno(errno, "cannot remap the copied pages");
    }
    return {};
  }

  // Accesses the first word of random pages while movers work: increments it if the kernel moves,
  // else only reads it.
  void observe(const std::atomic<std::size_t>& moving) {
    const Ticks& ticks = Ticks::instance();
    Random random(1);
    const std::uint64_t pages = region_->pages();
    const std::uint64_t begin = ticks.now();
    watch(
        stalls_, [&] { return ticks.nanoseconds(ticks.now() - begin); },
        [&] {
          auto* word = reinterpret_cast<volatile std::uint64_t*>(
              region_->bytes().data() + random.below(pages) * setting_.page.value);
          const std::uint64_t value = *word;
          if (!setting_.method.by_kernel) return;
          *word = value + 1;
          ++written_;
        },
        [&] { return moving > 0; });
  }

  // The bytes after the move, in parts.
  std::vector<std::span<std::byte>> moved_bytes() const {
    if (setting_.method.name != "copy") return {region_->bytes()};
    std::vector<std::span<std::byte>> parts;
    for (const auto& fresh : fresh_) parts.push_back(fresh->bytes());
    return parts;
  }

  // Checks that all bytes are unchanged and no write of the observer is lost.
  Status check(const std::vector<std::span<std::byte>>& parts) const {
    constexpr std::uint64_t kOnes = 0x0101010101010101;
    const std::size_t page = setting_.page.value;
    std::uint64_t counted = 0;
    bool same = true;
    for (const std::span<std::byte> part : parts) {
      for (std::uint64_t offset = 0; offset < part.size(); offset += page) {
        const std::byte* at = part.data() + offset;
        std::uint64_t word = 0;
        std::memcpy(&word, at, sizeof word);
        counted += word - kOnes;
        // Equal to itself shifted by one byte, so all bytes after the word are the same.
        same = same && at[8] == std::byte{1} && std::memcmp(at + 8, at + 9, page - 9) == 0;
      }
    }
    if (same && counted == written_) return {};
    return fail(ErrorCode::io, "moving pages lost {}; report it, this must not happen",
                same ? "a write" : "bytes");
  }

  Result<Sample> sample_of_all(const std::vector<Moved>& moved, Nanoseconds copying) const {
    const std::vector<std::span<std::byte>> parts = moved_bytes();
    HEADRACE_TRY_STATUS(check(parts));
    std::vector<Span> spans;
    double cpu_seconds = 0;
    for (const Moved& each : moved) {
      spans.push_back(each.span);
      cpu_seconds += each.cpu_seconds;
    }
    Move result{.asked = setting_.bytes,
                .moved = setting_.bytes,
                .page = setting_.page,
                .time = together(spans),
                .copying = copying,
                .cpu_seconds = cpu_seconds};
    for (const std::span<std::byte> part : parts) {
      HEADRACE_TRY(const std::uint64_t elsewhere, pages_not_on(setting_.to, part));
      result.moved = result.moved - base_page() * elsewhere;
    }
    HEADRACE_TRY(Sample sample, sample_of(result, setting_.to));
    sample.cpu_share = moved.front().share;
    const Nanoseconds first = std::ranges::min(moved, {}, &Moved::first).first -
                              std::ranges::min(spans, {}, &Span::begin).begin;
    sample.details["first_batch_ns"] = static_cast<double>(first.count());
    if (!setting_.observer.empty()) {
      sample.words["observer"] = fmt::format("CPU {}", setting_.observer.front());
    }
    if (setting_.page != base_page()) {
      // The kernel splits huge pages if the target has none free.
      sample.huge_part = BufferPool::huge_part({parts.begin(), parts.end()});
    }
    for (const auto& [name, q] : {std::pair{"stall_p50_ns", 0.5},
                                  {"stall_p99_ns", 0.99},
                                  {"stall_p999_ns", 0.999},
                                  {"stall_max_ns", 1.0}}) {
      if (const auto stall = stalls_.quantile(q)) {
        sample.details[name] = static_cast<double>(*stall);
      }
    }
    return sample;
  }

  const MigrateSetting setting_;
  const std::span<const std::byte> swept_;
  const std::unique_ptr<Region> copied_;        // on the source, never moved
  const std::unique_ptr<Region> prepared_;      // on the target
  std::unique_ptr<Region> region_;              // moved by the sample
  std::vector<std::unique_ptr<Region>> fresh_;  // [mover] its new pages, if it copies
  std::uint64_t written_ = 0;                   // by observe(), read after its end
  Stalls stalls_;
};

}  // namespace

Result<Sample> sample_of(const Move& move, NodeId to) {
  const std::uint64_t stayed = (move.asked - move.moved) / base_page();
  if (move.moved == Bytes{0}) {
    return fail(ErrorCode::exhausted,
                "none of {} pages came to node {}: it is full, or the pages cannot be moved; see "
                "headrace topo for what is free",
                stayed, raw(to));
  }
  const double time = static_cast<double>(move.time.count());
  const double moved = static_cast<double>(move.moved.value);
  const double pages = moved / static_cast<double>(move.page.value);
  const double copying =
      static_cast<double>(move.copying.count()) * moved / static_cast<double>(move.asked.value);
  return Sample{.value = (move.moved / move.time).value,
                .details = {{"per_page_ns", time / pages},
                            {"copy_share", copying / time},
                            {"rest_ns_per_page", (time - copying) / pages},
                            {"cpu_s_per_gb", move.cpu_seconds / moved * 1e9},
                            {"stayed", static_cast<double>(stayed)}}};
}

Result<std::unique_ptr<Probe>> prepare_migration(const MigrateSetting& setting,
                                                 std::span<const std::byte> swept) {
  HEADRACE_TRY(auto copied, Region::make(setting.source(), setting.bytes, setting.page));
  HEADRACE_TRY_STATUS(copied->fill(setting.fillers, setting.source()));
  HEADRACE_TRY(auto prepared, Region::make(setting.target(), setting.bytes, setting.page));
  HEADRACE_TRY_STATUS(prepared->fill(setting.fillers, setting.target()));
  return std::make_unique<Migration>(setting, swept, std::move(copied), std::move(prepared));
}

}  // namespace headrace::experiment_migrate
