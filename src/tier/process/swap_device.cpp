// SPDX-License-Identifier: Apache-2.0
#include "tier/process/swap_device.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <random>
#include <ranges>
#include <sstream>

#include "headrace/clock.h"
#include "host/kernel.h"
#include "memory/memory.h"

namespace headrace {
namespace {

constexpr int kReads = 32;
constexpr Nanoseconds kLongest = std::chrono::milliseconds{100};

// The kernel writes blanks and similar characters as \ and three octal digits.
std::string unescaped(std::string_view name) {
  std::string text;
  for (std::size_t i = 0; i < name.size(); ++i) {
    const bool escaped =
        name[i] == '\\' && name.size() - i > 3 &&
        std::ranges::all_of(name.substr(i + 1, 3), [](char c) { return c >= '0' && c <= '7'; });
    if (!escaped) {
      text += name[i];
      continue;
    }
    text +=
        static_cast<char>((name[i + 1] - '0') * 64 + (name[i + 2] - '0') * 8 + (name[i + 3] - '0'));
    i += 3;
  }
  return text;
}

}  // namespace

std::vector<SwapDevice> parse_swaps(std::string_view text) {
  std::vector<SwapDevice> devices;
  for (const auto line : std::views::split(text, '\n')) {
    std::istringstream words(std::string(line.begin(), line.end()));
    std::string name, kind;
    std::uint64_t size = 0, used = 0;
    int priority = 0;
    if (!(words >> name >> kind >> size >> used >> priority)) continue;
    devices.push_back({unescaped(name), Bytes{size << 10}, Bytes{used << 10}, priority});
  }
  return devices;
}

std::vector<SwapDevice> next_in_turn(const std::vector<SwapDevice>& devices) {
  std::vector<SwapDevice> next;
  for (const SwapDevice& each : devices) {
    if (each.used >= each.size || (!next.empty() && each.priority < next.front().priority)) {
      continue;
    }
    if (!next.empty() && each.priority > next.front().priority) next.clear();
    next.push_back(each);
  }
  return next.empty() ? devices : next;
}

std::optional<Nanoseconds> time_of_read(const SwapDevice& device) {
  const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  const int descriptor = ::open(device.path.c_str(), O_RDONLY | O_DIRECT | O_CLOEXEC);
  if (descriptor < 0) return std::nullopt;
  const OwnDescriptor file(descriptor);
  const auto buffer = MappedMemory::make({page}, {1}, {1}, PROT_READ | PROT_WRITE);
  if (!buffer || device.size.value < page) return std::nullopt;
  // A new seed each time: pages read before may be in a cache of the device.
  std::mt19937_64 random{std::random_device{}()};
  const Nanoseconds began = system_clock().now();
  Nanoseconds all{};
  int reads = 0;
  while (reads < kReads && all < kLongest) {
    const auto at = static_cast<off_t>(random() % (device.size.value / page) * page);
    if (::pread(file.get(), buffer->memory(), page, at) != static_cast<ssize_t>(page)) {
      return std::nullopt;
    }
    all = system_clock().now() - began;
    ++reads;
  }
  return all / reads;
}

}  // namespace headrace
