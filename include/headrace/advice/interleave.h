// SPDX-License-Identifier: Apache-2.0
// Advice: the best spread of a data set over memories under load, and the bandwidth and
// latency that each spread reaches.
//
//     auto advice = headrace::advise_interleave(profile, {.mix = "2:1"});
//     if (!advice) return headrace::Unexpected(advice.error());
//     for (const auto& node : advice->nodes) use(node.node, node.weight);
//
// Not a placement: nothing is allocated or moved. A memory under load answers more slowly than an
// idle one, so the best spread depends on the demand. The model and its alternatives:
// docs/design/advice.md.
//
// Bandwidths are memory traffic, as in measured curves: a store reads its line first, and that read
// is traffic too. Shares are shares of accesses and of pages alike, which is right if all pages are
// used equally. Pure functions. Thread-safe.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/export.h"
#include "headrace/profile.h"
#include "headrace/result.h"
#include "headrace/units.h"

namespace HEADRACE_API headrace {

// Bytes that one access reads: a cache line.
inline constexpr double kLineBytes = 64;

// Lines in flight per thread by default. An assumption: 16 L1 fill buffers are reported for Golden
// Cove (4th-generation Xeon), 12 for the core before it. Other cores differ. Prefetchers add lines,
// and pointer chasing has 1 in flight.
inline constexpr double kLinesPerThread = 16;

// Bounds of a point or a load. A value beyond them is a mistake, and sums would overflow.
inline constexpr double kMostBandwidth = 1e15;  // bytes per second, at least 1
inline constexpr double kMostLatencyNs = 1e9;   // at least 0.001
inline constexpr double kMostLines = 1e9;       // in flight, at least 0.001
// The number of points that a curve keeps.
inline constexpr std::size_t kMostPoints = 200;

struct LoadedPoint {
  double bandwidth = 0;   // bytes per second
  double latency_ns = 0;  // of a load at this bandwidth
};

// Latency against bandwidth of one memory: linear between points, constant below the first.
class LoadedCurve {
 public:
  // Takes points in any order and keeps their lower envelope: the least latency at which this
  // bandwidth or more was reached. If more than kMostPoints remain, keeps points evenly spaced over
  // bandwidth and the logarithm of latency.
  // Errors: invalid: no point; a point outside the bounds above.
  static Result<LoadedCurve> of(std::vector<LoadedPoint> points);

  // The latency at a bandwidth; above best() the latency at best(). Requires: 0 <= bandwidth.
  double latency(double bandwidth) const;
  // The highest bandwidth whose latency is at most `latency_ns`; 0 if there is none.
  double reached(double latency_ns) const;
  double best() const { return points_.back().bandwidth; }
  double idle_ns() const { return points_.front().latency_ns; }
  std::span<const LoadedPoint> points() const { return points_; }

