// All queues of one device that this process has open: what one of them gives back another tries.
// Thread-safe.
#pragma once

#include <atomic>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backend/dsa/lane.h"
#include "headrace/result.h"

namespace headrace::dsa {

class Lanes {
 public:
  // Of the usable queues those that can be opened. absent, denied, exhausted, unsupported: none,
  // with the reason of the first.
  static Result<Lanes> open(const Device& device, const LaneOptions& options);

  // Takes the first n by the queue with the least under way. Error: none of the queues answers any
  // more.
  Result<std::size_t> submit(std::span<const Order> orders);
  // Moves what has ended for good to the back of `ended`.
  void poll(std::vector<Ended>& ended);

  // As Lane::give_up, of all.
  void give_up(std::vector<Ended>& ended);

  std::size_t under_way() const;
  // The most at once.
  std::size_t room() const;
  const std::vector<std::unique_ptr<Lane>>& all() const { return lanes_; }
  // What every queue of them takes.
  std::uint64_t max_transfer() const;
  Opcodes operations() const;

 private:
  bool is_for_another(const Failure& failure) const;
  bool another_takes(std::size_t lane, Job& job);

  std::vector<std::unique_ptr<Lane>> lanes_;
};

}  // namespace headrace::dsa
