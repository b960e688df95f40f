#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <barrier>
#include <cstring>
#include <memory>

#include "core/fail.h"
#include "headrace/buffer.h"
#include "headrace/clock.h"
#include "headrace/copy.h"
#include "headrace/placement.h"
#include "measure/samples.h"
#include "measure/steps.h"
#include "measure/team.h"

namespace headrace {
namespace {

constexpr unsigned kSamples = 5;
// A pass over four times the caches finds nothing of the last one in them, over twice still little.
constexpr std::uint64_t kCaches = 4;
constexpr std::uint64_t kFewestCaches = 2;
// Long enough to time.
constexpr Bytes kLeast = 64_MiB;
// At most this part of a node for each of the two areas.
constexpr std::uint64_t kPart = 8;

using Slice = std::span<std::byte>;

// 32-byte words (two SSE registers on plain x86-64): wide enough that loads, not instructions,
// set the pace.
using Word = std::uint64_t __attribute__((vector_size(32), may_alias));

void read_pass(Slice, Slice from) {
  const auto* word = reinterpret_cast<const Word*>(from.data());
  const auto* end = word + from.size() / sizeof(Word);
  Word sum[4] = {};
  for (; word + 4 <= end; word += 4) {
    for (int i = 0; i < 4; ++i) sum[i] ^= word[i];
  }
  const Word all = sum[0] ^ sum[1] ^ sum[2] ^ sum[3];
  asm volatile("" : : "m"(all));  // somebody might look at it: the reads have to be done
}

void write_pass(Slice to, Slice) { std::memset(to.data(), 3, to.size()); }

void copy_pass(Slice to, Slice from) { copy_bytes(to.data(), from.data(), to.size()); }

struct Pass {
  const char* what;
  void (*run)(Slice to, Slice from);
};
constexpr Pass kPasses[] = {
    {"memory read", read_pass}, {"memory write", write_pass}, {"memory copy", copy_pass}};

// The part of `all` that thread `i` of `n` works on; whole pages.
Slice slice_of(Slice all, std::size_t i, std::size_t n) {
  const std::size_t part = all.size() / n / 4096 * 4096;
  return all.subspan(i * part, part);
}

// Rates of a pass by all CPUs at once: bytes of all over the time of the slowest.
Result<std::vector<double>> sample_pass(const Pass& pass, const CpuSet& cpus, Slice to,
                                        Slice from) {
  std::vector<std::vector<Nanoseconds>> times(cpus.size(), std::vector<Nanoseconds>(kSamples));
  std::barrier line(static_cast<std::ptrdiff_t>(cpus.size()));
  const auto part = [&](std::size_t i) {
    for (unsigned sample = 0; sample < kSamples; ++sample) {
      line.arrive_and_wait();
      const Nanoseconds start = system_clock().now();
      pass.run(slice_of(to, i, cpus.size()), slice_of(from, i, cpus.size()));
      times[i][sample] = system_clock().now() - start;
    }
  };
  if (auto status = run_pinned(cpus, part); !status) {
    return std::unexpected<Error>(std::move(status).error());
  }
  const Bytes moved{slice_of(to, 0, cpus.size()).size() * cpus.size()};
  std::vector<double> rates;
  for (unsigned sample = 0; sample < kSamples; ++sample) {
    Nanoseconds slowest{1};
    for (const auto& own : times) slowest = std::max(slowest, own[sample]);
    rates.push_back((moved / slowest).value);
  }
  return rates;
}

// What a team of threads on `cpus` works through. exhausted: the node is too small for a figure
// that is not one of the caches.
Result<Bytes> area_for(const Machine& machine, const Node& node, const CpuSet& cpus) {
  const Bytes caches = cache_to_pass(machine, cpus);
  Bytes area = std::max(caches * kCaches, kLeast);
  if (node.capacity) area = std::min(area, Bytes{node.capacity->value / kPart});
  if (area >= caches * kFewestCaches) return area;
  return fail(ErrorCode::exhausted,
              "an eighth of the node is {}, too little to get past {} of caches of {} CPUs",
              to_string(area), to_string(caches), cpus.size());
}

// Who reads, and from where: the node with the CPUs.
struct Reader {
  NodeId host;
  CpuSet cpus;
};

void remember(Machine& machine, NodeId id, NodeId initiator, BytesPerSecond rate) {
  const auto node = std::ranges::find(machine.nodes, id, &Node::id);
  std::erase_if(node->access, [&](const AccessAttributes& old) {
    return old.measured && old.initiator == initiator;
  });
  node->access.push_back({.initiator = initiator,
                          .read_bandwidth = rate,
                          .source = "measure_briefly: memory read",
                          .measured = true});
}

void measure_team(Brief& brief, const Node& node, const Reader& reader, std::size_t threads) {
  const CpuSet cpus(reader.cpus.begin(),
                    reader.cpus.begin() + static_cast<std::ptrdiff_t>(threads));
  const auto areas = [&]() -> Result<std::array<std::unique_ptr<Buffer>, 2>> {
    HEADRACE_TRY(const Bytes bytes, area_for(brief.machine, node, cpus));
    std::array<std::unique_ptr<Buffer>, 2> both;
    for (auto& each : both) {
      HEADRACE_TRY(each, allocate(brief.machine, bytes, Placement::on(node.id)));
    }
    return both;
  }();
  const std::string far =
      reader.host == node.id ? "" : fmt::format(" of node {}", raw(reader.host));
  for (const Pass& pass : kPasses) {
    const RateRow row{.what = pass.what,
                      .where = fmt::format("node {}, {} thread{}{}", raw(node.id), threads,
                                           threads == 1 ? "" : "s", far),
                      .from = node.id,
                      .to = node.id};
    const auto rates = areas ? sample_pass(pass, cpus, (*areas)[0]->bytes(), (*areas)[1]->bytes())
                             : std::unexpected<Error>(areas.error());
    brief.rows.push_back(rates ? row_with(row, *rates) : row_without(row, rates.error().message));
    if (pass.run == read_pass && brief.rows.back().bytes_per_second) {
      remember(brief.machine, node.id, reader.host, *brief.rows.back().bytes_per_second);
    }
  }
}

}  // namespace

std::vector<Step> memory_steps(const Machine& machine) {
  std::vector<Step> steps;
  for (const Node& node : machine.nodes) {
    if (!node.byte_addressable() || node.capacity == Bytes{0}) continue;
    const Node* host = host_of(machine, node);
    const Reader reader{host == nullptr ? node.id : host->id, usable_cpus(host)};
    if (reader.cpus.empty()) continue;
    const auto run = [node, reader](Brief& brief) {
      measure_team(brief, node, reader, 1);
      // Last, since this is the rate to remember.
      if (reader.cpus.size() > 1) measure_team(brief, node, reader, reader.cpus.size());
    };
    const auto left_out = [id = node.id] {
      return RateRow{
          .what = "memory", .where = fmt::format("node {}", raw(id)), .from = id, .to = id};
    };
    steps.push_back({run, left_out});
  }
  return steps;
}

}  // namespace headrace
