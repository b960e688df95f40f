// SPDX-License-Identifier: Apache-2.0
// Profile <-> JSON: the machine's document with `conditions` and `rows` added.
#include "profile/profile.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <limits>

#include "core/fail.h"
#include "core/text/enum_words.h"
#include "core/text/files.h"
#include "core/text/json.h"
#include "topology/topology.h"

namespace headrace {
namespace {

using Json = nlohmann::ordered_json;

constexpr EnumWords<Basis::emulated> kBases{"basis",
                                            {"measured", "modelled", "published", "emulated"}};

constexpr std::uint64_t kMaxNumber = std::numeric_limits<std::uint64_t>::max();

// "95 %" and "95 % of 6 launches" as 0.95; nothing for a range.
std::optional<double> coverage_of(const std::string& words) {
  const std::size_t end = words.find(" %");
  double percent = 0;
  const auto read = std::from_chars(words.data(), words.data() + words.size(), percent);
  const bool stated = end != std::string::npos && read.ec == std::errc() &&
                      read.ptr == words.data() + end && percent > 0 && percent < 100;
  return stated ? std::optional(percent / 100) : std::nullopt;
}

// The summary is read and not recomputed: a profile written by another version keeps its own.
// Exception: older profiles do not state the meaning of their bounds, which this version then
// computes from the samples.
std::optional<Summary> read_summary(const JsonReader& at, const Row& row) {
  if (at.field("median") == nullptr) return std::nullopt;
  const double middle = at.number("median");
  Summary read{.runs = row.samples.size(),
               .median = middle,
               .mad = at.optional_number("mad").value_or(0),
               .min = at.optional_number("min").value_or(middle),
               .max = at.optional_number("max").value_or(middle),
               .interval = {.low = at.optional_number("low").value_or(middle),
                            .high = at.optional_number("high").value_or(middle)},
               .coverage = coverage_of(at.text("interval")),
               .launches = std::max<std::size_t>(1, row.launches.size())};
  if (at.field("interval") == nullptr && !row.samples.empty() && !at.failed()) {
    const Summary made = *summarize(row.samples, row.launches);
    read.interval = made.interval;
    read.coverage = made.coverage;
  }
  return read;
}

std::vector<std::size_t> read_launches(const JsonReader& at, std::size_t samples) {
  std::vector<std::size_t> launches;
  std::uint64_t sum = 0;
  at.elements("launches", [&](const JsonReader& launch) {
    launches.push_back(launch.as_integer(samples));
    sum += launches.back();
  });
  if (launches.empty()) return launches;
  if (sum != samples || std::ranges::find(launches, 0u) != launches.end()) {
    at.wrong("launches", "must be numbers from 1 that add up to that of the samples");
    launches.clear();
  }
  return launches;
}

// Profiles older than this field imply it by their source.
Basis read_basis(const JsonReader& at, const Row& row, bool of_profile) {
  const std::string word = at.text("basis");
  if (word.empty()) return row.source.empty() ? Basis::measured : Basis::published;
  for (const Basis basis : {Basis::measured, Basis::published, Basis::emulated}) {
    if (word == to_string(basis)) return basis;
  }
  if (!of_profile && word == to_string(Basis::modelled)) return Basis::modelled;
  at.wrong("basis", "must be measured, published or emulated: a profile holds nothing else");
  return Basis::measured;
}

Row read_row(const JsonReader& at, bool of_profile) {
  Row row{.experiment = at.required_text("experiment"),
          .unit = at.text("unit"),
          .reason = at.text("reason"),
          .source = at.text("source")};
  at.members("parameters", [&](const std::string& name, const JsonReader& value) {
    if (value.is_text()) {
      row.parameters.emplace_back(name, value.as_text());
    } else {
      row.parameters.emplace_back(name, value.as_integer(kMaxNumber));
    }
  });
  // Older profiles call CPUs that share a cache a cluster, which now is a part of a machine
  // (team.h).
  for (auto& [name, value] : row.parameters) {
    if (row.experiment == "core_to_core" && name == "apart" && value == ParameterValue("cluster")) {
      value = "cache";
    }
  }
  at.elements("samples",
              [&](const JsonReader& sample) { row.samples.push_back(sample.as_number()); });
  at.members("details", [&](const std::string& name, const JsonReader& value) {
    row.details[name] = value.as_number();
  });
  at.members("words", [&](const std::string& name, const JsonReader& value) {
    row.words[name] = value.as_text();
  });
  at.elements("flags", [&](const JsonReader& flag) { row.flags.push_back(flag.as_text()); });
  row.launches = read_launches(at, row.samples.size());
  at.elements("stands_for",
              [&](const JsonReader& other) { row.stands_for.push_back(other.as_text()); });
  row.cpus = at.text("cpus");
  row.value = read_summary(at, row);
  row.basis = read_basis(at, row, of_profile);
  return row;
}

}  // namespace

nlohmann::ordered_json json_of(const Row& row) {
  Json parameters = Json::object();
  for (const auto& [name, value] : row.parameters) {
    std::visit([&](const auto& v) { parameters[name] = v; }, value);
  }
  const auto number = [&](auto member) {
    return row.value ? Json(*row.value.*member) : Json(nullptr);
  };
  Json document{{"experiment", row.experiment},
                {"parameters", std::move(parameters)},
                {"unit", row.unit},
                {"median", number(&Summary::median)},
                {"mad", number(&Summary::mad)},
                {"min", number(&Summary::min)},
                {"max", number(&Summary::max)},
                {"low", row.value ? Json(row.value->interval.low) : Json(nullptr)},
                {"high", row.value ? Json(row.value->interval.high) : Json(nullptr)},
                {"interval", row.value ? Json(interval_words(*row.value)) : Json(nullptr)},
                {"samples", row.samples},
                {"launches", row.launches},
                {"details", row.details},
                {"flags", row.flags},
                {"basis", to_string(row.basis)},
                {"reason", row.reason},
                {"source", row.source}};
  if (!row.words.empty()) document["words"] = row.words;
  if (!row.stands_for.empty()) document["stands_for"] = row.stands_for;
  if (!row.cpus.empty()) document["cpus"] = row.cpus;
  return document;
}

std::string_view to_string(Basis basis) { return kBases.of(basis); }

std::string Row::key() const {
  std::string text = experiment;
  for (const auto& [name, set_to] : parameters) {
    std::visit([&](const auto& v) { text += fmt::format(" {}={}", name, v); }, set_to);
  }
  return text;
}

const ParameterValue* Row::parameter(std::string_view name) const {
  for (const auto& each : parameters) {
    if (each.first == name) return &each.second;
  }
  return nullptr;
}

const std::uint64_t* Row::number(std::string_view name) const {
  const ParameterValue* found = parameter(name);
  return found == nullptr ? nullptr : std::get_if<std::uint64_t>(found);
}

std::string_view Row::word(std::string_view name) const {
  const ParameterValue* found = parameter(name);
  const auto* text = found == nullptr ? nullptr : std::get_if<std::string>(found);
  return text == nullptr ? "" : std::string_view(*text);
}

bool Row::has_flag(std::string_view flag) const {
  return std::ranges::find(flags, flag) != flags.end();
}

void Row::add_flag(std::string_view flag) {
  if (!has_flag(flag)) flags.emplace_back(flag);
}

bool Profile::published() const {
  return std::ranges::any_of(rows, [](const Row& row) { return row.basis == Basis::published; });
}

Result<Profile> Profile::load(const std::string& path_or_preset) {
  HEADRACE_TRY(const Document found, find_document(path_or_preset));
  auto profile = from_json(found.text);
  if (!profile) {
    return fail(profile.error().code, "{}: {}", found.source, profile.error().message);
  }
  profile->machine.source = found.source;
  return profile;
}

Result<Row> read_row(const nlohmann::ordered_json& document) {
  std::optional<Error> error;
  Row row = read_row(JsonReader(document, "", error), false);
  if (error) return Unexpected(*std::move(error));
  return row;
}

Result<Profile> read_profile(const nlohmann::ordered_json& document) {
  std::optional<Error> error;
  const JsonReader at(document, "", error);
  Profile profile;
  profile.machine = read_machine(at);
  at.members("conditions", [&](const std::string& name, const JsonReader& value) {
    profile.conditions[name] = value.as_text();
  });
  at.elements("rows", [&](const JsonReader& row) { profile.rows.push_back(read_row(row, true)); });
  if (error) return Unexpected(*std::move(error));
  return profile;
}

nlohmann::ordered_json json_of(const Profile& profile) {
  Json document = json_of(profile.machine);
  document["conditions"] = profile.conditions;
  Json array = Json::array();
  for (const Row& row : profile.rows) array.push_back(json_of(row));
  document["rows"] = std::move(array);
  return document;
}

Result<Profile> Profile::from_json(std::string_view text) {
  HEADRACE_TRY(const Json document, parse_document(text));
  HEADRACE_TRY_STATUS(
      check_has_no_kind(document, "profile", "headrace measure --out profile.json"));
  return read_profile(document);
}

std::string Profile::to_json() const { return print_document(json_of(*this)); }

Status Profile::save(const std::filesystem::path& path) const {
  return write_file_at_once(path, to_json());
}

}  // namespace headrace
