// SPDX-License-Identifier: Apache-2.0
#include "support/fake_cuda/settings.h"

#include <algorithm>
#include <charconv>
#include <utility>

namespace headrace::cuda::fake {
namespace {

bool read(std::string_view text, auto& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

// Reads 64, 64K, 25G; powers of two.
bool read_size(std::string_view text, std::size_t& value) {
  unsigned shift = 0;
  for (const auto& [letter, by] : {std::pair{'K', 10U}, {'M', 20U}, {'G', 30U}, {'T', 40U}}) {
    if (text.ends_with(letter)) shift = by;
  }
  if (shift > 0) text.remove_suffix(1);
  std::size_t number = 0;
  if (!read(text, number) || number > (SIZE_MAX >> shift)) return false;
  value = number << shift;
  return true;
}

bool read_bandwidth(std::string_view text, double& value) {
  std::size_t bytes = 0;
  if (!read_size(text, bytes)) return false;
  value = static_cast<double>(bytes);
  return true;
}

// Reads 10us, 3ms, 500ns.
bool read_duration(std::string_view text, std::chrono::nanoseconds& value) {
  using namespace std::string_view_literals;
  for (const auto& [unit, ns] : {std::pair{"ns"sv, 1L}, {"us"sv, 1000L}, {"ms"sv, 1000000L}}) {
    std::int64_t number = 0;
    if (!text.ends_with(unit)) continue;
    text.remove_suffix(unit.size());
    if (!read(text, number) || number < 0 || number > INT64_MAX / ns) return false;
    value = std::chrono::nanoseconds(number * ns);
    return true;
  }
  return false;
}

bool read_paradigm(std::string_view text, Paradigm& value) {
  using Named = std::pair<std::string_view, Paradigm>;
  for (const auto& [name, paradigm] :
       {Named{"ats", Paradigm::ats}, Named{"hmm", Paradigm::hmm},
        Named{"managed", Paradigm::managed}, Named{"limited", Paradigm::limited}}) {
    if (text != name) continue;
    value = paradigm;
    return true;
  }
  return false;
}

// Returns whether the key is known and the value valid.
bool set(Settings& s, std::string_view key, std::string_view value) {
  if (key == "devices") return read(value, s.devices) && s.devices <= 16;
  if (key == "memory") return read_size(value, s.memory);
  if (key == "paradigm") return read_paradigm(value, s.paradigm);
  if (key == "engines") return read(value, s.engines) && s.engines >= 1 && s.engines <= 8;
  if (key == "sms") return read(value, s.sms) && s.sms >= 1;
  if (key == "l2") return read_size(value, s.l2);
  if (key == "compute") return read(value, s.compute) && s.compute >= 50;
  if (key == "host_node") return read(value, s.host_node) && s.host_node >= -1;
  if (key == "numa_node") return read(value, s.numa_node) && s.numa_node >= -1;
  if (key == "bandwidth") return read_bandwidth(value, s.bandwidth);
  if (key == "latency") return read_duration(value, s.latency);
  if (key == "register_limit") return read_size(value, s.register_limit);
  if (key == "seed") return read(value, s.seed);
  if (key == "fail") return read(value, s.fail) && s.fail >= 0 && s.fail <= 1;
  if (key == "lost_after") return read(value, s.lost_after);
  if (key == "stall_after") return read(value, s.stall_after);
  if (key == "descriptor_cost") return read(value, s.descriptor_cost);
  if (key == "call_cost") return read(value, s.call_cost);
  if (key == "launch_cost") return read(value, s.launch_cost);
  if (key == "callback_cost") return read(value, s.callback_cost);
  if (key == "kernel_bandwidth") return read_bandwidth(value, s.kernel_bandwidth);
  if (key == "data") return read(value, s.data) && s.data <= 1;
  if (key == "capturing") return read(value, s.capturing) && s.capturing <= 1;
  if (key == "mig") return read(value, s.mig) && s.mig <= 1;
  return false;
}

}  // namespace

std::expected<Settings, std::string> parse_settings(std::string_view text) {
  Settings settings;
  // Figures measured on an H200 (docs/results/2026-11-27-gpu-link.md).
  std::string costs;
  if (text == "h200" || text.starts_with("h200,")) {
    costs =
        "bandwidth=51G,kernel_bandwidth=47G,call_cost=2300,descriptor_cost=780,"
        "launch_cost=5300,callback_cost=1970,data=0,memory=4G";
    costs += text.substr(4);
    text = costs;
  }
  while (!text.empty()) {
    const std::string_view item = text.substr(0, text.find(','));
    text.remove_prefix(std::min(text.size(), item.size() + 1));
    const std::size_t equals = item.find('=');
    if (equals == std::string_view::npos ||
        !set(settings, item.substr(0, equals), item.substr(equals + 1))) {
      return std::unexpected("HEADRACE_FAKE_CUDA: cannot read '" + std::string(item) +
                             "'; tests/support/fake_cuda/README.md has the keys");
    }
  }
  if (settings.numa_node >= 0 && settings.paradigm != Paradigm::ats) {
    return std::unexpected("HEADRACE_FAKE_CUDA: numa_node needs paradigm=ats");
  }
  return settings;
}

}  // namespace headrace::cuda::fake
