// SPDX-License-Identifier: Apache-2.0
// Machine <-> JSON. Each record lists its fields once, in `fields`, for the writer and the reader.
// All fields are written, in this order, unknown ones as null; only those that few records have are
// left out. The reader ignores unknown fields and requires only ids and kinds.

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <concepts>
#include <limits>
#include <nlohmann/json.hpp>

#include "core/check.h"
#include "core/text/json.h"
#include "core/text/printable.h"
#include "headrace/machine.h"
#include "headrace/version.h"
#include "topology/json_reader.h"
#include "topology/topology.h"

namespace headrace {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::uint64_t kMaxId = std::numeric_limits<std::uint32_t>::max();
constexpr std::uint64_t kMaxBytes = std::numeric_limits<std::uint64_t>::max();
constexpr std::uint64_t kMaxNanoseconds = std::numeric_limits<std::int64_t>::max();
// As in parse_cpu_list.
constexpr std::uint64_t kMaxCpu = (1u << 16) - 1;
// SLIT distances are bytes (ACPI 6.5, 5.2.17). The larger limit allows for kernels that compute
// their own.
constexpr std::uint64_t kMaxDistance = 65535;

constexpr const auto& words_of(NodeKind) { return kNodeKinds; }
constexpr const auto& words_of(EngineKind) { return kEngineKinds; }
constexpr const auto& words_of(LinkKind) { return kLinkKinds; }
constexpr const auto& words_of(GpuParadigm) { return kGpuParadigms; }

// A record, constant for the writer.
template <class T, class Of>
concept Is = std::same_as<std::remove_const_t<T>, Of>;

void fields(auto& at, Is<AccessAttributes> auto& access) {
  at("initiator", access.initiator);
  at("read_latency_ns", access.read_latency);
  at("write_latency_ns", access.write_latency);
  at("read_bandwidth_bytes_per_second", access.read_bandwidth);
  at("write_bandwidth_bytes_per_second", access.write_bandwidth);
  at("source", access.source);
  at("measured", access.measured);
}

void fields(auto& at, Is<GpuAttributes> auto& gpu) {
  at("pci", gpu.pci);
  at("uuid", gpu.uuid);
  at("paradigm", gpu.paradigm);
  at("copy_engines", gpu.copy_engines, 255);
  at("host", gpu.host);
  at("emulated", gpu.emulated);
}

void fields(auto& at, Is<MemorySideCache> auto& cache) {
  at("size_bytes", cache.size);
  at("line_bytes", cache.line);
  at("indexing", cache.indexing);
  at("write_policy", cache.write_policy);
}

void fields(auto& at, Is<Node> auto& node) {
  at("id", node.id);
  at("kind", node.kind);
  at("reason", node.reason);
  at("capacity_bytes", node.capacity);
  at("capacity_source", node.capacity_source);
  at("name", node.name);
  at("cpus", node.cpus, kMaxCpu);
  at("distances", node.distances);
  at("access", node.access);
  at("path", node.path);
  at("socket", node.socket);
  at.rare("gpu", node.gpu);
  at.rare("memory_side_cache", node.side_cache);
}

void fields(auto& at, Is<CacheLevel> auto& cache) {
  at("level", cache.level, 255);
  at("size_bytes", cache.size);
  at("cpus", cache.cpus, kMaxCpu);
}

void fields(auto& at, Is<Engine> auto& engine) {
  at("id", engine.id);
  at("kind", engine.kind);
  at("name", engine.name);
  at("home", engine.home);
  at("reason", engine.reason);
}

void fields(auto& at, Is<Link> auto& link) {
  at("kind", link.kind);
  at("a", link.a);
  at("b", link.b);
  at("reason", link.reason);
  at("each_way_bytes_per_second", link.each_way);
  at("each_way_source", link.each_way_source);
  at("both_ways_bytes_per_second", link.both_ways);
  at("both_ways_source", link.both_ways_source);
  at("latency_ns", link.latency);
  at("latency_source", link.latency_source);
}

void fields(auto& at, Is<CopyRate> auto& rate) {
  at("engine", rate.engine);
  at("from", rate.from);
  at("to", rate.to);
  at("latency_ns", rate.latency);
  at("bandwidth_bytes_per_second", rate.bandwidth);
  at("source", rate.source);
  at.gather(rate.gather);
}

void fields(auto& at, Is<Machine> auto& machine) {
  at("name", machine.name);
  at("description", machine.description);
  at("source", machine.source);
  at("nodes", machine.nodes);
  at("caches", machine.caches);
  at("engines", machine.engines);
  at("links", machine.links);
  at("copy_rates", machine.copy_rates);
  at("warnings", machine.warnings);
  at("provenance", machine.provenance);
  at.object("model", machine.model);
}

class FieldWriter {
 public:
  template <class T>
  void operator()(const char* name, const T& value, std::uint64_t = 0) {
    json[name] = written(value);
  }
  template <class T>
  void rare(const char* name, const std::optional<T>& value) {
    if (value) json[name] = written(*value);
  }
  void gather(const std::optional<GatherLimit>& limit) {
    if (!limit) return;
    json["gather_bytes"] = limit->bytes.value;
    json["gather_count"] = limit->count;
  }
  void object(const char* name, const std::string& text) {
    if (text.empty()) return;
    Json object = Json::parse(text, nullptr, false);
    CHECK(object.is_object());
    json[name] = std::move(object);
  }

