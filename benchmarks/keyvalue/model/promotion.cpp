// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/keyvalue/model/promotion.h"

#include <cmath>
#include <vector>

namespace headrace::kv_bench {
namespace {

Bytes whole(double bytes) { return {static_cast<std::uint64_t>(bytes)}; }

struct Pages {
  ChunkPlace place;
  double share = 0;    // of all accesses
  double touched = 0;  // accesses per page and operation
  double slow() const {
    const double all = static_cast<double>((place.resident + place.out).value);
    return all > 0 ? share * static_cast<double>(place.out.value) / all : 0;
  }
};

double slow_share(std::span<const Pages> all, double unseen) {
  double slow = unseen;
  for (const Pages& pages : all) slow += pages.slow();
  return slow;
}

}  // namespace

Promoted promote(std::span<const PageGroup> groups, const PromotionOptions& options,
                 const std::function<double(double)>& speed) {
  const double look = options.look_seconds;
  const double fresh = options.insertions_per_operation * speed(options.slow_part) * look;
  std::vector<Pages> all;
  double unseen = 0, resident = 0;
  for (const PageGroup& group : groups) {
    if (options.insertions_per_operation > 0 && group.age < fresh) {
      unseen += options.slow_part * group.share;
      continue;
    }
    const double bytes = group.pages * options.page_bytes;
    const Bytes out = whole(options.slow_part * bytes);
    all.push_back({{.begin = all.size(), .resident = whole(bytes) - out, .out = out},
                   group.share,
                   group.share / group.pages});
    resident += static_cast<double>((whole(bytes) - out).value);
  }
  TierPolicy policy = options.policy;
  policy.budget = whole(resident);
  Promoted promoted;
  for (unsigned i = 0; i < options.looks; ++i) {
    const double ops = speed(slow_share(all, unseen)) * look;
    std::vector<ChunkPlace> places;
    for (Pages& pages : all) {
      pages.place.heat = 1 - std::exp(-pages.touched * ops);
      places.push_back(pages.place);
    }
    const Bytes allowance = whole(static_cast<double>(policy.per_second.value) * look);
    for (const TierDecision& each : decide(places, policy, allowance)) {
      ChunkPlace& place = all[each.begin].place;
      (each.in ? place.resident : place.out) += each.bytes;
      (each.in ? place.out : place.resident) -= each.bytes;
      if (each.in) promoted.bytes += static_cast<double>(each.bytes.value);
    }
  }
  promoted.slow_share = slow_share(all, unseen);
  return promoted;
}

}  // namespace headrace::kv_bench
