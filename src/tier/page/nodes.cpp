// SPDX-License-Identifier: Apache-2.0
// Slower nodes as slow memory. Pages are moved by move_pages, which keeps huge pages whole and
// accepts any policy of a mapping.

#include <fmt/core.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "core/fail.h"
#include "headrace/cpus.h"
#include "memory/memory.h"
#include "tier/page/slow_memory.h"

namespace headrace {
namespace {

// Pages per call, to ask or to move: each call that moves pages waits once for all CPUs.
constexpr std::size_t kBatch = 4096;
// A value that the kernel never writes to a status: neither a node nor an error.
constexpr int kUntouched = std::numeric_limits<int>::min();

std::string text_of(auto nodes) {
  CpuSet ids;
  for (const NodeId node : nodes) ids.push_back(raw(node));
  std::ranges::sort(ids);
  return to_string(ids);
}

bool has(std::span<const NodeId> nodes, NodeId node) {
  return std::ranges::find(nodes, node) != nodes.end();
}

class Nodes final : public SlowMemory {
 public:
  Nodes(Kernel& kernel, std::vector<NodeId> fast, std::vector<NodeId> slow)
      : kernel_(kernel),
        fast_(std::move(fast)),
        slow_(std::move(slow)),
        distances_(kernel.distances()),
        page_(static_cast<std::size_t>(::sysconf(_SC_PAGESIZE))) {}

  // Checks that this process may use each node, and that a page moves there.
  Status try_all();
  Result<ChunkPlace> place_of(const TrackedRange& range) const override;
  Status move(std::span<const TrackedRange> ranges, bool in) override;
  bool moves_any() const override { return true; }
  std::optional<Bytes> room(Bytes chunk) const override;

 private:
  using Room = std::map<NodeId, Bytes>;
  // Chunks that move to one node.
  struct Batch {
    std::vector<void*> pages;
    std::vector<std::size_t> ends;  // end of each chunk, as an index into pages
  };

  bool is_fast(int node) const { return has(fast_, NodeId{static_cast<std::uint32_t>(node)}); }
  Status try_page(void* page, NodeId node);
  // Calls `each` with every present page and its node.
  Status for_each_page(const TrackedRange& range, const auto& each) const;
  // The nearest of `targets` with `bytes` free; among equals the one with most free memory.
  std::optional<NodeId> target(std::span<const NodeId> targets, NodeId from, Bytes bytes,
                               const Room& room) const;
  // Returns whether the node is full. The kernel ends a call at a page that it does not take if an
  // earlier page did not move; this function goes on with the next chunk. Refused pages are not
  // reported.
  bool move(const Batch& batch, NodeId node);
  // As move() of SlowMemory, to nodes with free memory in `room`; sets full nodes to 0 there.
  // Returns whether a node was full.
  Result<bool> move(std::span<const TrackedRange> ranges, bool in, Room& room);

