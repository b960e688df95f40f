// SPDX-License-Identifier: Apache-2.0
#include "tests/support/dsa/device/backend.h"

#include <utility>

#include "core/fail.h"

namespace headrace::emulator {
namespace {

class BackendOnDevices final : public Backend {
 public:
  BackendOnDevices(std::unique_ptr<DeviceSet> devices, std::unique_ptr<Backend> backend)
      : devices_(std::move(devices)), backend_(std::move(backend)) {}

  const Capabilities& capabilities() const override { return backend_->capabilities(); }
  Result<std::size_t> submit(std::span<const Piece> pieces, Completion& completion) override {
    return backend_->submit(pieces, completion);
  }
  std::size_t poll() override { return backend_->poll(); }

 private:
  const std::unique_ptr<DeviceSet> devices_;
  const std::unique_ptr<Backend> backend_;  // ends before the devices it uses
};

}  // namespace

Result<std::unique_ptr<Backend>> open_backend(const Machine& machine, std::vector<EngineId> engines,
                                              const BackendOptions& options) {
  std::vector<DeviceOptions> each(engines.size(), options.device);
  for (std::size_t i = 0; i < each.size(); ++i) {
    each[i].seed += i;
    if (const Engine* engine = machine.find(engines[i])) {
      each[i].setup.numa_node = raw(engine->home);
    }
  }
  HEADRACE_TRY(auto set, DeviceSet::start(std::move(each), options.portals));
  std::vector<dsa::Device> devices = set->devices();
  // The machine's names for them.
  for (std::size_t i = 0; i < devices.size(); ++i) {
    if (const Engine* engine = machine.find(engines[i])) devices[i].name = engine->name;
  }
  const DsaOptions of_backend{.devices = std::move(devices),
                              .open = set->opener(),
                              .limit = options.limit,
                              .batches = options.batches};
  HEADRACE_TRY(auto backend, open_dsa(machine, std::move(engines), of_backend));
  return std::make_unique<BackendOnDevices>(std::move(set), std::move(backend));
}

}  // namespace headrace::emulator
