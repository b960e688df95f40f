// SPDX-License-Identifier: Apache-2.0
#include "memory/pages/host_memory.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <string_view>

#include "core/text/cgroups.h"
#include "core/text/files.h"
#include "headrace/machine.h"

namespace headrace {
namespace {

using std::filesystem::path;

// Whether no descriptor is left. Without this, a file that cannot be opened counts as absent.
bool no_descriptor_left() {
  const int probe = ::fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0);
  if (probe < 0) return errno == EMFILE || errno == ENFILE;
  ::close(probe);
  return false;
}

// The first number in `text`.
std::optional<std::uint64_t> number_in(std::string_view text) {
  const auto digit = text.find_first_of("0123456789");
  if (digit == std::string_view::npos) return std::nullopt;
  std::uint64_t value = 0;
  const auto result = std::from_chars(text.data() + digit, text.data() + text.size(), value);
  return result.ec == std::errc{} ? std::optional(value) : std::nullopt;
}

// The text after the word `key` on its line.
std::optional<std::string_view> after(std::string_view text, std::string_view key) {
  for (auto at = text.find(key); at != std::string_view::npos; at = text.find(key, at + 1)) {
    if (at != 0 && text[at - 1] != ' ' && text[at - 1] != '\n') continue;
    const std::string_view rest = text.substr(at + key.size());
    return rest.substr(0, rest.find('\n'));
  }
  return std::nullopt;
}

// The value of a meminfo line, which counts in KiB.
std::optional<Bytes> kib_of(std::string_view text, std::string_view key) {
  const auto rest = after(text, key);
  const auto value = rest ? number_in(*rest) : std::nullopt;
  return value ? std::optional(Bytes{*value << 10}) : std::nullopt;
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
std::map<NodeId, Watermarks> read_watermarks(const path& zoneinfo) {
  std::map<NodeId, Watermarks> nodes;
  const std::string text = read_file(zoneinfo).value_or("");
  for (auto at = text.find("Node "); at != std::string::npos;) {
    const auto next = text.find("Node ", at + 1);
    const std::string_view zone = std::string_view(text).substr(at, next - at);
    at = next;
    const auto id = number_in(zone);
    const auto protection = after(zone, "protection:");
    if (!id || !protection) continue;
    const auto field = [&](std::string_view key) {
      return number_in(after(zone, key).value_or("")).value_or(0);
    };
    Watermarks& node = nodes[NodeId{static_cast<std::uint32_t>(*id)}];
    node.reserve += std::min(field("high ") + largest_in(*protection), field("managed "));
    node.low += field("low ");
  }
  return nodes;
}

// The kernel's si_mem_available for one node.
Bytes available(std::string_view meminfo, const Watermarks& watermarks) {
  const std::uint64_t page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  const auto field = [&](std::string_view key) { return kib_of(meminfo, key).value_or(Bytes{}); };
  const Bytes files = field("Active(file):") + field("Inactive(file):");
  const Bytes low = Bytes{page} * watermarks.low;
  const Bytes clean = files - std::min(files / 2, low);
  const Bytes slab = field("SReclaimable:");
  return less(field("MemFree:"), Bytes{page} * watermarks.reserve) + clean +
         (slab - std::min(slab / 2, low));
}

std::vector<NodeId> nodes_with_memory(const path& folder) {
  std::vector<NodeId> nodes;
  for (const char* name : {"has_memory", "online"}) {
    const auto list = parse_cpu_list(read_file(folder / name).value_or(""));
    if (!list || list->empty()) continue;
    for (const unsigned id : *list) nodes.push_back(NodeId{id});
    return nodes;
  }
  return {NodeId{0}};  // a kernel without NUMA has one node
}

std::map<Bytes, std::uint64_t> read_free_huge(const path& node) {
  std::map<Bytes, std::uint64_t> pools;
  for (const Bytes size : {2_MiB, 1_GiB}) {
    const path pool = node / fmt::format("hugepages/hugepages-{}kB/free_hugepages", size / 1_KiB);
    if (const auto free = number_in(read_file(pool).value_or(""))) pools[size] = *free;
  }
  return pools;
}

// Bytes left under one memory cgroup: limit less use, where file pages do not count as used.
// nullopt: no limit. File names differ between cgroup versions 2 and 1.
struct CgroupFiles {
  const char *limit, *use, *active, *inactive;
};
constexpr CgroupFiles kVersion2{"memory.max", "memory.current", "active_file ", "inactive_file "};
constexpr CgroupFiles kVersion1{"memory.limit_in_bytes", "memory.usage_in_bytes",
                                "total_active_file ", "total_inactive_file "};

std::optional<Bytes> left_in(const path& group, const CgroupFiles& files) {
  const auto limit = number_in(read_file(group / files.limit).value_or(""));
  const auto use = number_in(read_file(group / files.use).value_or(""));
  // Version 1 reports the largest number of pages for "no limit".
  constexpr std::uint64_t kNoLimit = std::uint64_t{1} << 62;
  if (!limit || *limit >= kNoLimit || !use) return std::nullopt;
  const std::string stat = read_file(group / "memory.stat").value_or("");
  const auto field = [&](std::string_view key) {
    return number_in(after(stat, key).value_or("")).value_or(0);
  };
  const Bytes cache{field(files.active) + field(files.inactive)};
  return less(Bytes{*limit}, less(Bytes{*use}, cache));
}

std::optional<Bytes> read_cgroup(const HostRoots& roots) {
  std::optional<Bytes> least;
  for (const ControlGroup& group : control_groups(roots.sysfs, roots.procfs, "memory")) {
    const auto left = left_in(path(group.folder), group.version2 ? kVersion2 : kVersion1);
    if (left && (!least || *left < *least)) least = left;
  }
  return least;
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

HostMemory read_host_memory(const HostRoots& roots) {
  HostMemory host;
  host.unread = no_descriptor_left();
  const path folder = roots.sysfs / "devices/system/node";
  const auto watermarks = read_watermarks(roots.procfs / "zoneinfo");
  const std::string status = read_file(roots.procfs / "self/status").value_or("");
  host.allowed_list = std::string(after(status, "Mems_allowed_list:").value_or(""));
  host.allowed_list.erase(0, host.allowed_list.find_first_not_of("\t "));
  const auto allowed = parse_cpu_list(host.allowed_list);
  for (const NodeId id : nodes_with_memory(folder)) {
    const path node = folder / fmt::format("node{}", raw(id));
    const auto found = watermarks.find(id);
    host.nodes.push_back({
        .id = id,
        .allowed = !allowed || allowed->empty() || std::ranges::binary_search(*allowed, raw(id)),
        .free = available(read_file(node / "meminfo").value_or(""),
                          found == watermarks.end() ? Watermarks{} : found->second),
        .free_huge = read_free_huge(node),
    });
  }
  // With a single node the kernel's own total is the better source: on virtual machines with
  // hot-added memory, the node's file may report a fraction of the truth.
  if (host.nodes.size() == 1) {
    const std::string meminfo = read_file(roots.procfs / "meminfo").value_or("");
    const auto all = kib_of(meminfo, "MemAvailable:");
    if (all) host.nodes.front().free = *all;
  }
  host.cgroup = read_cgroup(roots);
  const auto thp = read_file(roots.sysfs / "kernel/mm/transparent_hugepage/enabled");
  host.transparent = thp && thp->find("[never]") == std::string::npos;
  return host;
}

}  // namespace headrace
