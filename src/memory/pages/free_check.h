// SPDX-License-Identifier: Apache-2.0
// Whether a request fits into what is free, before a page of it is touched: a strict policy on a
// full node does not fail, it calls the OOM killer.
//
// Requests that are being touched at this moment count as taken. A buffer that is not touched at
// once is checked when it is made and never again. Thread-safe.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "headrace/placement.h"
#include "headrace/result.h"
#include "headrace/units.h"
#include "memory/pages/host_memory.h"

namespace headrace {

// What a request will take from each node. Not strict: the kernel may take it from any.
struct Demand {
  std::map<NodeId, Bytes> nodes;
  bool strict = true;

  Bytes total() const;
};

// exhausted: what is free could not be read, for want of a file descriptor.
Status check_read(const HostMemory& host);

// exhausted, with what is free where, when `demand` and what is `taken` by others do not fit.
Status check_free(const HostMemory& host, const Demand& demand,
                  const std::map<NodeId, Bytes>& taken = {});

// Checks against the memory that the host has free now (read_unclaimed_memory()).
Status check_free(const std::map<NodeId, Bytes>& nodes);

// What the host has free, less what requests in flight have claimed of it.
HostMemory read_unclaimed_memory();

// Keeps a demand counted as taken while it is being touched.
class Claim {
 public:
  // Looks at the host and claims `demand` in one step; exhausted as check_free.
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
