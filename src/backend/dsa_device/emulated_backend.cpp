#include "backend/dsa_device/emulated_backend.h"

#include <utility>

#include "core/fail.h"

namespace headrace::dsa {
namespace {

class EmulatedBackend final : public Backend {
 public:
  EmulatedBackend(std::unique_ptr<Emulation> emulation, std::unique_ptr<Backend> backend)
      : emulation_(std::move(emulation)), backend_(std::move(backend)) {}

  const Capabilities& capabilities() const override { return backend_->capabilities(); }
  Result<std::size_t> submit(std::span<const Piece> pieces, Completion& completion) override {
    return backend_->submit(pieces, completion);
  }
  std::size_t poll() override { return backend_->poll(); }

 private:
  const std::unique_ptr<Emulation> emulation_;
  const std::unique_ptr<Backend> backend_;  // ends before the devices it uses
};

}  // namespace

Result<std::unique_ptr<Backend>> open_emulated_dsa(const Machine& machine,
                                                   std::vector<EngineId> engines,
                                                   const EmulatedBackendOptions& options) {
  std::vector<DeviceOptions> each(engines.size(), options.device);
  for (std::size_t i = 0; i < each.size(); ++i) {
    each[i].seed += i;
    if (const Engine* engine = machine.find(engines[i])) {
      each[i].setup.numa_node = raw(engine->home);
    }
  }
  HEADRACE_TRY(auto emulation, Emulation::start(std::move(each), options.portals));
  std::vector<Device> devices = emulation->devices();
  // By the names the machine has for them.
  for (std::size_t i = 0; i < devices.size(); ++i) {
    if (const Engine* engine = machine.find(engines[i])) devices[i].name = engine->name;
  }
  const DsaOptions of_backend{.devices = std::move(devices),
                              .open = emulation->opener(),
                              .limit = options.limit,
                              .batches = options.batches};
  HEADRACE_TRY(auto backend, open_dsa(machine, std::move(engines), of_backend));
  return std::make_unique<EmulatedBackend>(std::move(emulation), std::move(backend));
}

}  // namespace headrace::dsa
