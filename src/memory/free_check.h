// SPDX-License-Identifier: Apache-2.0
// Checks that a request fits into free memory before its pages are touched: a strict policy on a
// full node does not fail, it calls the OOM killer.
//
// Requests that are being touched count as taken. A buffer that is not touched at once is checked
// only when it is made. Thread-safe.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "headrace/placement.h"
#include "headrace/result.h"
#include "headrace/units.h"
#include "host/host_memory.h"

namespace headrace {

// The bytes that a request will take per node. Not strict: the kernel may take them from any node.
struct Demand {
  std::map<NodeId, Bytes> nodes;
  bool strict = true;

  Bytes total() const;
};

// Errors: exhausted: free memory could not be read because no file descriptor was left.
Status check_read(const HostMemory& host);

// Errors: exhausted: `demand` and `taken`, the claims of other requests, do not fit; the message
// lists the free memory.
Status check_free(const HostMemory& host, const Demand& demand,
                  const std::map<NodeId, Bytes>& taken = {});

// Checks against the memory that is free now (read_unclaimed_memory()).
Status check_free(const std::map<NodeId, Bytes>& nodes);

// Free memory of the host, less the claims of requests in flight.
HostMemory read_unclaimed_memory();

// Counts a demand as taken while its memory is being touched.
class Claim {
 public:
  // Reads the host's memory and claims `demand` in one step. Errors: exhausted, as check_free.
  static Result<Claim> make(const Demand& demand);
  Claim(Claim&& other) noexcept : nodes_(std::exchange(other.nodes_, {})) {}
  Claim& operator=(Claim&& other) noexcept {
    std::swap(nodes_, other.nodes_);
    return *this;
  }
  ~Claim();

 private:
  explicit Claim(std::map<NodeId, Bytes> nodes) : nodes_(std::move(nodes)) {}
  std::map<NodeId, Bytes> nodes_;
};

}  // namespace headrace
