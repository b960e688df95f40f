#include "backend/dsa/lanes.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "core/fail.h"

namespace headrace::dsa {

Result<Lanes> Lanes::open(const Device& device, const LaneOptions& options) {
  Lanes lanes;
  std::optional<Error> first;
  for (const WorkQueue& queue : device.queues) {
    auto lane = Lane::open(queue, options);
    if (lane) {
      lanes.lanes_.push_back(*std::move(lane));
    } else if (!first) {
      first = std::move(lane).error();
    }
  }
  if (!lanes.lanes_.empty()) return lanes;
  if (first) return std::unexpected<Error>(*std::move(first));
  const std::string why = device.unusable.empty() ? "it has no work queue" : device.unusable;
  return fail(ErrorCode::unsupported, "{}: {}; see headrace doctor", device.name, why);
}

Result<std::size_t> Lanes::submit(std::span<const Order> orders) {
  if (lanes_.size() == 1) return lanes_.front()->submit(orders);
  std::optional<Error> refusal;
  bool full = false;
  const auto emptiest = std::ranges::min_element(lanes_, {}, &Lane::under_way);
  const auto first = static_cast<std::size_t>(emptiest - lanes_.begin());
  for (std::size_t i = 0; i < lanes_.size(); ++i) {
    auto taken = lanes_[(first + i) % lanes_.size()]->submit(orders);
    if (taken && *taken > 0) return taken;
    if (taken) {
      full = true;
    } else {
      refusal = std::move(taken).error();
    }
  }
  // Room comes back in one that is only full.
  if (refusal && !full) return std::unexpected<Error>(*std::move(refusal));
  return 0;
}

// Whether a lane that has not had it may do it.
bool Lanes::is_for_another(const Failure& failure) const {
  return failure.job.tries + 1 < lanes_.size() && failure.why.code != ErrorCode::invalid &&
         (!failure.undefined || failure.job.work.repeatable());
}

// One of the others. A part that is under way cannot be cut again, so it goes nowhere that takes
// less at once.
bool Lanes::another_takes(std::size_t lane, Job& job) {
  ++job.tries;
  for (std::size_t i = 1; i < lanes_.size(); ++i) {
    Lane& other = *lanes_[(lane + i) % lanes_.size()];
    if (other.queue().max_transfer < lanes_[lane]->queue().max_transfer) continue;
    if (other.take_over(job)) return true;
  }
  return false;
}

void Lanes::poll(std::vector<Ended>& ended) {
  for (std::size_t i = 0; i < lanes_.size(); ++i) {
    if (lanes_[i]->under_way() == 0) continue;
    const std::size_t before = ended.size();
    lanes_[i]->poll(ended);
    for (std::size_t at = before; at < ended.size();) {
      Ended& each = ended[at];
      if (each.failure != nullptr && is_for_another(*each.failure) &&
          another_takes(i, each.failure->job)) {
        if (&each != &ended.back()) each = std::move(ended.back());
        ended.pop_back();
      } else {
        ++at;
      }
    }
  }
}

void Lanes::give_up(std::vector<Ended>& ended) {
  for (const auto& lane : lanes_) lane->give_up(ended);
}

std::size_t Lanes::under_way() const {
  std::size_t sum = 0;
  for (const auto& lane : lanes_) sum += lane->under_way();
  return sum;
}

std::size_t Lanes::room() const {
  std::size_t sum = 0;
  for (const auto& lane : lanes_) sum += lane->room();
  return sum;
}

std::uint64_t Lanes::max_transfer() const {
  std::uint64_t least = std::numeric_limits<std::uint64_t>::max();
  for (const auto& lane : lanes_) least = std::min(least, lane->queue().max_transfer);
  return least;
}

Opcodes Lanes::operations() const {
  Opcodes all = lanes_.front()->queue().operations;
  for (const auto& lane : lanes_) all = all & lane->queue().operations;
  return all;
}

}  // namespace headrace::dsa
