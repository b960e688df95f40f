// SPDX-License-Identifier: Apache-2.0
// Decides which chunks to demote and which to promote. Pure.

#include <fmt/core.h>

#include <algorithm>

#include "core/fail.h"
#include "headrace/tier/page_tier.h"

namespace headrace {
namespace {

class Decider {
 public:
  Decider(std::span<const ChunkPlace> chunks, const TierPolicy& policy, Bytes allowance)
      : policy_(policy), left_(allowance) {
    for (const ChunkPlace& chunk : chunks) {
      resident_ += chunk.resident;
      if (chunk.backed_off) continue;
      if (chunk.resident.value > 0) coldest_.push_back(&chunk);
      if (chunk.out.value > 0 && chunk.heat >= policy.least_heat) hottest_.push_back(&chunk);
    }
    std::ranges::sort(coldest_, colder);
    std::ranges::sort(hottest_, [&](const ChunkPlace* a, const ChunkPlace* b) {
      return a->heat != b->heat ? a->heat > b->heat : a->begin < b->begin;
    });
  }

  std::vector<TierDecision> run() {
    fit_budget();
    for (const ChunkPlace* chunk : hottest_) {
      if (!bring_in(*chunk)) break;
    }
    return std::move(decisions_);
  }

 private:
  static bool colder(const ChunkPlace* a, const ChunkPlace* b) {
    return a->heat != b->heat ? a->heat < b->heat : a->begin < b->begin;
  }

  // Whether the chunk's resident part is to be demoted.
  bool goes_out(const ChunkPlace& chunk) const {
    return chunk.resident.value > 0 &&
           (next_ == coldest_.size() || colder(&chunk, coldest_[next_]));
  }

  void fit_budget() {
    for (; resident_ > policy_.budget && next_ < coldest_.size(); ++next_) {
      const ChunkPlace& chunk = *coldest_[next_];
      if (chunk.resident > left_) return;
      out(chunk, fmt::format("{} over the budget: the coldest goes",
                             to_string(resident_ - policy_.budget)));
    }
  }

  // False: colder chunks need not be tried.
  bool bring_in(const ChunkPlace& chunk) {
    if (goes_out(chunk)) return true;
    std::size_t victims = next_;
    Bytes room = policy_.budget > resident_ ? policy_.budget - resident_ : Bytes{};
    Bytes moved = chunk.out;
    while (room < chunk.out) {
      if (victims == coldest_.size()) return true;
      const ChunkPlace& victim = *coldest_[victims];
      if (victim.heat + policy_.hysteresis >= chunk.heat) return true;
      room += victim.resident;
      moved += victim.resident;
      ++victims;
    }
    if (moved > left_) return false;
    for (; next_ < victims; ++next_) {
      out(*coldest_[next_], fmt::format("makes room for one of heat {:.2f}", chunk.heat));
    }
    resident_ += chunk.out;
    move(chunk, true, chunk.out, "hot, and within the budget");
    return true;
  }

  void out(const ChunkPlace& chunk, std::string why) {
    resident_ -= chunk.resident;
    move(chunk, false, chunk.resident, std::move(why));
  }
  void move(const ChunkPlace& chunk, bool in, Bytes bytes, std::string why) {
    left_ -= bytes;
    decisions_.push_back({chunk.begin, in, bytes, chunk.heat, std::move(why)});
  }

  const TierPolicy& policy_;
  Bytes left_;
  Bytes resident_;
  std::vector<const ChunkPlace*> coldest_;
  std::size_t next_ = 0;  // chunks before this one in coldest_ are demoted
  std::vector<const ChunkPlace*> hottest_;
  std::vector<TierDecision> decisions_;
};

}  // namespace

std::vector<TierDecision> decide(std::span<const ChunkPlace> chunks, const TierPolicy& policy,
                                 Bytes allowance) {
  return Decider(chunks, policy, allowance).run();
}

Result<double> least_heat_that_pays(Nanoseconds move, Nanoseconds saved, Nanoseconds half_life) {
  if (move.count() <= 0 || saved.count() <= 0 || half_life.count() <= 0) {
    return fail(ErrorCode::invalid,
                "what a move takes, what it saves and the half-life are above 0");
  }
  const double most = static_cast<double>(saved.count()) * seconds(half_life);
  const double heat = static_cast<double>(move.count()) / most;
  if (heat <= 1) return heat;
  return fail(ErrorCode::invalid,
              "a page saves at most {:.0f} ns within a half-life and takes {} ns to move: nothing "
              "pays; leave pages where they are, or take a longer half-life",
              most, move.count());
}

}  // namespace headrace
