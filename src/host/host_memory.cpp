// SPDX-License-Identifier: Apache-2.0
#include "host/host_memory.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string_view>

#include "headrace/cpus.h"
#include "host/cgroups.h"

namespace headrace {
namespace {

constexpr const char* kNodes = "sys/devices/system/node/";

// Whether no descriptor is left. Without this, a file that cannot be opened counts as absent.
bool no_descriptor_left() {
  const int probe = ::fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0);
  if (probe < 0) return errno == EMFILE || errno == ENFILE;
  ::close(probe);
  return false;
}

Bytes less(Bytes a, Bytes b) { return a > b ? a - b : Bytes{}; }

// A node's pages that the kernel keeps for itself, and its low watermarks (zoneinfo).
struct Watermarks {
  std::uint64_t reserve = 0;
  std::uint64_t low = 0;
};

// The largest number of a list such as "(0, 3020, 5324)".
std::uint64_t largest_in(std::string_view list) {
  std::uint64_t largest = 0;
  for (auto at = list.find_first_of("0123456789"); at != std::string_view::npos;
       at = list.find_first_of("0123456789", list.find_first_of(",)", at))) {
    largest = std::max(largest, number_in(list.substr(at)).value_or(0));
    if (list.find_first_of(",)", at) == std::string_view::npos) break;
  }
  return largest;
}

// As the kernel's calculate_totalreserve_pages (mm/page_alloc.c): per zone its high watermark plus
// the largest of its protections from other zones, at most the zone's managed pages.
std::map<NodeId, Watermarks> read_watermarks(const HostFiles& files) {
  std::map<NodeId, Watermarks> nodes;
  const std::string text = files.text("proc/zoneinfo");
  for (auto at = text.find("Node "); at != std::string::npos;) {
    const auto next = text.find("Node ", at + 1);
    const std::string_view zone = std::string_view(text).substr(at, next - at);
    at = next;
    const auto id = number_in(zone);
    const auto protection = text_after(zone, "protection:");
    if (!id || !protection) continue;
    const auto field = [&](std::string_view key) { return count_after(zone, key); };
    Watermarks& node = nodes[NodeId{static_cast<std::uint32_t>(*id)}];
    node.reserve += std::min(field("high ") + largest_in(*protection), field("managed "));
    node.low += field("low ");
  }
  return nodes;
}

// The kernel's si_mem_available for one node.
Bytes available(std::string_view meminfo, const Watermarks& watermarks) {
  const std::uint64_t page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  const auto field = [&](std::string_view key) { return kib_after(meminfo, key); };
  const Bytes files = field("Active(file):") + field("Inactive(file):");
  const Bytes low = Bytes{page} * watermarks.low;
  const Bytes clean = files - std::min(files / 2, low);
  const Bytes slab = field("SReclaimable:");
  return less(field("MemFree:"), Bytes{page} * watermarks.reserve) + clean +
         (slab - std::min(slab / 2, low));
}

std::vector<NodeId> nodes_with_memory(const HostFiles& files) {
  std::vector<NodeId> nodes;
  for (const char* name : {"has_memory", "online"}) {
    const auto list = parse_cpu_list(files.text(std::string(kNodes) + name));
    if (!list || list->empty()) continue;
    for (const unsigned id : *list) nodes.push_back(NodeId{id});
    return nodes;
  }
  return {NodeId{0}};  // a kernel without NUMA has one node
}

std::map<Bytes, std::uint64_t> read_free_huge(const HostFiles& files, const std::string& node) {
  std::map<Bytes, std::uint64_t> pools;
  for (const Bytes size : {2_MiB, 1_GiB}) {
    const std::string pool =
        fmt::format("{}/hugepages/hugepages-{}kB/free_hugepages", node, size / 1_KiB);
    if (const auto free = number_in(files.text(pool))) pools[size] = *free;
  }
  return pools;
}

}  // namespace

const NodeMemory* HostMemory::find(NodeId id) const {
  const auto found = std::ranges::find(nodes, id, &NodeMemory::id);
  return found == nodes.end() ? nullptr : &*found;
}

Bytes HostMemory::free() const {
  Bytes sum;
  for (const NodeMemory& node : nodes) {
    if (node.allowed) sum += node.free;
  }
  return sum;
}

std::string HostMemory::free_text() const {
  std::string text;
  for (const NodeMemory& node : nodes) {
    if (!text.empty()) text += ", ";
    text += fmt::format("node {} {}", raw(node.id), to_string(node.free));
  }
  if (cgroup) text += fmt::format(", memory cgroup {}", to_string(*cgroup));
  return text;
}

HostMemory read_host_memory(const HostFiles& files) {
  HostMemory host;
  host.unread = no_descriptor_left();
  const auto watermarks = read_watermarks(files);
  const std::string status = files.text("proc/self/status");
  host.allowed_list = std::string(text_after(status, "Mems_allowed_list:").value_or(""));
  host.allowed_list.erase(0, host.allowed_list.find_first_not_of("\t "));
  const auto allowed = parse_cpu_list(host.allowed_list);
  for (const NodeId id : nodes_with_memory(files)) {
    const std::string node = fmt::format("{}node{}", kNodes, raw(id));
    const auto found = watermarks.find(id);
    host.nodes.push_back({
        .id = id,
        .allowed = !allowed || allowed->empty() || std::ranges::binary_search(*allowed, raw(id)),
        .free = available(files.text(node + "/meminfo"),
                          found == watermarks.end() ? Watermarks{} : found->second),
        .free_huge = read_free_huge(files, node),
    });
  }
  // With a single node the kernel's own total is the better source: on virtual machines with
  // hot-added memory, the node's file may report a fraction of the truth.
  if (host.nodes.size() == 1) {
    const std::string meminfo = files.text("proc/meminfo");
    if (const auto all = text_after(meminfo, "MemAvailable:"); all && number_in(*all)) {
      host.nodes.front().free = kib_after(meminfo, "MemAvailable:");
    }
  }
  host.cgroup = memory_left(files);
  const std::string thp = files.text("sys/kernel/mm/transparent_hugepage/enabled");
  host.transparent = !thp.empty() && thp.find("[never]") == std::string::npos;
  return host;
}

}  // namespace headrace
