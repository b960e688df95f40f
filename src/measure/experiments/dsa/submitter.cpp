// SPDX-License-Identifier: Apache-2.0
#include "measure/experiments/dsa/submitter.h"

#include <algorithm>

#include "core/check.h"

namespace headrace::experiment_dsa {

namespace {

constexpr Bytes kMostArea = 256_MiB;

}  // namespace

std::string_view to_string(DsaMethod method) {
  switch (method) {
    case DsaMethod::single: return "single";
    case DsaMethod::batch: return "batch";
    case DsaMethod::vectored: return "vectored";
  }
  return "unknown";
}

std::size_t copies_of_area(const DsaThread& thread) {
  const std::uint64_t most = std::max<std::uint64_t>(1, kMostArea / thread.bytes);
  return std::min<std::uint64_t>(thread.window, most);
}

DsaSubmitter::DsaSubmitter(dsa::OpenQueue& lane, const DsaThread& thread, const DsaArea& area)
    : lane_(lane), thread_(thread), area_(area) {
  CHECK(thread.at_once > 0 && thread.at_once <= thread.window && area.copies > 0);
}

Status DsaSubmitter::step() {
  polled_.clear();
  lane_.poll(polled_);
  for (dsa::Ended& each : polled_) {
    if (each.failure) return Unexpected(std::move(each.failure->why));
  }
  ended_ += polled_.size();
  const std::size_t count = std::min(thread_.at_once, thread_.copies - started_);
  if (count == 0 || started_ - ended_ + count > thread_.window) return {};
  orders_.clear();
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t offset = (started_ + i) % area_.copies * thread_.bytes.value;
    orders_.push_back({.copy = {.source = area_.from + offset,
                                .destination = area_.to + offset,
                                .bytes = thread_.bytes.value}});
  }
  auto taken = lane_.submit(orders_);
  if (!taken) return Unexpected(std::move(taken).error());
  started_ += *taken;
  return {};
}

}  // namespace headrace::experiment_dsa
