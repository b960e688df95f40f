// SPDX-License-Identifier: Apache-2.0
// The shares with the fewest bytes in flight at a given traffic: minimises the sum of b L(b) for a
// given sum of b.
//
// If every b L(b) is convex, equal marginal latency d(bL)/db on all tiers used is sufficient:
// pieces of the curves are filled in the order of their slope. Measured curves are not convex
// everywhere, so two searches are compared. One fills the lower hull instead; its answer may lie
// where hull and curve differ. The other covers every spread on a grid, by min-plus sums without
// listing them. Both answers are then moved to nearby points of the curves.
#include <algorithm>
#include <cmath>
#include <limits>

#include "place/advice/tiers.h"

namespace headrace {
namespace {

// Parts into which a piece of a curve is cut: b L(b) is a parabola there.
constexpr int kCuts = 16;
// The grid of shares (docs/design/advice.md).
constexpr std::size_t kGrid = 200;
// The grid's answer is taken if it is better by this share: never on convex curves.
constexpr double kBetter = 1e-4;
// The least gain of an exchange, and the number of rounds. More rounds only refine the last one.
constexpr double kGain = 1e-6;
constexpr int kSweeps = 8;

struct Corner {
  double bandwidth;
  double bytes;  // in flight
};

// The lower convex hull of b L(b) from 0 to best.
std::vector<Corner> hull(const Tier& tier) {
  std::vector<Corner> corners = {{0, 0}};
  const auto add = [&](double bandwidth) {
    const Corner next{bandwidth, in_flight(tier, bandwidth)};
    while (corners.size() > 1) {
      const Corner &a = corners[corners.size() - 2], &b = corners.back();
      const double slope = (b.bytes - a.bytes) * (next.bandwidth - b.bandwidth);
      if (slope < (next.bytes - b.bytes) * (b.bandwidth - a.bandwidth)) break;
      corners.pop_back();
    }
    corners.push_back(next);
  };
  const auto points = tier.curve.points();
  add(points.front().bandwidth);
  for (std::size_t i = 1; i < points.size(); ++i) {
    const double from = points[i - 1].bandwidth, step = points[i].bandwidth - from;
    for (int cut = 1; cut <= kCuts; ++cut) add(from + step * cut / kCuts);
  }
  return corners;
}

struct Piece {
  double slope;
  std::size_t tier;
  double bandwidth;
};

// The cheapest of all spreads in steps of total / kGrid; empty if none of them fits.
std::vector<double> on_grid(std::span<const Tier> tiers, double total) {
  constexpr double kNever = std::numeric_limits<double>::infinity();
  const double step = total / kGrid;
  std::vector<double> least(kGrid + 1, kNever);  // for the tiers so far, by their steps
  least[0] = 0;
  std::vector<std::vector<std::size_t>> taken;  // by each tier, by all steps so far
  for (const Tier& tier : tiers) {
    const double fitting = std::floor(most_of(tier, total) / step * (1 + 1e-12));
    const auto most = std::min(kGrid, static_cast<std::size_t>(fitting));
    std::vector<double> cost(most + 1);
    for (std::size_t k = 0; k <= most; ++k)
      cost[k] = in_flight(tier, step * static_cast<double>(k));
    std::vector<double> next(kGrid + 1, kNever);
    auto& choice = taken.emplace_back(kGrid + 1);
    for (std::size_t all = 0; all <= kGrid; ++all) {
      for (std::size_t k = 0; k <= std::min(most, all); ++k) {
        if (least[all - k] + cost[k] >= next[all]) continue;
        next[all] = least[all - k] + cost[k];
        choice[all] = k;
      }
    }
    least = std::move(next);
  }
  if (least[kGrid] == kNever) return {};
  std::vector<double> bandwidths(tiers.size());
  std::size_t rest = kGrid;
  for (std::size_t i = tiers.size(); i-- > 0;) {
    bandwidths[i] = step * static_cast<double>(taken[i][rest]);
    rest -= taken[i][rest];
  }
  return bandwidths;
}

// Moves traffic between two tiers while that is cheaper, so that one of them is at a point of its
// curve: a step of the grid past a sharp bend may be expensive.
void settle(std::span<const Tier> tiers, double total, std::vector<double>& each) {
  bool moved = true;
  const auto exchange = [&](std::size_t i, std::size_t j, double wanted) {
    const double to = std::min(wanted, most_of(tiers[i], total));
    const double rest = each[i] + each[j] - to;
    if (rest < 0 || rest > most_of(tiers[j], total)) return;
    const double now = in_flight(tiers[i], each[i]) + in_flight(tiers[j], each[j]);
    if (in_flight(tiers[i], to) + in_flight(tiers[j], rest) >= now * (1 - kGain)) return;
    each[i] = to;
    each[j] = rest;
    moved = true;
  };
  for (int sweep = 0; sweep < kSweeps && moved; ++sweep) {
    moved = false;
    for (std::size_t i = 0; i < tiers.size(); ++i) {
      for (std::size_t j = 0; j < tiers.size(); ++j) {
        if (i == j) continue;
        for (const LoadedPoint& point : tiers[i].curve.points()) exchange(i, j, point.bandwidth);
        exchange(i, j, 0);
      }
    }
  }
}

}  // namespace

std::vector<double> equal_marginal(std::span<const Tier> tiers, double total) {
  std::vector<Piece> pieces;
  for (std::size_t i = 0; i < tiers.size(); ++i) {
    const auto corners = hull(tiers[i]);
    for (std::size_t k = 1; k < corners.size(); ++k) {
      const double width = corners[k].bandwidth - corners[k - 1].bandwidth;
      pieces.push_back({(corners[k].bytes - corners[k - 1].bytes) / width, i, width});
    }
  }
  std::ranges::stable_sort(pieces, {}, &Piece::slope);
  std::vector<double> filled(tiers.size());
  double rest = total;
  for (const Piece& piece : pieces) {
    const double room = most_of(tiers[piece.tier], total) - filled[piece.tier];
    const double taken = std::clamp(std::min(piece.bandwidth, rest), 0.0, std::max(room, 0.0));
    filled[piece.tier] += taken;
    rest -= taken;
  }
  return filled;
}

std::vector<double> cheapest(std::span<const Tier> tiers, double total) {
  auto marginal = equal_marginal(tiers, total);
  auto grid = on_grid(tiers, total);
  settle(tiers, total, marginal);
  if (!grid.empty()) settle(tiers, total, grid);
  const bool better =
      !grid.empty() && in_flight(tiers, grid) < in_flight(tiers, marginal) * (1 - kBetter);
  return shares_of(better ? grid : marginal);
}

}  // namespace headrace
