// SPDX-License-Identifier: Apache-2.0
#include "dsa_sim/driver/attributes.h"

#include <fmt/core.h>
#include <fmt/format.h>

#include <array>
#include <charconv>
#include <optional>
#include <utility>

namespace headrace::emulator {
namespace {

// What the emulator has no number for.
constexpr unsigned kReadBuffers = 96;   // accel-config list of a Sapphire Rapids (idxd-config #40)
constexpr unsigned kEventLogSize = 64;  // IDXD_EVL_SIZE_MIN

// Values of a queue that is not configured: WQ_DEFAULT_MAX_XFER, WQ_DEFAULT_MAX_BATCH.
constexpr std::uint64_t kDefaultTransfer = 2 << 20;
constexpr std::uint32_t kDefaultBatch = 32;

// DEVICE_VERSION_2 of the driver.
constexpr std::uint32_t kVersion2 = 0x200;

using Show = std::function<std::string()>;

// What the kernel prints of a bitmap ("%*pb"): 32 bits at a time, the highest first.
std::string bitmap(const std::array<std::uint64_t, 4>& words) {
  std::string text;
  for (std::size_t i = words.size(); i-- > 0;) {
    text += fmt::format("{:08x},{:08x}{}", words[i] >> 32, words[i] & 0xffffffff, i > 0 ? "," : "");
  }
  return text;
}

// Without the bit of batches where write() refuses them.
std::string operations(const ServedDevice& device, Opcodes opcodes) {
  if (!device.takes_batches()) opcodes.set(Opcode::batch, false);
  return bitmap(opcodes.words());
}

Answer<void> forbid(std::string_view) { return refuse(std::errc::operation_not_permitted); }
Answer<void> ignore(std::string_view) { return {}; }

Attribute fixed(const std::string& name, const auto& value) {
  return {.name = name,
          .mode = 0444,
          .show = [text = fmt::format("{}\n", value)] { return text; },
          .store = {}};
}

Attribute live(std::string name, std::function<std::string()> show) {
  return {.name = std::move(name),
          .mode = 0444,
          .show = [show = std::move(show)] { return show() + "\n"; },
          .store = {}};
}

// 0644 in sysfs, though hardly ever may it be written.
Attribute writable(Attribute attribute, std::function<Answer<void>(std::string_view)> store) {
  attribute.mode = 0644;
  attribute.store = std::move(store);
  return attribute;
}

int clients_of(const ServedDevice& device) {
  int clients = 0;
  for (std::size_t i = 0; i < device.setup().queues.size(); ++i) clients += device.clients(i);
  return clients;
}

std::string error_of(const ServedDevice& device) {
  const std::uint64_t code = device.error();
  return bitmap({code == 0 ? 0 : code << 8 | 1, 0, 0, 0});
}

// Groups get engines in order: the one of `engine`; nothing: of none.
std::optional<std::size_t> group_of(const DeviceSetup& setup, std::size_t engine) {
  std::size_t end = 0;
  for (std::size_t i = 0; i < setup.groups.size(); ++i) {
    end += setup.groups[i].engines;
    if (engine < end) return i;
  }
  return std::nullopt;
}

// One value of a queue: of its set-up while it is configured, else what the driver resets it to.
class QueueValues {
 public:
  QueueValues(ServedDevice& device, std::size_t queue) : device_(device), queue_(queue) {}

  Attribute value(std::string name, auto member, const auto& reset) const {
    return chosen(
        std::move(name), [member](const QueueSetup& setup) { return setup.*member; }, reset);
  }

  Attribute chosen(std::string name, auto choose, const auto& reset) const {
    ServedDevice& device = device_;
    const std::size_t queue = queue_;
    return live(std::move(name), [&device, queue, choose, reset] {
      if (!is_configured(device, queue)) return fmt::format("{}", reset);
      return fmt::format("{}", choose(device.setup().queues[queue]));
    });
  }

  static bool is_configured(const ServedDevice& device, std::size_t queue) {
    return queue < device.setup().queues.size() && device.configured(queue) &&
           !device.device().halted();
  }

