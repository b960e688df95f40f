// The DSA devices of this host under the DSA experiments: real threads, real time, real copies.
//
// Thread-compatible; what else runs on the machine is measured along.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "backend/dsa/dsa.h"
#include "measure/arenas.h"
#include "measure/dsa_stand.h"
#include "measure/dsa_submitter.h"

namespace headrace {

// What the copies of a thread go through: the `index`-th piece of its own on either side. As
// Arenas::get.
Result<DsaArea> copy_area(Arenas& arenas, const DsaThread& thread, std::size_t index);

struct DsaHostOptions {
  std::vector<dsa::Device> devices;  // by the names of the machine's engines
  // Opens a queue; `by_write`: through write() even where it may be mapped.
  std::function<Result<std::unique_ptr<dsa::Portal>>(const dsa::WorkQueue&, bool by_write)> open;
};

// Threads with their lanes and memory, to copy again and again; the memory outlives it.
class DsaTeam {
 public:
  DsaTeam(DsaTeam&&) noexcept;
  ~DsaTeam();

  // All of the threads' copies once. As DsaStand::run.
  Result<DsaTimes> round();

 private:
  friend class DsaHost;
  struct Member;
  DsaTeam();

  std::vector<std::unique_ptr<Member>> members_;
  CpuSet cpus_;
};

class DsaHost final : public DsaStand {
 public:
  DsaHost(Machine machine, DsaHostOptions options);

  Result<std::vector<DsaTimes>> run(const std::vector<DsaThread>& threads, const DsaShape& shape,
                                    unsigned rounds) override;
  std::string_view basis() const override { return "hardware"; }
  const Machine& machine() const override { return machine_; }

  // The threads of a run on memory of `arenas`. As run().
  Result<DsaTeam> prepare(const std::vector<DsaThread>& threads, const DsaShape& shape,
                          Arenas& arenas) const;
  // Those of the machine that are its devices, ascending.
  std::vector<EngineId> engines() const;
  // A lane as `thread` would use it, for loads that go on for as long as others do.
  Result<std::unique_ptr<dsa::Lane>> open_lane(const DsaThread& thread,
                                               const DsaShape& shape) const;

 private:
  const Machine machine_;
  const DsaHostOptions options_;
};

// That of sysfs, with the usable devices that `machine` has engines for. unsupported: there is
// none; or HEADRACE_DSA_SYSFS is set, where there may be devices that are none.
Result<DsaHostOptions> find_dsa_host(const Machine& machine);

}  // namespace headrace
