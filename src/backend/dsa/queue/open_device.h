// SPDX-License-Identifier: Apache-2.0
// All queues of one device that this process has open. A copy that one queue gives back is tried in
// another one. Thread-safe.
#pragma once

#include <atomic>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backend/dsa/queue/open_queue.h"
#include "headrace/result.h"

namespace headrace::dsa {

class OpenDevice {
 public:
  // Opens the usable queues. Errors: absent, denied, exhausted, unsupported: no queue can be opened
  // (the reason of the first).
  static Result<OpenDevice> open(const Device& device, const QueueOptions& options);

  // Gives the first n to the queue with the least in flight. Error: no queue answers any more.
  Result<std::size_t> submit(std::span<const Submission> submissions);
  // Moves copies that have finally ended to the back of `ended`.
  void poll(std::vector<Ended>& ended);

  // As OpenQueue::give_up, for all queues.
  void give_up(std::vector<Ended>& ended);

  std::size_t in_flight() const;
  // The most copies at once.
  std::size_t room() const;
  const std::vector<std::unique_ptr<OpenQueue>>& all() const { return queues_; }
  // Bytes that every queue takes at once.
  std::uint64_t max_transfer() const;

 private:
  bool is_for_another(const Failure& failure) const;
  bool another_takes(std::size_t queue, const Ended& given_back);

  std::vector<std::unique_ptr<OpenQueue>> queues_;
};

}  // namespace headrace::dsa