  Json json = Json::object();

 private:
  static Json written(Bytes bytes) { return bytes.value; }
  static Json written(BytesPerSecond rate) { return rate.value; }
  static Json written(Nanoseconds time) { return time.count(); }
  template <class T>
  static Json written(const std::optional<T>& value) {
    return value ? written(*value) : Json(nullptr);
  }
  template <class T>
  static Json written(const std::vector<T>& items) {
    Json array = Json::array();
    for (const T& each : items) array.push_back(written(each));
    return array;
  }
  static Json written(const std::map<NodeId, unsigned>& distances) {
    Json object = Json::object();
    for (const auto& [id, distance] : distances) object[std::to_string(raw(id))] = distance;
    return object;
  }
  // Numbers, texts and maps of texts; ids, words of enums; records.
  template <class T>
  static Json written(const T& value) {
    if constexpr (std::is_constructible_v<Json, T> && !std::is_enum_v<T>) {
      return value;
    } else if constexpr (requires { to_string(value); }) {
      return to_string(value);
    } else if constexpr (std::is_enum_v<T>) {
      return raw(value);
    } else {
      FieldWriter record;
      fields(record, value);
      return std::move(record.json);
    }
  }
};

// Sorts the parsed values, and reports errors in them.
void check(const JsonReader& at, MemorySideCache& cache) {
  if (cache.size == Bytes{0}) at.wrong("size_bytes", "must be above 0");
}
void check(const JsonReader& at, Link& link) {
  if (link.a.empty()) at.wrong("a", "must name at least one node");
  if (link.b.empty()) at.wrong("b", "must name at least one node");
  // A limit of 0 would allow no traffic.
  const BytesPerSecond none{0};
  if (link.each_way == none) at.wrong("each_way_bytes_per_second", "must be above 0");
  if (link.both_ways == none) at.wrong("both_ways_bytes_per_second", "must be above 0");
}
void check(const JsonReader& at, CopyRate& rate) {
  if (rate.bandwidth.value <= 0) at.wrong("bandwidth_bytes_per_second", "must be above 0");
}
void check(const JsonReader&, auto& record) {
  if constexpr (requires { record.cpus; }) {
    std::ranges::sort(record.cpus);
    record.cpus.erase(std::ranges::unique(record.cpus).begin(), record.cpus.end());
  }
}

class FieldReader {
 public:
  explicit FieldReader(const JsonReader& at) : at_(at) {}

  // `max`: of numbers.
  template <class T>
  void operator()(const char* name, T& value, std::uint64_t max = kMaxId) {
    if (const auto found = at_.child(name)) {
      take(*found, value, max);
    } else if constexpr (!requires { value.has_value(); } && !std::same_as<T, std::string> &&
                         !std::same_as<T, bool> && !std::same_as<T, Nanoseconds>) {
      at_.wrong(name, "is missing");
    }
  }
  template <class T>
  void operator()(const char* name, std::vector<T>& items, std::uint64_t max = kMaxId) {
    at_.elements(name, [&](const JsonReader& each) { take(each, items.emplace_back(), max); });
  }
  void operator()(const char* name, std::map<std::string, std::string>& texts) {
    at_.members(name, [&](const std::string& key, const JsonReader& value) {
      texts[key] = value.as_text();
    });
  }
  void operator()(const char* name, std::map<NodeId, unsigned>& distances) {
    at_.members(name, [&](const std::string& key, const JsonReader& value) {
      std::uint32_t id = 0;
      const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
      if (error != std::errc{} || end != key.data() + key.size()) value.wrong("", "is no node id");
      distances[NodeId{id}] = static_cast<unsigned>(value.as_integer(kMaxDistance));
    });
  }
  template <class T>
  void rare(const char* name, std::optional<T>& value) {
    (*this)(name, value);
  }
  void gather(std::optional<GatherLimit>& limit) {
    const auto bytes = at_.optional_integer("gather_bytes", kMaxBytes);
    if (bytes) limit = {.bytes = Bytes{*bytes}, .count = at_.integer("gather_count", kMaxId)};
  }
  void object(const char* name, std::string& text) {
    const Json* found = at_.field(name);
    if (found == nullptr) return;
    if (!found->is_object()) return at_.wrong(name, "must be an object");
    text = found->dump();
  }