  Kernel& kernel_;
  const std::vector<NodeId> fast_;
  const std::vector<NodeId> slow_;
  const std::map<std::pair<NodeId, NodeId>, unsigned> distances_;
  const std::size_t page_;  // bytes
};

Status Nodes::try_all() {
  const Room room = kernel_.free_memory();
  std::vector<NodeId> allowed;
  for (const auto& [node, free] : room) allowed.push_back(node);
  const auto bound = kernel_.bound_nodes();
  auto mapped = MappedMemory::make({page_}, {1}, {1}, PROT_READ | PROT_WRITE);
  if (!mapped) return fail_errno(mapped.error(), "cannot map a page");
  *mapped->memory() = std::byte{1};
  for (const auto* nodes : {&slow_, &fast_}) {
    for (const NodeId node : *nodes) {
      if (!room.contains(node)) {
        return fail(ErrorCode::absent,
                    "node {} has no memory that this process may use (it may use {}); name others, "
                    "or widen cpuset.mems",
                    raw(node), text_of(allowed));
      }
      if (bound && !has(*bound, node)) {
        return fail(ErrorCode::denied,
                    "node {} is not among those that this thread's memory is bound to ({}); name "
                    "others, or bind to all",
                    raw(node), text_of(*bound));
      }
      HEADRACE_TRY_STATUS(try_page(mapped->memory(), node));
    }
  }
  return {};
}

Status Nodes::try_page(void* page, NodeId node) {
  const int id = static_cast<int>(raw(node));
  int status = -EFAULT;
  const std::int64_t result = kernel_.move_pages({&page, 1}, &id, &status);
  if (result == -ENOSYS) {
    return fail(ErrorCode::unsupported,
                "this kernel moves no pages (move_pages); it takes CONFIG_NUMA and "
                "CONFIG_MIGRATION");
  }
  if (result == -EPERM || result == -EACCES) {
    return fail(ErrorCode::denied,
                "the kernel refuses to move pages to node {} (move_pages); in a container: docker "
                "run --cap-add SYS_NICE ...",
                id);
  }
  if (result < 0 && result != -ENOMEM) {
    return fail_errno(static_cast<int>(-result), fmt::format("move_pages to {}", id));
  }
  if (status == id) return {};
  return fail(ErrorCode::exhausted,
              "a page that was to go to node {} stayed where it is; is the node full? see headrace "
              "topo",
              id);
}

Status Nodes::for_each_page(const TrackedRange& range, const auto& each) const {
  std::array<void*, kBatch> pages;
  std::array<int, kBatch> nodes;
  for (std::uintptr_t at = range.begin; at < range.end;) {
    const std::size_t count = std::min(kBatch, (range.end - at) / page_);
    for (std::size_t i = 0; i < count; ++i) pages[i] = reinterpret_cast<void*>(at + i * page_);
    const std::int64_t result = kernel_.move_pages({pages.data(), count}, nullptr, nodes.data());
    if (result < 0) {
      return fail_errno(static_cast<int>(-result), "cannot ask where pages are (move_pages)");
    }
    for (std::size_t i = 0; i < count; ++i) {
      if (nodes[i] >= 0) each(pages[i], nodes[i]);
    }
    at += count * page_;
  }
  return {};
}

Result<ChunkPlace> Nodes::place_of(const TrackedRange& range) const {
  ChunkPlace place{.begin = range.begin};
  HEADRACE_TRY_STATUS(for_each_page(range, [&](void*, int node) {
    (is_fast(node) ? place.resident : place.out) += Bytes{page_};
  }));
  return place;
}

std::optional<NodeId> Nodes::target(std::span<const NodeId> targets, NodeId from, Bytes bytes,
                                    const Room& room) const {
  std::optional<NodeId> best;
  const auto rank = [&](NodeId node) {
    const auto distance = distances_.find({from, node});
    return std::pair(distance == distances_.end() ? ~0U : distance->second, ~room.at(node).value);
  };
  for (const NodeId node : targets) {
    const auto found = room.find(node);
    if (found == room.end() || found->second < bytes) continue;
    if (!best || rank(node) < rank(*best)) best = node;
  }
  return best;
}

bool Nodes::move(const Batch& batch, NodeId node) {
  const std::vector<int> nodes(batch.pages.size(), static_cast<int>(raw(node)));
  std::vector<int> status(batch.pages.size(), kUntouched);
  for (std::size_t begin = 0; begin < batch.pages.size();) {
    const auto pages = std::span(batch.pages).subspan(begin);
    const auto told = std::span(status).subspan(begin);
    const std::int64_t left = kernel_.move_pages(pages, nodes.data(), told.data());
    if (left <= 0) return left == -ENOMEM;
    const auto last = std::ranges::find_if(told.rbegin(), told.rend(),
                                           [](int each) { return each != kUntouched; });
    if (last == told.rend()) return false;  // each was tried
    const auto tried = begin + static_cast<std::size_t>(told.rend() - last) - 1;
    begin = *std::ranges::upper_bound(batch.ends, tried);
  }
  return false;
}

Result<bool> Nodes::move(std::span<const TrackedRange> ranges, bool in, Room& room) {
  bool full = false;
  const auto flush = [&](Batch& batch, NodeId node) {
    if (move(batch, node)) {
      room[node] = {};
      full = true;
    }
    batch = {};
  };
  std::map<NodeId, Batch> batches;  // by target node
  for (const TrackedRange& range : ranges) {
    std::vector<void*> pages;
    int from = 0;
    HEADRACE_TRY_STATUS(for_each_page(range, [&](void* page, int node) {
      if (is_fast(node) == in) return;
      if (pages.empty()) from = node;
      pages.push_back(page);
    }));
    const Bytes bytes{pages.size() * page_};
    const auto to =
        target(in ? fast_ : slow_, NodeId{static_cast<std::uint32_t>(from)}, bytes, room);
    if (pages.empty() || !to) continue;
    room[*to] -= bytes;
    Batch& batch = batches[*to];
    batch.pages.insert(batch.pages.end(), pages.begin(), pages.end());
    batch.ends.push_back(batch.pages.size());
    if (batch.pages.size() >= kBatch) flush(batch, *to);
  }
  for (auto& [node, batch] : batches) {
    if (!batch.pages.empty()) flush(batch, node);
  }
  return full;
}

Status Nodes::move(std::span<const TrackedRange> ranges, bool in) {
  if (ranges.empty()) return {};
  Room room = kernel_.free_memory();
  // In each round at least one more node is full.
  for (bool again = true; again;) {
    HEADRACE_TRY(again, move(ranges, in, room));
  }
  return {};
}

std::optional<Bytes> Nodes::room(Bytes chunk) const {
  Bytes sum;
  for (const auto& [node, free] : kernel_.free_memory()) {
    if (has(fast_, node)) sum += chunk * (free / chunk);
  }
  return sum;
}

}  // namespace

Result<std::unique_ptr<SlowMemory>> open_nodes(Kernel& kernel, std::vector<NodeId> fast,
                                               std::vector<NodeId> slow) {
  auto nodes = std::make_unique<Nodes>(kernel, std::move(fast), std::move(slow));
  HEADRACE_TRY_STATUS(nodes->try_all());
  return nodes;
}

std::unique_ptr<SlowMemory> nodes_untried(Kernel& kernel, std::vector<NodeId> fast,
                                          std::vector<NodeId> slow) {
  return std::make_unique<Nodes>(kernel, std::move(fast), std::move(slow));
}

}  // namespace headrace
