// SPDX-License-Identifier: Apache-2.0
// Machine <-> JSON. All fields are written, in the order of machine.h, unknown ones as null; only
// `gpu` and `memory_side_cache`, which few nodes have, are left out. The reader ignores unknown
// fields and requires only ids and kinds.

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <nlohmann/json.hpp>

#include "core/fail.h"
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

template <class T, class Write>
Json optional_json(const std::optional<T>& value, Write write) {
  return value ? Json(write(*value)) : Json(nullptr);
}

Json json_of(const AccessAttributes& access) {
  const auto count = [](Nanoseconds time) { return time.count(); };
  const auto value = [](BytesPerSecond rate) { return rate.value; };
  return {{"initiator", raw(access.initiator)},
          {"read_latency_ns", optional_json(access.read_latency, count)},
          {"write_latency_ns", optional_json(access.write_latency, count)},
          {"read_bandwidth_bytes_per_second", optional_json(access.read_bandwidth, value)},
          {"write_bandwidth_bytes_per_second", optional_json(access.write_bandwidth, value)},
          {"source", access.source},
          {"measured", access.measured}};
}

Json json_of(const GpuAttributes& gpu) {
  return {{"pci", gpu.pci},
          {"uuid", gpu.uuid},
          {"paradigm", to_string(gpu.paradigm)},
          {"copy_engines", gpu.copy_engines},
          {"host", optional_json(gpu.host, [](NodeId id) { return raw(id); })},
          {"emulated", gpu.emulated}};
}

Json json_of(const MemorySideCache& cache) {
  return {{"size_bytes", cache.size.value},
          {"line_bytes", optional_json(cache.line, [](Bytes line) { return line.value; })},
          {"indexing", cache.indexing},
          {"write_policy", cache.write_policy}};
}

Json json_of(const Node& node) {
  Json distances = Json::object();
  for (const auto& [id, distance] : node.distances) {
    distances[std::to_string(raw(id))] = distance;
  }
  Json access = Json::array();
  for (const AccessAttributes& each : node.access) access.push_back(json_of(each));
  Json json{{"id", raw(node.id)},
            {"kind", to_string(node.kind)},
            {"reason", node.reason},
            {"capacity_bytes", optional_json(node.capacity, [](Bytes b) { return b.value; })},
            {"capacity_source", node.capacity_source},
            {"name", node.name},
            {"cpus", node.cpus},
            {"distances", std::move(distances)},
            {"access", std::move(access)},
            {"path", node.path},
            {"socket", optional_json(node.socket, [](unsigned socket) { return socket; })}};
  if (node.gpu) json["gpu"] = json_of(*node.gpu);
  if (node.side_cache) json["memory_side_cache"] = json_of(*node.side_cache);
  return json;
}

Json json_of(const CacheLevel& cache) {
  return {{"level", cache.level}, {"size_bytes", cache.size.value}, {"cpus", cache.cpus}};
}

Json json_of(const Engine& engine) {
  return {{"id", raw(engine.id)},
          {"kind", to_string(engine.kind)},
          {"name", engine.name},
          {"home", raw(engine.home)},
          {"reason", engine.reason}};
}

Json json_of(const Link& link) {
  const auto ids = [](const std::vector<NodeId>& nodes) {
    Json array = Json::array();
    for (const NodeId id : nodes) array.push_back(raw(id));
    return array;
  };
  const auto rate = [](BytesPerSecond limit) { return limit.value; };
  const auto count = [](Nanoseconds time) { return time.count(); };
  return {{"kind", to_string(link.kind)},
          {"a", ids(link.a)},
          {"b", ids(link.b)},
          {"reason", link.reason},
          {"each_way_bytes_per_second", optional_json(link.each_way, rate)},
          {"each_way_source", link.each_way_source},
          {"both_ways_bytes_per_second", optional_json(link.both_ways, rate)},
          {"both_ways_source", link.both_ways_source},
          {"latency_ns", optional_json(link.latency, count)},
          {"latency_source", link.latency_source}};
}

Json json_of(const CopyRate& rate) {
  Json json{{"engine", raw(rate.engine)},
            {"from", raw(rate.from)},
            {"to", raw(rate.to)},
            {"latency_ns", rate.latency.count()},
            {"bandwidth_bytes_per_second", rate.bandwidth.value},
            {"source", rate.source}};
  if (rate.gather) {
    json["gather_bytes"] = rate.gather->bytes.value;
    json["gather_count"] = rate.gather->count;
  }
  return json;
}

template <class T>
Json json_of_all(const std::vector<T>& items) {
  Json array = Json::array();
  for (const T& each : items) array.push_back(json_of(each));
  return array;
}

CpuSet read_cpus(const JsonReader& at) {
  CpuSet cpus;
  at.elements("cpus", [&](const JsonReader& cpu) {
    cpus.push_back(static_cast<unsigned>(cpu.as_integer(kMaxCpu)));
  });
  std::ranges::sort(cpus);
  cpus.erase(std::ranges::unique(cpus).begin(), cpus.end());
  return cpus;
}

