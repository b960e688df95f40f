// SPDX-License-Identifier: Apache-2.0
// Facade of the folder, besides headrace/machine.h: the fields of a machine in a JSON document,
// which it shares with a profile, and what measuring asks a machine. Thread-safe.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/text/json_reader.h"
#include "headrace/machine.h"
#include "headrace/result.h"

namespace headrace {

struct Document {
  std::string text;
  std::string source;  // "preset xeon-max", a path
};

// What Machine::load and Profile::load name.
Result<Document> find_document(const std::string& path_or_preset);

nlohmann::ordered_json json_of(const Machine& machine);
// Mistakes go to the reader.
Machine read_machine(const JsonReader& at);

// One link of a way, and whether it is crossed from its `a` to its `b`.
struct Crossing {
  std::size_t link;  // its place in Machine::links
  bool forward;
  friend bool operator==(const Crossing&, const Crossing&) = default;
};

// The links that data cross from one node to another: the fewest known ones, of equals those that
// come first in the machine, and none that has both on one side. Empty where no known link is
// between the two.
std::vector<Crossing> way_between(const Machine& machine, NodeId from, NodeId to);

// What is asked of a machine again for each of many thousands of points, in tables: while it lives,
// the calling thread's questions about this very object (last_level_cache, and those below) are
// looked up and not searched for, so that the cost of a plan grows with its points and not with
// points times caches. Requires: the machine stays as it is. Single-thread: the same thread ends
// it.
class MachineTables {
 public:
  explicit MachineTables(const Machine& machine);
  ~MachineTables();
  MachineTables(const MachineTables&) = delete;
  MachineTables& operator=(const MachineTables&) = delete;

  // This thread's; nullptr: it has none, or of another machine. Then who asks searches.
  static const MachineTables* of(const Machine& machine);
  // How often this thread got nullptr, for tests.
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

// The first-level caches of a CPU: those of its core.
std::vector<const CacheLevel*> first_level_caches(const Machine& machine, unsigned cpu);

// The largest distance of the firmware that still means the same socket. Distances come in two
// bands, inside a socket and across, so the widest gap between neighbouring values divides them.
unsigned socket_reach(const Machine& machine);

// The high-bandwidth memory that a package of CPUs carries.
struct PackageHbm {
  Bytes size;
  bool alone = false;  // such a package takes no DIMMs
};
// HBM of CPUs with this model name; nothing: they are not known to have any.
std::optional<PackageHbm> package_hbm(std::string_view cpu_model);

// Whether the machine was discovered from within a virtual machine.
bool is_virtual(const Machine& machine);

// Whether a cache can be as large as the machine says for those who share it. A virtual machine may
// be told the cache of the whole host (480 MiB for 2 CPUs were seen), of which its CPUs have an
// unknown part: more than 64 MiB for each CPU that shares it is not believed there. Real ones have
// less: 32 to 96 MiB for the 8 cores of an EPYC's CCD, at most 48 MiB for one (7373X, 9184X), 1.1
// GiB for 96 cores, 504 MiB for the 128 of a Xeon 6980P. On a real host nothing is doubted: there
// the other CPUs of the cache are offline.
bool is_believed(const Machine& machine, const CacheLevel& cache);
bool caches_believed(const Machine& machine, const CpuSet& cpus);  // their last levels

// What a measurement by threads on these CPUs has to get past: their last-level caches, each
// counted once. 32 MiB, larger than most cores' share, where the machine does not tell; 128 MiB,
// larger than what a few CPUs of any cache are given, where it is not believed.
Bytes cache_to_pass(const Machine& machine, const CpuSet& cpus);

}  // namespace headrace
