// SPDX-License-Identifier: Apache-2.0
#include "backend/dsa/queue/open_device.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "core/fail.h"

namespace headrace::dsa {

Result<OpenDevice> OpenDevice::open(const Device& device, const QueueOptions& options) {
  OpenDevice opened;
  std::optional<Error> first;
  for (const WorkQueue& queue : device.queues) {
    auto made = OpenQueue::open(queue, options);
    if (made) {
      opened.queues_.push_back(*std::move(made));
    } else if (!first) {
      first = std::move(made).error();
    }
  }
  if (!opened.queues_.empty()) return opened;
  if (first) return Unexpected(*std::move(first));
  const std::string why = device.unusable.empty() ? "it has no work queue" : device.unusable;
  return fail(ErrorCode::unsupported, "{}: {}; see headrace doctor", device.name, why);
}

Result<std::size_t> OpenDevice::submit(std::span<const Submission> submissions) {
  if (queues_.size() == 1) return queues_.front()->submit(submissions);
  std::optional<Error> refusal;
  bool full = false;
  const auto emptiest = std::ranges::min_element(queues_, {}, &OpenQueue::in_flight);
  const auto first = static_cast<std::size_t>(emptiest - queues_.begin());
  for (std::size_t i = 0; i < queues_.size(); ++i) {
    auto taken = queues_[(first + i) % queues_.size()]->submit(submissions);
    if (taken && *taken > 0) return taken;
    if (taken) {
      full = true;
    } else {
      refusal = std::move(taken).error();
    }
  }
  // A queue that is only full will have space again.
  if (refusal && !full) return Unexpected(*std::move(refusal));
  return 0;
}

// Whether a queue that has not tried the copy may take it.
bool OpenDevice::is_for_another(const Failure& failure) const {
  return failure.tries + 1 < queues_.size() && failure.why.code != ErrorCode::invalid;
}

// Gives the copy to one of the other queues.
bool OpenDevice::another_takes(std::size_t queue, const Ended& given_back) {
  for (std::size_t i = 1; i < queues_.size(); ++i) {
    if (queues_[(queue + i) % queues_.size()]->take_over(given_back)) return true;
  }
  return false;
}

void OpenDevice::poll(std::vector<Ended>& ended) {
  for (std::size_t i = 0; i < queues_.size(); ++i) {
    if (queues_[i]->in_flight() == 0) continue;
    const std::size_t before = ended.size();
    queues_[i]->poll(ended);
    for (std::size_t at = before; at < ended.size();) {
      Ended& each = ended[at];
      if (each.failure != nullptr && is_for_another(*each.failure) && another_takes(i, each)) {
        if (&each != &ended.back()) each = std::move(ended.back());
        ended.pop_back();
      } else {
        ++at;
      }
    }
  }
}

void OpenDevice::give_up(std::vector<Ended>& ended) {
  for (const auto& queue : queues_) queue->give_up(ended);
}

std::size_t OpenDevice::in_flight() const {
  std::size_t sum = 0;
  for (const auto& queue : queues_) sum += queue->in_flight();
  return sum;
}

std::size_t OpenDevice::room() const {
  std::size_t sum = 0;
  for (const auto& queue : queues_) sum += queue->room();
  return sum;
}

std::uint64_t OpenDevice::max_transfer() const {
  std::uint64_t least = std::numeric_limits<std::uint64_t>::max();
  for (const auto& queue : queues_) least = std::min(least, queue->queue().max_transfer);
  return least;
}

}  // namespace headrace::dsa
