#include <algorithm>
#include <cmath>
#include <numeric>

#include "headrace/advice/interleave.h"
#include "headrace/placement.h"

namespace headrace {
namespace {

// Beyond this many pages per turn and tier, weights are no better by anything one could measure.
constexpr unsigned kMostPerTier = 64;

// `total` pages as near to the shares as whole ones are: what rounding down leaves goes to those
// that lost most.
std::vector<unsigned> rounded(std::span<const double> share, unsigned total) {
  std::vector<unsigned> weight;
  std::vector<std::pair<double, std::size_t>> lost;
  unsigned rest = total;
  for (std::size_t i = 0; i < share.size(); ++i) {
    const double exact = share[i] * total;
    weight.push_back(std::min(static_cast<unsigned>(exact), rest));
    rest -= weight.back();
    lost.emplace_back(weight.back() - exact, i);
  }
  std::ranges::sort(lost);
  for (std::size_t k = 0; rest > 0; ++k, --rest) ++weight[lost[k % lost.size()].second];
  return weight;
}

double loss_of(const Spread& spread, const Spread& wanted, const Load& load) {
  if (load.lines || !spread.latency_ns) return 1 - spread.bandwidth / wanted.bandwidth;
  return *spread.latency_ns / *wanted.latency_ns - 1;
}

// `tiers` with what they hold not counted: rounding may exceed it by less than a per cent.
std::vector<Tier> unlimited(std::span<const Tier> tiers) {
  std::vector<Tier> free(tiers.begin(), tiers.end());
  for (Tier& tier : free) tier.most_share = std::min(1.0, tier.most_share + 0.005);
  return free;
}

}  // namespace

Weights integer_weights(std::span<const Tier> tiers, const Spread& wanted, const Load& load) {
  Weights best;
  const std::vector<Tier> free = unlimited(tiers);
  const auto most = static_cast<unsigned>(tiers.size()) * kMostPerTier;
  for (unsigned total = 1; total <= most; ++total) {
    Weights tried{.weight = rounded(wanted.share, total)};
    if (std::ranges::max(tried.weight) > kMaxWeight) continue;
    std::vector<double> share;
    for (std::size_t i = 0; i < tiers.size(); ++i) {
      share.push_back(static_cast<double>(tried.weight[i]) / total);
      tried.share_error = std::max(tried.share_error, std::abs(share[i] - wanted.share[i]));
    }
    auto spread = predict(free, share, load);
    if (!spread) continue;
    tried.spread = *std::move(spread);
    tried.loss = std::max(0.0, loss_of(tried.spread, wanted, load));
    const bool meets = tried.spread.latency_ns.has_value();
    if (best.weight.empty() ||
        std::pair(!meets, tried.loss) < std::pair(!best.spread.latency_ns.has_value(), best.loss)) {
      best = tried;
    }
    if (meets && tried.loss <= kWeightLoss) break;
  }
  return best;
}

}  // namespace headrace
