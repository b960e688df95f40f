// SPDX-License-Identifier: Apache-2.0
// Facade of the folder, besides headrace/machine.h: the machine's fields in a JSON document, which
// a profile shares, and questions that measuring asks about a machine. Thread-safe.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/text/enum_words.h"
#include "headrace/machine.h"
#include "headrace/result.h"
#include "topology/json_reader.h"

namespace headrace {

struct Document {
  std::string text;
  std::string source;  // "preset xeon-max", a path
};

// The document that Machine::load and Profile::load read.
Result<Document> find_document(const std::string& path_or_preset);

// The words of a machine's enums.
inline constexpr EnumWords<NodeKind::storage> kNodeKinds{"node kind",
                                                         {"dram", "hbm", "cxl", "gpu", "storage"}};
inline constexpr EnumWords<EngineKind::migrate> kEngineKinds{
    "engine kind", {"cpu", "ssd", "dsa", "gpu", "migrate"}};
inline constexpr EnumWords<LinkKind::c2c> kLinkKinds{
    "link kind", {"upi", "xgmi", "socket", "mesh", "pcie", "cxl", "nvlink", "c2c"}};
inline constexpr EnumWords<GpuParadigm::limited> kGpuParadigms{
    "paradigm", {"ats", "hmm", "managed", "limited"}};

nlohmann::ordered_json json_of(const Machine& machine);
// Errors are stored in the reader.
Machine read_machine(const JsonReader& at);

// One link of a path; true: crossed from its `a` to its `b`.
struct Crossing {
  std::size_t link;  // index in Machine::links
  bool forward;
  friend bool operator==(const Crossing&, const Crossing&) = default;
};

// The links on the path between two nodes. The path has the fewest known links; of equal ones, the
// links that come first in the machine. No link of it has both nodes on one side. Empty: no known
// link is between them.
std::vector<Crossing> way_between(const Machine& machine, NodeId from, NodeId to);

// Lookup tables for questions about a machine that are asked for each of many thousands of points.
// While it exists, the calling thread's questions about this very object (last_level_cache and the
// functions below) use the tables. The cost of a plan then grows with its points, not with points
// times caches. Requires: the machine does not change. Single-thread: the same thread destroys it.
class MachineTables {
 public:
  explicit MachineTables(const Machine& machine);
  ~MachineTables();
  MachineTables(const MachineTables&) = delete;
  MachineTables& operator=(const MachineTables&) = delete;

  // This thread's tables for `machine`; nullptr: none. The caller then searches.
  static const MachineTables* of(const Machine& machine);
  // Number of times that this thread got nullptr, for tests.
  static std::uint64_t searches();

  const CacheLevel* last_level_cache(unsigned cpu) const;
  std::span<const CacheLevel* const> first_level_caches(unsigned cpu) const;
  unsigned socket_reach() const { return reach_; }

 private:
  struct Cpu {
    const CacheLevel* last_level = nullptr;
    std::vector<const CacheLevel*> first_levels;
  };

  const Machine& machine_;
  const MachineTables* const before_;
  const unsigned reach_;
  std::unordered_map<unsigned, Cpu> cpus_;
};

// The first-level caches of a CPU, which are those of its core.
std::vector<const CacheLevel*> first_level_caches(const Machine& machine, unsigned cpu);

// The largest firmware distance within a socket. Distances form two bands, inside a socket and
// across sockets, divided by the widest gap between neighbouring values.
unsigned socket_reach(const Machine& machine);

// The high-bandwidth memory in a package of CPUs.
struct PackageHbm {
  Bytes size;
  bool alone = false;  // the package takes no DIMMs
};
// The HBM of CPUs with this model name; nothing: no known HBM.
std::optional<PackageHbm> package_hbm(std::string_view cpu_model);

// True if the machine was discovered inside a virtual machine.
bool is_virtual(const Machine& machine);

// True if a cache can be as large as the machine reports for its CPUs. A virtual machine may report
// the cache of the whole host (480 MiB for 2 CPUs were seen), of which its CPUs have an unknown
// part. There, more than 64 MiB per sharing CPU is not plausible. Real CPUs have less: 32 to 96 MiB
// for the 8 cores of an EPYC's CCD, at most 48 MiB for one core (7373X, 9184X), 1.1 GiB for 96
// cores, 504 MiB for the 128 cores of a Xeon 6980P. On a real host every size is plausible: there,
// the other CPUs of the cache are offline.
bool is_believed(const Machine& machine, const CacheLevel& cache);
bool caches_believed(const Machine& machine, const CpuSet& cpus);  // their last-level caches

// The size that a measurement by threads on these CPUs must exceed: the sum of their last-level
// caches, each counted once. If unknown: 32 MiB, more than most cores' share. If not plausible: 128
// MiB, more than a few CPUs get of any cache.
Bytes cache_to_pass(const Machine& machine, const CpuSet& cpus);

}  // namespace headrace
