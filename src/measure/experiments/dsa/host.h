// SPDX-License-Identifier: Apache-2.0
// The DSA devices of this host as a target: real threads, real time, real copies.
//
// Thread-compatible; what else runs on the machine is measured along.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "backend/dsa/dsa.h"
#include "measure/experiments/dsa/submitter.h"
#include "measure/experiments/dsa/target.h"

namespace headrace::experiment_dsa {

struct DsaHostOptions {
  std::vector<dsa::Device> devices;  // by the names of the machine's engines
  // Opens a queue. `by_write`: use write() even if the portal may be mapped.
  std::function<Result<std::unique_ptr<dsa::Portal>>(const dsa::WorkQueue&, bool by_write)> open;
};

class DsaHost final : public DsaTarget {
 public:
  DsaHost(Machine machine, DsaHostOptions options);

  Result<std::unique_ptr<DsaRun>> prepare(const std::vector<DsaThread>& threads,
                                          const DsaShape& shape,
                                          instruments::BufferPool& buffers) const override;
  WithStream with_stream() const override;
  Basis basis() const override { return Basis::measured; }
  const Machine& machine() const override { return machine_; }
  std::vector<EngineId> engines() const override;

  // Opens a lane like that of `thread`, for background loads.
  Result<std::unique_ptr<dsa::OpenQueue>> open_lane(const DsaThread& thread,
                                                    const DsaShape& shape) const;

 private:
  const Machine machine_;
  const DsaHostOptions options_;
};

// The host in sysfs, with the usable devices that `machine` has engines for.
// Errors: unsupported: there is none; or the device may be software, since HEADRACE_DSA_SYSFS is
// set or a queue's file is no character device.
Result<DsaHostOptions> find_dsa_host(const Machine& machine,
                                     const dsa::Roots& roots = dsa::Roots::from_environment());

}  // namespace headrace::experiment_dsa
