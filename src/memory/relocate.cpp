// SPDX-License-Identifier: Apache-2.0
// Moves the pages of a buffer to another placement.

#include "core/fail.h"
#include "headrace/buffer.h"
#include "memory/layout.h"

namespace headrace {
namespace {

Bytes bytes_on_node(const Residency& now, NodeId node, Bytes page) {
  const auto found = now.pages.find(node);
  return found == now.pages.end() ? 0_B : page * found->second;
}

// Claims the memory that the pages still need on their new nodes.
Result<Claim> claim_space_to_move(Layout& layout, const Residency& now) {
  const Bytes page = pages_of(PageSize::base).map_by;
  HostMemory host = read_unclaimed_memory();
  for (NodeMemory& node : host.nodes) node.free += bytes_on_node(now, node.id, page);
  if (!layout.placement.spill.empty()) {
    const Status cut = spill(layout, host);
    if (!cut && !layout.placement.anywhere) return Unexpected(cut.error());
  }
  Demand demand = demand_of(layout, host);
  for (auto& [node, bytes] : demand.nodes) bytes -= std::min(bytes, bytes_on_node(now, node, page));
  return Claim::make(demand);
}

// Counts the pages that are not on the node of their run.
Result<std::uint64_t> misplaced(const Buffer& buffer, const Layout& layout) {
  std::uint64_t pages = 0;
  for (const PageRun& run : layout.runs) {
    HEADRACE_TRY(const Residency now, where({buffer.memory() + run.offset, run.length}));
    for (const auto& [node, count] : now.pages) pages += node == layout.ids[run.node] ? 0 : count;
  }
  return pages;
}

}  // namespace

Status relocate(const Machine& machine, Buffer& buffer, const Placement& placement) {
  if (buffer.in_file() || storage_of(machine, placement) != nullptr) {
    return fail(ErrorCode::unsupported,
                "memory in a file does not move, nor into one; allocate and copy");
  }
  if (buffer.memory() == nullptr || gpu_of(machine, placement) != nullptr) {
    return fail(ErrorCode::unsupported,
                "memory of a GPU does not move, nor into one; allocate and copy");
  }
  if (buffer.pinned()) {
    return fail(ErrorCode::unsupported, "pinned memory does not move; allocate and copy");
  }
  if (placement.distribution == Distribution::first_touch) {
    return fail(
        ErrorCode::invalid,
        "pages that exist already cannot be placed by first touch; move them to nodes or a kind");
  }
  HEADRACE_TRY(Placement to, resolve(machine, placement, calling_node(machine)));
  to.pages = buffer.placement_.pages;
  to.touch = buffer.placement_.touch;
  to.lock = buffer.placement_.lock;
  const HostMemory host = read_host_memory();
  leave_out_unusable(to, host);
  HEADRACE_TRY_STATUS(check_nodes(machine, to, host));
  Layout layout = lay_out(machine, to, buffer.mapped_, buffer.page_size(), false);
  const bool huge = buffer.page_size() != PageSize::base;
  if (huge && to.nodes.size() > 1 && layout.mapped < least_bytes(layout)) {
    return fail(ErrorCode::unsupported,
                "{} in huge pages cannot be shared by nodes {}: that takes {} at least; allocate "
                "it with base pages",
                to_string(layout.mapped), to.to_text(), to_string(least_bytes(layout)));
  }
  HEADRACE_TRY(const Residency now, where({buffer.memory(), buffer.mapped_.value}));
  std::optional<Claim> claim;
  if (!layout.pages.pool) {
    HEADRACE_TRY(claim, claim_space_to_move(layout, now));
  }
  HEADRACE_TRY_STATUS(place_pages(buffer.memory(), layout, host, true));
  settle(buffer.memory(), layout);
  if (to.strict) {
    HEADRACE_TRY(const std::uint64_t stayed, misplaced(buffer, layout));
    if (stayed > 0) {
      return fail(ErrorCode::exhausted,
                  "{} pages could not move to nodes {} (pinned, or too little room); free now: {}",
                  stayed, to.to_text(), read_host_memory().free_text());
    }
  }
  buffer.moved_to(to.nodes.front().node);
  buffer.placement_ = std::move(to);
  return {};
}

}  // namespace headrace