 private:
  // Writes the JSON value into `to`: a quantity, a text, an id, a word of an enum, or a record.
  static void take(const JsonReader& value, std::string& to, std::uint64_t) {
    to = value.as_text();
  }
  static void take(const JsonReader& value, bool& to, std::uint64_t) { to = value.as_flag(); }
  static void take(const JsonReader& value, Bytes& to, std::uint64_t) {
    to.value = value.as_integer(kMaxBytes);
  }
  static void take(const JsonReader& value, BytesPerSecond& to, std::uint64_t) {
    to.value = value.as_number();
  }
  static void take(const JsonReader& value, Nanoseconds& to, std::uint64_t) {
    to = Nanoseconds{static_cast<std::int64_t>(value.as_integer(kMaxNanoseconds))};
  }
  template <class T>
  static void take(const JsonReader& value, std::optional<T>& to, std::uint64_t max) {
    take(value, to.emplace(), max);
  }
  template <class T>
  static void take(const JsonReader& value, T& to, std::uint64_t max) {
    if constexpr (requires { words_of(to); }) {
      const auto found = words_of(to).parse(value.as_text());
      if (found) to = *found;
      if (!found) value.wrong("", found.error().message);
    } else if constexpr (std::is_integral_v<T> || std::is_enum_v<T>) {
      to = T{static_cast<std::uint32_t>(value.as_integer(max))};
    } else {
      FieldReader reader(value);
      fields(reader, to);
      check(value, to);
    }
  }

  const JsonReader& at_;
};

// Each id is unique, and every referenced id exists.
void check_references(const Machine& machine, const JsonReader& at) {
  const auto twice = std::ranges::adjacent_find(machine.nodes, {}, &Node::id);
  if (twice != machine.nodes.end()) {
    at.wrong("nodes", fmt::format("node {} is there twice", raw(twice->id)));
  }
  const auto need = [&](NodeId id, std::string_view list, std::size_t index,
                        std::string_view name) {
    if (machine.find(id) != nullptr) return;
    at.wrong(fmt::format("{}[{}].{}", list, index, name), fmt::format("no node {}", raw(id)));
  };
  for (std::size_t i = 0; i < machine.nodes.size(); ++i) {
    const Node& node = machine.nodes[i];
    for (const auto& [id, distance] : node.distances) need(id, "nodes", i, "distances");
    for (const auto& access : node.access) need(access.initiator, "nodes", i, "access");
    if (node.gpu && node.gpu->host) need(*node.gpu->host, "nodes", i, "gpu.host");
  }
  for (std::size_t i = 0; i < machine.engines.size(); ++i) {
    if (raw(machine.engines[i].id) != i) {
      at.wrong(fmt::format("engines[{}].id", i),
               fmt::format("must be {}; engines are numbered from 0 in order", i));
    }
    need(machine.engines[i].home, "engines", i, "home");
  }
  for (std::size_t i = 0; i < machine.links.size(); ++i) {
    for (const NodeId id : machine.links[i].a) need(id, "links", i, "a");
    for (const NodeId id : machine.links[i].b) need(id, "links", i, "b");
  }
  for (std::size_t i = 0; i < machine.copy_rates.size(); ++i) {
    const CopyRate& rate = machine.copy_rates[i];
    need(rate.from, "copy_rates", i, "from");
    need(rate.to, "copy_rates", i, "to");
    if (machine.find(rate.engine) == nullptr) {
      at.wrong(fmt::format("copy_rates[{}].engine", i),
               fmt::format("no engine {}", raw(rate.engine)));
    }
  }
}

}  // namespace

Machine read_machine(const JsonReader& at) {
  if (at.integer("schema_version", kMaxId) != kSchemaVersion) {
    at.wrong("schema_version",
             fmt::format("must be {}; write the file again with this version", kSchemaVersion));
  }
  Machine machine;
  FieldReader reader(at);
  fields(reader, machine);
  std::ranges::sort(machine.nodes, {}, &Node::id);
  if (!at.failed()) check_references(machine, at);
  return machine;
}

