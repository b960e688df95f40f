// SPDX-License-Identifier: Apache-2.0
#include "measure/instruments/counters/bus_counter.h"

#include <fmt/core.h>

#include <utility>

#include "measure/instruments/counters/resctrl.h"
#include "measure/instruments/counters/uncore.h"

namespace headrace::instruments {

FoundCounter find_bus_counter(const CounterHost& host) {
  // Controllers first: they count the bus itself.
  auto uncore = open_uncore(host.sysfs, host.perf == nullptr ? system_perf() : *host.perf);
  if (uncore) {
    std::string words = (*uncore)->words();
    return {*std::move(uncore), std::move(words)};
  }
  auto resctrl = open_resctrl(host.sysfs / "fs/resctrl");
  if (resctrl) {
    std::string words = (*resctrl)->words();
    return {*std::move(resctrl), std::move(words)};
  }
  return {nullptr, fmt::format("none: {}; {}", uncore.error().message, resctrl.error().message)};
}

std::optional<double> BusMeter::now() {
  if (counter_ == nullptr) return std::nullopt;
  const auto bytes = counter_->bytes();
  return bytes ? std::optional(*bytes) : std::nullopt;
}

std::optional<double> BusMeter::Window::bytes() const {
  if (!before_) return std::nullopt;
  const std::optional<double> after = meter_.now();
  const bool first = !std::exchange(meter_.warm_, true);
  // A counter that was reset meanwhile has a smaller value.
  if (first || !after || *after < *before_) return std::nullopt;
  return *after - *before_;
}

}  // namespace headrace::instruments