NodeId read_node_id(const JsonReader& at, std::string_view name) {
  return NodeId{static_cast<std::uint32_t>(at.integer(name, kMaxId))};
}

NodeKind read_node_kind(const JsonReader& at) {
  const auto kind = parse_node_kind(at.required_text("kind"));
  if (!kind) at.wrong("kind", kind.error().message);
  return kind.value_or(NodeKind::dram);
}

EngineKind read_engine_kind(const JsonReader& at) {
  const std::string text = at.required_text("kind");
  for (const EngineKind kind :
       {EngineKind::cpu, EngineKind::ssd, EngineKind::dsa, EngineKind::gpu, EngineKind::migrate}) {
    if (to_string(kind) == text) return kind;
  }
  at.wrong("kind",
           fmt::format("no engine kind '{}'; say cpu, ssd, dsa, gpu or migrate", printable(text)));
  return EngineKind::cpu;
}

std::optional<Nanoseconds> read_time(const JsonReader& at, std::string_view name) {
  const auto count = at.optional_integer(name, kMaxNanoseconds);
  if (!count) return std::nullopt;
  return Nanoseconds{static_cast<std::int64_t>(*count)};
}

std::optional<BytesPerSecond> read_bandwidth(const JsonReader& at, std::string_view name) {
  const auto value = at.optional_number(name);
  return value ? std::optional(BytesPerSecond{*value}) : std::nullopt;
}

AccessAttributes read_access(const JsonReader& at) {
  return {.initiator = read_node_id(at, "initiator"),
          .read_latency = read_time(at, "read_latency_ns"),
          .write_latency = read_time(at, "write_latency_ns"),
          .read_bandwidth = read_bandwidth(at, "read_bandwidth_bytes_per_second"),
          .write_bandwidth = read_bandwidth(at, "write_bandwidth_bytes_per_second"),
          .source = at.text("source"),
          .measured = at.flag("measured")};
}

std::map<NodeId, unsigned> read_distances(const JsonReader& at) {
  std::map<NodeId, unsigned> distances;
  at.members("distances", [&](const std::string& key, const JsonReader& value) {
    std::uint32_t id = 0;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (error != std::errc{} || end != key.data() + key.size()) value.wrong("", "is no node id");
    distances[NodeId{id}] = static_cast<unsigned>(value.as_integer(kMaxDistance));
  });
  return distances;
}

GpuParadigm read_paradigm(const JsonReader& at) {
  const std::string text = at.required_text("paradigm");
  for (const GpuParadigm paradigm :
       {GpuParadigm::ats, GpuParadigm::hmm, GpuParadigm::managed, GpuParadigm::limited}) {
    if (to_string(paradigm) == text) return paradigm;
  }
  at.wrong("paradigm",
           fmt::format("no paradigm '{}'; say ats, hmm, managed or limited", printable(text)));
  return GpuParadigm::limited;
}

GpuAttributes read_gpu(const JsonReader& at) {
  GpuAttributes gpu{.pci = at.text("pci"),
                    .uuid = at.text("uuid"),
                    .paradigm = read_paradigm(at),
                    .copy_engines = static_cast<unsigned>(at.integer("copy_engines", 255)),
                    .emulated = at.flag("emulated")};
  if (const auto host = at.optional_integer("host", kMaxId)) {
    gpu.host = NodeId{static_cast<std::uint32_t>(*host)};
  }
  return gpu;
}

MemorySideCache read_side_cache(const JsonReader& at) {
  MemorySideCache cache{.size = {at.integer("size_bytes", kMaxBytes)},
                        .indexing = at.text("indexing"),
                        .write_policy = at.text("write_policy")};
  if (cache.size == Bytes{0}) at.wrong("size_bytes", "must be above 0");
  if (const auto line = at.optional_integer("line_bytes", kMaxBytes)) cache.line = Bytes{*line};
  return cache;
}

Node read_node(const JsonReader& at) {
  Node node{.id = read_node_id(at, "id"),
            .kind = read_node_kind(at),
            .reason = at.text("reason"),
            .name = at.text("name"),
            .capacity_source = at.text("capacity_source"),
            .cpus = read_cpus(at),
            .distances = read_distances(at),
            .path = at.text("path")};
  if (const auto bytes = at.optional_integer("capacity_bytes", kMaxBytes)) {
    node.capacity = Bytes{*bytes};
  }
  at.elements("access",
              [&](const JsonReader& access) { node.access.push_back(read_access(access)); });
  if (const auto socket = at.optional_integer("socket", kMaxId)) {
    node.socket = static_cast<unsigned>(*socket);
  }
  if (const auto gpu = at.object("gpu")) node.gpu = read_gpu(*gpu);
  if (const auto cache = at.object("memory_side_cache")) node.side_cache = read_side_cache(*cache);
  return node;
}