 private:
  ServedDevice& device_;
  const std::size_t queue_;
};

Answer<void> store_retries(ServedDevice& device, std::size_t queue, std::string_view text) {
  if (!device.setup().queues[queue].shared) return refuse(std::errc::operation_not_supported);
  while (text.ends_with('\n')) text.remove_suffix(1);
  unsigned value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || text.empty()) {
    return refuse(std::errc::invalid_argument);
  }
  device.set_retries(queue, value);
  return {};
}

Attribute retries_attribute(ServedDevice& device, std::size_t queue, bool known) {
  Attribute attribute{.name = "enqcmds_retries"};
  attribute.show = [&device, queue, known]() -> Answer<std::string> {
    if (!known) return fmt::format("{}\n", kRetries);
    if (!device.setup().queues[queue].shared) return refuse(std::errc::operation_not_supported);
    return fmt::format("{}\n", device.retries(queue));
  };
  return writable(std::move(attribute), [&device, queue, known](std::string_view text) {
    return known ? store_retries(device, queue, text) : forbid(text);
  });
}

Attribute minor_attribute(const Bus& bus, ServedDevice& device, std::size_t queue, bool known) {
  return {.name = "cdev_minor",
          .mode = 0444,
          .show = [&bus, &device, queue, known]() -> Answer<std::string> {
            if (!known || !device.configured(queue)) {
              return refuse(std::errc::no_such_device_or_address);
            }
            return fmt::format("{}\n", minor_of(bus, device, queue));
          },
          .store = {}};
}

// Those that the driver shows only where the device has what they switch (WQCAP): no listing of a
// device of version 1 has them.
void add_of_version_2(std::vector<Attribute>& attributes, ServedDevice& device, std::size_t queue) {
  const QueueValues values(device, queue);
  const auto own = [&device](const QueueSetup& setup) {
    return operations(device, setup.op_config.value_or(device.setup().op_cap));
  };
  attributes.push_back(writable(fixed("ats_disable", 0), forbid));
  attributes.push_back(writable(fixed("prs_disable", 0), forbid));
  attributes.push_back(
      writable(values.chosen("op_config", own, operations(device, device.setup().op_cap)), forbid));
}

}  // namespace

unsigned minor_of(const Bus& bus, const ServedDevice& device, std::size_t queue) {
  auto minor = static_cast<unsigned>(queue);
  for (const auto& other : bus.devices()) {
    if (other.get() == &device) break;
    minor += static_cast<unsigned>(other->setup().queues.size());
  }
  return minor;
}

std::vector<Attribute> device_attributes(ServedDevice& device) {
  const DeviceSetup& setup = device.setup();
  std::vector<Attribute> attributes = {
      fixed("version", fmt::format("{:#x}", setup.version)),
      fixed("max_groups", setup.max_groups),
      fixed("max_work_queues", setup.max_queues),
      fixed("max_work_queues_size", setup.max_queues_size),
      fixed("max_engines", setup.max_engines),
      fixed("numa_node", setup.numa_node),
      fixed("max_batch_size", setup.gen_cap.max_batch()),
      fixed("max_transfer_size", setup.gen_cap.max_transfer()),
      fixed("op_cap", operations(device, setup.op_cap)),
      fixed("gen_cap", fmt::format("{:#x}", setup.gen_cap.bits)),
      fixed("configurable", setup.gen_cap.bits >> 31 & 1),
      live("clients", [&device] { return fmt::format("{}", clients_of(device)); }),
      fixed("pasid_enabled", 1),
      live("state", [&device] { return device.device().halted() ? "halted" : "enabled"; }),
      live("errors", [&device] { return error_of(device); }),
      fixed("max_tokens", kReadBuffers),
      fixed("max_read_buffers", kReadBuffers),
      writable(fixed("token_limit", 0), forbid),
      writable(fixed("read_buffer_limit", 0), forbid),
      fixed("cdev_major", kMajor),
      writable(fixed("cmd_status", "0x0"), ignore),
  };
  const bool event_log = (setup.gen_cap.bits >> 13 & 3) != 0;
  if (event_log) attributes.push_back(writable(fixed("event_log_size", kEventLogSize), forbid));
  return attributes;
}