nlohmann::ordered_json json_of(const Machine& machine) {
  FieldWriter writer;
  writer("schema_version", kSchemaVersion);
  fields(writer, machine);
  return std::move(writer.json);
}

Result<Machine> Machine::from_json(std::string_view text) {
  HEADRACE_TRY(const Json document, parse_document(text));
  HEADRACE_TRY_STATUS(check_has_no_kind(document, "machine", "headrace topo --json"));
  std::optional<Error> error;
  Machine machine = read_machine(JsonReader(document, "", error));
  if (error) return Unexpected(*std::move(error));
  return machine;
}

std::string Machine::to_json() const { return print_document(json_of(*this)); }

JsonReader::JsonReader(const Json& value, std::string place, std::optional<Error>& error)
    : value_(value), place_(std::move(place)), error_(error) {}

void JsonReader::wrong(std::string_view name, std::string_view what) const {
  if (error_) return;
  const std::string_view dot = place_.empty() || name.empty() ? "" : ".";
  const std::string at = fmt::format("{}{}{}", place_, dot, name);
  // Keys of the document are part of the location and may contain any bytes.
  error_ = Error{ErrorCode::invalid,
                 fmt::format("{}: {}", at.empty() ? "the document" : printable(at), what)};
}

const Json* JsonReader::field(std::string_view name) const {
  if (!value_.is_object()) {
    wrong("", "must be an object");
    return nullptr;
  }
  const auto found = value_.find(name);
  return found == value_.end() || found->is_null() ? nullptr : &*found;
}

const Json* JsonReader::typed(std::string_view name, Json::value_t type,
                              std::string_view type_name) const {
  const Json* found = field(name);
  if (found == nullptr || found->type() == type) return found;
  wrong(name, fmt::format("must be {}", type_name));
  return nullptr;
}

JsonReader JsonReader::inside(const Json& value, std::string_view name) const {
  return {value, fmt::format("{}{}{}", place_, place_.empty() ? "" : ".", name), error_};
}

std::optional<JsonReader> JsonReader::child(std::string_view name) const {
  const Json* found = field(name);
  return found == nullptr ? std::nullopt : std::optional(inside(*found, name));
}

std::optional<std::uint64_t> JsonReader::optional_integer(std::string_view name,
                                                          std::uint64_t max) const {
  const auto found = child(name);
  return found ? std::optional(found->as_integer(max)) : std::nullopt;
}

std::uint64_t JsonReader::integer(std::string_view name, std::uint64_t max) const {
  const auto found = optional_integer(name, max);
  if (!found) wrong(name, "is missing");
  return found.value_or(0);
}

std::optional<double> JsonReader::optional_number(std::string_view name) const {
  const auto found = child(name);
  return found ? std::optional(found->as_number()) : std::nullopt;
}

double JsonReader::number(std::string_view name) const {
  const auto found = optional_number(name);
  if (!found) wrong(name, "is missing");
  return found.value_or(0);
}

std::string JsonReader::text(std::string_view name) const {
  const Json* found = typed(name, Json::value_t::string, "a string");
  return found == nullptr ? std::string() : found->get<std::string>();
}

std::string JsonReader::required_text(std::string_view name) const {
  if (field(name) == nullptr) wrong(name, "is missing");
  return text(name);
}

std::uint64_t JsonReader::as_integer(std::uint64_t max) const {
  if (!value_.is_number_unsigned() || value_.get<std::uint64_t>() > max) {
    wrong("", fmt::format("must be a whole number from 0 to {}", max));
    return 0;
  }
  return value_.get<std::uint64_t>();
}

double JsonReader::as_number() const {
  const double value = value_.is_number() ? value_.get<double>() : -1;
  if (std::isfinite(value) && value >= 0) return value;
  wrong("", "must be a number from 0 up");
  return 0;
}

bool JsonReader::as_flag() const {
  if (!value_.is_boolean()) wrong("", "must be true or false");
  return value_.is_boolean() && value_.get<bool>();
}

bool JsonReader::is_text() const { return value_.is_string(); }

bool JsonReader::is_number() const { return value_.is_number(); }

std::string JsonReader::as_text() const {
  if (value_.is_string()) return value_.get<std::string>();
  wrong("", "must be a string");
  return {};
}

}  // namespace headrace