 private:
  std::vector<LoadedPoint> points_;  // rising in both
};

// One memory that may hold a part of the data set.
struct Tier {
  NodeId node;
  LoadedCurve curve;
  double most_share = 1;  // the share of the data set that fits
};

// The load, in one of two forms.
struct Load {
  // Bytes per second, however long each access takes.
  std::optional<double> demand = {};
  // Lines always in flight, however many bytes per second they bring: threads that wait.
  std::optional<double> lines = {};
};

// A spread and its effect.
struct Spread {
  std::vector<double> share;           // per tier, in the order of the tiers; adds up to 1
  double bandwidth = 0;                // bytes per second, all tiers together
  std::optional<double> latency_ns;    // mean; nothing: the demand cannot be met
  bool saturated = false;              // a tier gives all it can; further requests wait there
  std::vector<double> tier_bandwidth;  // per tier
};

// The effect of a given spread. Requires: as many shares as tiers.
// Errors: invalid: shares that are negative or do not add up to 1; a load without exactly one of
// its two forms, or outside the bounds above; exhausted: a share that does not fit.
Result<Spread> predict(std::span<const Tier> tiers, std::span<const double> share,
                       const Load& load);

// The spread of least latency at a demand, or of most bandwidth with lines in flight. Both
// have the same solution: marginal latency d(bL(b))/db is equal on all tiers used.
// Errors: as predict; exhausted: no spread meets the demand, or the data set does not fit.
Result<Spread> best_spread(std::span<const Tier> tiers, const Load& load);

// The spread in which no access gains by using another tier: latency is equal on all tiers
// used. Errors as above.
Result<Spread> equal_latency(std::span<const Tier> tiers, const Load& load);

// The share of latency or bandwidth that integer weights may cost. Among the weights within it, the
// smallest sum is taken. If no weights up to kMaxWeight are within it, the cheapest are taken.
inline constexpr double kWeightLoss = 0.01;

struct Weights {
  std::vector<unsigned> weight;  // per tier, at most kMaxWeight; 0: unused
  Spread spread;                 // the effect of these weights
  // Bandwidth lost (lines) or latency added (demand) compared with `wanted`, as a share. Nothing: a
  // demand is not met.
  std::optional<double> loss;
  double share_error = 0;  // the largest difference of a share
};

// Rounds the best spread to integer weights. weight / sum is at most the most_share of its
// tier. Only if limits that add up to little more than 1 leave no integers are they exceeded, by
// 0.005 if that is enough.
Weights integer_weights(std::span<const Tier> tiers, const Spread& wanted, const Load& load);

// The gain in latency from which a spread counts as better than the first tier alone. It also
// counts as better from the point where the first tier is saturated.
inline constexpr double kFlipGain = 0.01;

struct Flip {
  double bandwidth = 0;  // bytes per second
  double lines = 0;      // in flight at this bandwidth
};
// The least demand at which a spread is better than the first tier alone. nullopt: never; no
// other tier helps.
std::optional<Flip> demand_flip(std::span<const Tier> tiers);

// The share of writes in a mix's memory traffic, and its bytes per byte of the program. Mixes are
// those of the experiments: "read", "write", "nt_write", or a program's ratio of loads to stores:
// "2:1".
struct MixTraffic {
  double write_share = 0;  // share of the memory's traffic
  double bus = 1;          // bytes of memory traffic per byte that the program reads or writes
};
Result<MixTraffic> mix_traffic(std::string_view mix);

struct InterleaveRequest {
  // The node whose CPUs use the data. Default: the first node with CPUs and the most curves.
  std::optional<NodeId> cpu_node = {};
  std::string mix = "read";
  // At most one of these. Both count the program's accesses, without write-backs of the memory:
  // `demand` in bytes read and written, `lines` in flight. Neither: one thread per CPU of the node.
  std::optional<BytesPerSecond> demand = {};
  std::optional<double> lines = {};
  // The size of the data set, if it has to fit. `free`: bytes free per node; default: its capacity.
  std::optional<Bytes> data = {};
  std::map<NodeId, Bytes> free = {};
};

struct AdvisedNode {
  NodeId node;
  NodeKind kind = NodeKind::dram;
  double share = 0;     // in the best spread
  unsigned weight = 0;  // the same as an integer
  double idle_ns = 0;
  double best = 0;  // bytes per second
  double most_share = 1;
  Basis basis = Basis::measured;  // of its curve
  std::string source;             // of its curve; empty: measured by Headrace
};

struct NamedSpread {
  std::string name;  // "best", "weights", "node 0 only", "3:1", "by bandwidth", "equal latency"
  std::optional<Spread> spread;
  std::string reason;  // why there is no spread
};

struct InterleaveAdvice {
  NodeId cpu_node;
  std::string mix;
  MixTraffic traffic;
  Load load;                          // the load of the computation: memory traffic
  std::vector<AdvisedNode> nodes;     // by idle latency
  std::vector<NamedSpread> spreads;   // the best, the weights, then the usual alternatives
  std::optional<double> weight_loss;  // as in Weights
  double share_error = 0;
  std::optional<Flip> flip;
  std::vector<std::string> warnings;
};

// The memories that the advice covers, by idle latency, with their curves for the request's mix.
// Errors as below.
Result<std::vector<Tier>> loaded_tiers(const Profile& profile,
                                       const InterleaveRequest& request = {});

// Computes the advice for a request.
// Errors:
// - absent: no loaded rows, only those of one memory, or none of that mix
// - invalid: a request that makes no sense
// - exhausted: no spread meets the demand, or the data does not fit
Result<InterleaveAdvice> advise_interleave(const Profile& profile,
                                           const InterleaveRequest& request = {});

}  // namespace HEADRACE_API headrace
