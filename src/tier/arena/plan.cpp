// The text of a plan, and which arenas go where.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <ranges>
#include <set>

#include "core/fail.h"
#include "core/text/printable.h"
#include "fmt/format.h"
#include "headrace/tier/arena.h"
#include "tier/arena/names.h"

namespace headrace {
namespace {

constexpr std::string_view kHeader = "headrace arenas 1";
constexpr std::string_view kColumns = "# name place most_bytes heat";

// Text without spaces, which would end it in a line of a plan.
bool is_word(std::string_view text) {
  return !text.empty() && text.size() <= 256 &&
         std::ranges::all_of(text, [](char c) { return c > ' ' && c < 127 && c != '#'; });
}

std::vector<std::string_view> words_of(std::string_view line) {
  std::vector<std::string_view> words;
  for (const auto part : std::views::split(line.substr(0, line.find('#')), ' ')) {
    if (!part.empty()) words.emplace_back(part);
  }
  return words;
}

template <class Number>
bool parse_number(std::string_view text, Number& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc{} && end == text.data() + text.size();
}

Result<ArenaPlace> parse_line(std::string_view line, std::size_t number) {
  const auto words = words_of(line);
  ArenaPlace place;
  if (words.size() < 2 || words.size() > 4 || !is_arena_name(words[0]) || !is_word(words[1])) {
    return fail(ErrorCode::invalid,
                "line {} of the plan of arenas, \"{}\": give a name and a place, as in: index hbm",
                number, printable(line.substr(0, 80)));
  }
  place.name = words[0];
  place.place = words[1];
  const bool has_most = words.size() < 3 || parse_number(words[2], place.most.value);
  const bool has_heat = words.size() < 4 ||
                        (parse_number(words[3], place.heat) && place.heat >= 0 && place.heat <= 1);
  if (!has_most || !has_heat) {
    return fail(ErrorCode::invalid,
                "line {} of the plan of arenas: after name and place come bytes, a whole number, "
                "and heat, from 0 to 1",
                number);
  }
  return place;
}

}  // namespace

bool is_arena_name(std::string_view name) {
  constexpr std::string_view kOthers = "_.-/:";
  return !name.empty() && name.size() <= 64 && std::ranges::all_of(name, [&](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           kOthers.contains(c);
  });
}

std::string ArenaPlan::to_text() const {
  std::string text = fmt::format("{}\n{}\n", kHeader, kColumns);
  for (const ArenaPlace& each : arenas) {
    text += fmt::format("{} {} {} {:.3f}\n", each.name, each.place, each.most.value, each.heat);
  }
  return text;
}

Result<ArenaPlan> ArenaPlan::parse(std::string_view text) {
  if (text.substr(0, text.find('\n')) != kHeader) {
    return fail(ErrorCode::invalid, "no plan of arenas: its first line is not \"{}\"", kHeader);
  }
  ArenaPlan plan;
  std::set<std::string_view> names;
  std::size_t number = 0;
  for (const auto part : std::views::split(text, '\n')) {
    const std::string_view line(part);
    if (++number == 1 || words_of(line).empty()) continue;
    HEADRACE_TRY(ArenaPlace place, parse_line(line, number));
    if (!names.insert(words_of(line)[0]).second) {
      return fail(ErrorCode::invalid, "line {} of the plan of arenas: {} is there twice", number,
                  place.name);
    }
    plan.arenas.push_back(std::move(place));
  }
  return plan;
}

Result<ArenaPlan> plan_arenas(std::span<const ArenaUse> uses, std::span<const ArenaTier> tiers) {
  if (tiers.empty()) {
    return fail(ErrorCode::invalid, "no memory to plan for; give the fastest first");
  }
  for (const ArenaTier& tier : tiers) {
    if (!is_word(tier.place)) {
      return fail(ErrorCode::invalid, "a place \"{}\" is none; give one such as hbm or 0-3",
                  printable(tier.place));
    }
  }
  std::vector<const ArenaUse*> ordered;
  for (const ArenaUse& use : uses) ordered.push_back(&use);
  std::ranges::sort(ordered, [](const ArenaUse* a, const ArenaUse* b) {
    return a->heat != b->heat ? a->heat > b->heat : a->name < b->name;
  });
  std::vector<std::uint64_t> room;
  for (const ArenaTier& tier : tiers) room.push_back(tier.room.value);
  ArenaPlan plan;
  for (const ArenaUse* use : ordered) {
    const bool known = use->looks > 0 && use->heat > 0;
    std::size_t chosen = known ? 0 : tiers.size() - 1;
    while (chosen + 1 < tiers.size() && room[chosen] < use->most.value) ++chosen;
    room[chosen] -= std::min(room[chosen], use->most.value);
    plan.arenas.push_back({use->name, tiers[chosen].place, use->most, use->heat});
  }
  return plan;
}

}  // namespace headrace