std::vector<Attribute> queue_attributes(const Bus& bus, ServedDevice& device, std::size_t queue) {
  const bool known = queue < device.setup().queues.size();
  const QueueSetup none{.size = 0};
  const QueueSetup& setup = known ? device.setup().queues[queue] : none;
  const QueueValues values(device, queue);
  const auto state = [&device, queue] {
    return QueueValues::is_configured(device, queue) ? "enabled" : "disabled";
  };
  const auto mode = [](const QueueSetup& of) { return of.shared ? "shared" : "dedicated"; };
  const auto word = [](const char* text) { return [text](const QueueSetup&) { return text; }; };
  const auto threshold = [](const QueueSetup& of) { return of.shared ? of.threshold : 0; };
  const auto blocks = [](const QueueSetup& of) { return of.block_on_fault ? 1 : 0; };
  const auto clients = [&device, queue, known] {
    return fmt::format("{}", known ? device.clients(queue) : 0);
  };
  const auto occupancy = [&device, queue, known] {
    return fmt::format("{}", known ? device.device().occupancy(queue) : 0);
  };
  std::vector<Attribute> attributes = {
      live("clients", clients),
      live("state", state),
      writable(fixed("group_id", known ? static_cast<int>(setup.group) : -1), forbid),
      writable(values.chosen("mode", mode, "shared"), forbid),
      writable(fixed("size", setup.size), forbid),
      writable(values.value("priority", &QueueSetup::priority, 0), forbid),
      writable(values.chosen("block_on_fault", blocks, 0), forbid),
      writable(values.chosen("threshold", threshold, 0), forbid),
      writable(values.chosen("type", word("user"), "none"), forbid),
      writable(values.chosen("name", word("headrace"), ""), forbid),
      writable(values.chosen("driver_name", word("user"), ""), forbid),
      minor_attribute(bus, device, queue, known),
      writable(values.value("max_transfer_size", &QueueSetup::max_transfer, kDefaultTransfer),
               forbid),
      writable(values.value("max_batch_size", &QueueSetup::max_batch, kDefaultBatch), forbid),
      live("occupancy", occupancy),
      retries_attribute(device, queue, known),
  };
  if (device.setup().version >= kVersion2) add_of_version_2(attributes, device, queue);
  return attributes;
}

std::vector<Attribute> group_attributes(ServedDevice& device, std::size_t group) {
  const DeviceSetup& setup = device.setup();
  std::string queues;
  for (std::size_t i = 0; i < setup.queues.size(); ++i) {
    if (setup.queues[i].group != group) continue;
    queues += fmt::format("{}wq{}.{}", queues.empty() ? "" : " ", device.number(), i);
  }
  std::string engines;
  for (std::size_t i = 0; i < setup.max_engines; ++i) {
    if (group_of(setup, i) != group) continue;
    engines += fmt::format("{}engine{}.{}", engines.empty() ? "" : " ", device.number(), i);
  }
  // For an empty list the driver prints nothing, not even the end of the line.
  const auto list = [](std::string name, const std::string& text) {
    return Attribute{.name = std::move(name),
                     .show = [line = text.empty() ? "" : text + "\n"] { return line; }};
  };
  std::vector<Attribute> attributes = {list("work_queues", queues), list("engines", engines)};
  for (const char* name : {"use_token_limit", "use_read_buffer_limit", "tokens_allowed",
                           "read_buffers_allowed", "tokens_reserved", "read_buffers_reserved"}) {
    attributes.push_back(writable(fixed(name, 0), forbid));
  }
  const int traffic_class = setup.version <= kVersion2 ? 1 : -1;
  attributes.push_back(writable(fixed("traffic_class_a", traffic_class), forbid));
  attributes.push_back(writable(fixed("traffic_class_b", traffic_class), forbid));
  if (setup.version >= kVersion2) {
    attributes.push_back(writable(fixed("desc_progress_limit", 0), forbid));
    attributes.push_back(writable(fixed("batch_progress_limit", 0), forbid));
  }
  return attributes;
}

std::vector<Attribute> engine_attributes(ServedDevice& device, std::size_t engine) {
  const std::optional<std::size_t> group = group_of(device.setup(), engine);
  return {writable(fixed("group_id", group ? static_cast<int>(*group) : -1), forbid)};
}

}  // namespace headrace::emulator
