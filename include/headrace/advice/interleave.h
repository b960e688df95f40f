// SPDX-License-Identifier: Apache-2.0
// Advice: how a data set is best spread over memories while programs load them, and what each
// spread leads to.
//
// Not a placement: nothing is allocated or moved. What is idle is not what is loaded: a memory
// answers the slower the more is asked of it, so the best spread depends on the demand. The model
// and what was chosen against: docs/design/advice.md.
//
// Bandwidths are those of the memory, as curves were measured: a store reads its line first, which
// is traffic too. Shares are of accesses and of pages alike, which is right where all pages are
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

// What one access brings: a line of 64 bytes.
inline constexpr double kLineBytes = 64;

// What a thread keeps in flight where nobody says. An assumption: so many L1 fill buffers are
// reported of Golden Cove (Xeon of the 4th generation), 12 of the core before it; other cores have
// others, prefetchers add to it, and what chases pointers has 1.
inline constexpr double kLinesPerThread = 16;

// What is taken for a point or a load; beyond is a mistake, and sums would overflow.
inline constexpr double kMostBandwidth = 1e15;  // bytes per second, 1 at least
inline constexpr double kMostLatencyNs = 1e9;   // 0.001 at least
inline constexpr double kMostLines = 1e9;       // in flight, 0.001 at least
// Points of a curve.
inline constexpr std::size_t kMostPoints = 200;

struct LoadedPoint {
  double bandwidth = 0;   // bytes per second
  double latency_ns = 0;  // of a load meanwhile
};

// Latency against bandwidth of one memory: lines between points, constant below the first.
class LoadedCurve {
 public:
  // From points in any order: their lower envelope, the least latency at which so much bandwidth or
  // more was reached. Of more than kMostPoints those are kept that are spread evenly over bandwidth
  // and the logarithm of latency. invalid: no point, or one outside of the bounds above.
  static Result<LoadedCurve> of(std::vector<LoadedPoint> points);

  // The latency at a bandwidth; Requires: 0 <= bandwidth. Above best() that of best().
  double latency(double bandwidth) const;
  // The most bandwidth at which the latency is not above this; 0 if it always is.
  double reached(double latency_ns) const;
  double best() const { return points_.back().bandwidth; }
  double idle_ns() const { return points_.front().latency_ns; }
  std::span<const LoadedPoint> points() const { return points_; }

 private:
  std::vector<LoadedPoint> points_;  // rising in both
};

// One memory that may hold a part.
struct Tier {
  NodeId node;
  LoadedCurve curve;
  double most_share = 1;  // of the data set: what fits
};

// How much is asked, in one of two ways.
struct Load {
  // So many bytes per second, however long each takes.
  std::optional<double> demand = {};
  // So many lines in flight all the time, however many bytes that brings: threads that wait.
  std::optional<double> lines = {};
};

// What a spread leads to.
struct Spread {
  std::vector<double> share;           // of the tiers, in their order; adds up to 1
  double bandwidth = 0;                // bytes per second, of all tiers
  std::optional<double> latency_ns;    // mean; nothing: the demand cannot be met
  bool saturated = false;              // a tier gives all it can; what else waits, waits there
  std::vector<double> tier_bandwidth;  // of each tier
};

// Requires: shares as many as tiers. invalid: shares that are negative or do not add up to 1; a
// load without one of its two, or outside of the bounds above. exhausted: a share that does not
// fit.
Result<Spread> predict(std::span<const Tier> tiers, std::span<const double> share,
                       const Load& load);

// The spread of least latency at a demand; of most bandwidth with lines in flight, which is the
// same: marginal latency d(bL(b))/db is equal on all tiers used. exhausted: no spread meets the
// demand, or the data set does not fit.
Result<Spread> best_spread(std::span<const Tier> tiers, const Load& load);

// Where no access gains by going elsewhere: latency is equal on all tiers used. Errors as above.
Result<Spread> equal_latency(std::span<const Tier> tiers, const Load& load);

// The integer weights with the least sum that cost at most this share of latency or bandwidth;
// where none up to kMaxWeight do, those that cost least.
inline constexpr double kWeightLoss = 0.01;

struct Weights {
  std::vector<unsigned> weight;  // of the tiers, at most kMaxWeight; 0: unused
  Spread spread;                 // what they lead to
  // Less bandwidth (lines) or more latency (demand) than `wanted`; nothing: a demand is not met.
  std::optional<double> loss;
  double share_error = 0;  // the largest difference of a share
};

// Rounded from the best spread. weight / sum is at most the most_share of its tier, unless limits
// that add up to little more than 1 leave no integers: then they exceed it, by 0.005 if that is
// enough.
Weights integer_weights(std::span<const Tier> tiers, const Spread& wanted, const Load& load);

// The least demand at which a spread is better than the first tier alone, by kFlipGain of latency
// or since that tier gives no more.
inline constexpr double kFlipGain = 0.01;

struct Flip {
  double bandwidth = 0;  // bytes per second
  double lines = 0;      // in flight there
};
// nullopt: never, for want of another tier that helps.
std::optional<Flip> demand_flip(std::span<const Tier> tiers);

// What part of the traffic of a mix the memory writes and how much it is. Mixes are those of
// experiments: "read", "write", "nt_write" or loads to stores of a program, "2:1".
struct MixTraffic {
  double write_share = 0;  // of the memory's traffic
  double bus = 1;          // bytes of memory traffic per byte that the program reads or writes
};
Result<MixTraffic> mix_traffic(std::string_view mix);

struct InterleaveRequest {
  // Whose CPUs use the data; by default the node with CPUs that has most curves, the first of them.
  std::optional<NodeId> cpu_node = {};
  std::string mix = "read";
  // One of these, both of the program, without what the memory writes back: a demand (bytes read
  // and written), or lines in flight. Neither: a thread for each CPU of the node.
  std::optional<BytesPerSecond> demand = {};
  std::optional<double> lines = {};
  // What is spread, where it has to fit; and what is free, by default the capacity of a node.
  std::optional<Bytes> data = {};
  std::map<NodeId, Bytes> free = {};
};

struct AdvisedNode {
  NodeId node;
  NodeKind kind = NodeKind::dram;
  double share = 0;     // the best one
  unsigned weight = 0;  // and as an integer
  double idle_ns = 0;
  double best = 0;  // bytes per second
  double most_share = 1;
  Basis basis = Basis::measured;  // of its curve
  std::string source;             // of its curve; empty: measured by Headrace
};

struct NamedSpread {
  std::string name;  // "best", "weights", "node 0 only", "3:1", "by bandwidth", "equal latency"
  std::optional<Spread> spread;
  std::string reason;  // why there is none
};

struct InterleaveAdvice {
  NodeId cpu_node;
  std::string mix;
  MixTraffic traffic;
  Load load;                          // as computed with: traffic of the memory
  std::vector<AdvisedNode> nodes;     // by idle latency
  std::vector<NamedSpread> spreads;   // the best, the weights, then what else one might do
  std::optional<double> weight_loss;  // as Weights has it
  double share_error = 0;
  std::optional<Flip> flip;
  std::vector<std::string> warnings;
};

// The memories that advice is about, by idle latency, with the curves of a request's mix. Errors as
// below.
Result<std::vector<Tier>> loaded_tiers(const Profile& profile,
                                       const InterleaveRequest& request = {});

// absent: no loaded rows, or of one memory only, or not of that mix; invalid: a request that makes
// no sense; exhausted: a demand that no spread meets, data that does not fit.
Result<InterleaveAdvice> advise_interleave(const Profile& profile,
                                           const InterleaveRequest& request = {});

}  // namespace HEADRACE_API headrace