Engine read_engine(const JsonReader& at, std::size_t index) {
  Engine engine{.id = EngineId{static_cast<std::uint32_t>(at.integer("id", kMaxId))},
                .kind = read_engine_kind(at),
                .name = at.text("name"),
                .home = read_node_id(at, "home"),
                .reason = at.text("reason")};
  if (raw(engine.id) != index) {
    at.wrong("id", fmt::format("must be {}; engines are numbered from 0 in order", index));
  }
  return engine;
}

LinkKind read_link_kind(const JsonReader& at) {
  const std::string text = at.required_text("kind");
  for (const LinkKind kind : {LinkKind::upi, LinkKind::xgmi, LinkKind::socket, LinkKind::mesh,
                              LinkKind::pcie, LinkKind::cxl, LinkKind::nvlink, LinkKind::c2c}) {
    if (to_string(kind) == text) return kind;
  }
  at.wrong("kind",
           fmt::format("no link kind '{}'; say upi, xgmi, socket, mesh, pcie, cxl, nvlink or c2c",
                       printable(text)));
  return LinkKind::socket;
}

std::vector<NodeId> read_end(const JsonReader& at, std::string_view name) {
  std::vector<NodeId> nodes;
  at.elements(name, [&](const JsonReader& id) {
    nodes.push_back(NodeId{static_cast<std::uint32_t>(id.as_integer(kMaxId))});
  });
  if (nodes.empty()) at.wrong(name, "must name at least one node");
  return nodes;
}

// A limit of 0 would allow no traffic.
std::optional<BytesPerSecond> read_limit(const JsonReader& at, std::string_view name) {
  const auto limit = read_bandwidth(at, name);
  if (limit && limit->value <= 0) at.wrong(name, "must be above 0");
  return limit;
}

Link read_link(const JsonReader& at) {
  return {.kind = read_link_kind(at),
          .a = read_end(at, "a"),
          .b = read_end(at, "b"),
          .reason = at.text("reason"),
          .each_way = read_limit(at, "each_way_bytes_per_second"),
          .each_way_source = at.text("each_way_source"),
          .both_ways = read_limit(at, "both_ways_bytes_per_second"),
          .both_ways_source = at.text("both_ways_source"),
          .latency = read_time(at, "latency_ns"),
          .latency_source = at.text("latency_source")};
}

CopyRate read_copy_rate(const JsonReader& at) {
  CopyRate rate{.engine = EngineId{static_cast<std::uint32_t>(at.integer("engine", kMaxId))},
                .from = read_node_id(at, "from"),
                .to = read_node_id(at, "to"),
                .latency = read_time(at, "latency_ns").value_or(Nanoseconds{0}),
                .bandwidth = {at.number("bandwidth_bytes_per_second")},
                .source = at.text("source")};
  if (rate.bandwidth.value <= 0) at.wrong("bandwidth_bytes_per_second", "must be above 0");
  if (const auto bytes = at.optional_integer("gather_bytes", kMaxBytes)) {
    rate.gather = GatherLimit{.bytes = Bytes{*bytes}, .count = at.integer("gather_count", kMaxId)};
  }
  return rate;
}

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
  machine.name = at.text("name");
  machine.description = at.text("description");
  machine.source = at.text("source");
  at.elements("nodes", [&](const JsonReader& node) { machine.nodes.push_back(read_node(node)); });
  std::ranges::sort(machine.nodes, {}, &Node::id);
  at.elements("caches", [&](const JsonReader& cache) {
    machine.caches.push_back({.level = static_cast<unsigned>(cache.integer("level", 255)),
                              .size = {cache.integer("size_bytes", kMaxBytes)},
                              .cpus = read_cpus(cache)});
  });
  at.elements("engines", [&](const JsonReader& engine) {
    machine.engines.push_back(read_engine(engine, machine.engines.size()));
  });
  at.elements("links", [&](const JsonReader& link) { machine.links.push_back(read_link(link)); });
  at.elements("copy_rates",
              [&](const JsonReader& rate) { machine.copy_rates.push_back(read_copy_rate(rate)); });
  at.elements("warnings",
              [&](const JsonReader& line) { machine.warnings.push_back(line.as_text()); });
  at.members("provenance", [&](const std::string& key, const JsonReader& value) {
    machine.provenance[key] = value.as_text();
  });
  if (!at.failed()) check_references(machine, at);
  return machine;
}

nlohmann::ordered_json json_of(const Machine& machine) {
  return {{"schema_version", kSchemaVersion},
          {"name", machine.name},
          {"description", machine.description},
          {"source", machine.source},
          {"nodes", json_of_all(machine.nodes)},
          {"caches", json_of_all(machine.caches)},
          {"engines", json_of_all(machine.engines)},
          {"links", json_of_all(machine.links)},
          {"copy_rates", json_of_all(machine.copy_rates)},
          {"warnings", machine.warnings},
          {"provenance", machine.provenance}};
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

}  // namespace headrace
