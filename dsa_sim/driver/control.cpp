// SPDX-License-Identifier: Apache-2.0
#include "dsa_sim/driver/control.h"

#include <fmt/core.h>
#include <fmt/format.h>

#include <charconv>
#include <vector>

#include "core/fail.h"

namespace headrace::emulator {
namespace {

std::vector<std::string_view> split(std::string_view text, char at) {
  std::vector<std::string_view> parts;
  while (!text.empty()) {
    const std::size_t end = text.find(at);
    if (end != 0) parts.push_back(text.substr(0, end));
    text.remove_prefix(end == text.npos ? text.size() : end + 1);
  }
  return parts;
}

Status of_queue(const Bus& bus, std::string_view what, std::string_view name) {
  HEADRACE_TRY(const Bus::QueueName found, bus.find_queue(name));
  if (what == "disable") {
    found.device->disable(found.queue);
  } else {
    found.device->enable(found.queue);
  }
  return {};
}

Status of_device(const Bus& bus, std::string_view what, std::string_view name) {
  HEADRACE_TRY(ServedDevice * device, bus.find_device(name));
  if (what == "halt") {
    device->device().halt();
  } else {
    device->device().recover();
  }
  return {};
}

Status of_chance(const Bus& bus, std::string_view what, std::string_view text,
                 std::string_view name) {
  double chance = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), chance);
  const bool number = error == std::errc{} && end == text.data() + text.size();
  if (!number || !(chance >= 0 && chance <= 1)) {
    return fail(ErrorCode::invalid, "'{}' is no chance; give 0 to 1", text);
  }
  HEADRACE_TRY(ServedDevice * device, bus.find_device(name));
  if (device->chances().set(what, chance)) return {};
  return fail(ErrorCode::invalid,
              "no chance '{}'; there are fail, fault-pages, lose-records, unknown-statuses", what);
}

Status command(const Bus& bus, std::string_view line) {
  const std::vector<std::string_view> words = split(line, ' ');
  if (words.empty()) return {};
  if (words.size() == 2 && (words[0] == "disable" || words[0] == "enable")) {
    return of_queue(bus, words[0], words[1]);
  }
  if (words.size() == 2 && (words[0] == "halt" || words[0] == "recover")) {
    return of_device(bus, words[0], words[1]);
  }
  if (words.size() == 3) return of_chance(bus, words[0], words[1], words[2]);
  return fail(ErrorCode::invalid,
              "'{}' is no command; there are disable and enable with a queue, halt and recover "
              "with a device, and fail, fault-pages, lose-records, unknown-statuses with a chance "
              "and a device",
              line);
}

}  // namespace

Status control(const Bus& bus, std::string_view text) {
  for (const std::string_view line : split(text, '\n')) HEADRACE_TRY_STATUS(command(bus, line));
  return {};
}

std::string status_text(const Bus& bus) {
  std::string text;
  for (const auto& device : bus.devices()) {
    const DeviceStats stats = device->device().stats();
    std::uint64_t executed = 0;
    for (const auto& [opcode, count] : stats.executed) executed += count;
    text += fmt::format(
        "{} {} accepted {} retried {} dropped {} discarded {} executed {} failed {} faults {} "
        "abandoned {} records-lost {}\n",
        device->setup().name, device->device().halted() ? "halted" : "enabled", stats.accepted,
        stats.retried, stats.dropped, stats.discarded, executed, stats.failed, stats.faults,
        stats.abandoned, stats.records_lost);
    for (std::size_t i = 0; i < device->setup().queues.size(); ++i) {
      text += fmt::format("wq{}.{} {} clients {} occupancy {}\n", device->number(), i,
                          device->configured(i) ? "enabled" : "disabled", device->clients(i),
                          device->device().occupancy(i));
    }
  }
  return text;
}

}  // namespace headrace::emulator
