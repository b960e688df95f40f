// SPDX-License-Identifier: Apache-2.0
// The text form of a plan, and the choice of a tier for each arena.
#include <algorithm>
#include <charconv>
#include <iterator>
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
constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
constexpr std::string_view kUnseen = "-";

// Whether `text` is free of spaces, which would end it in a line of a plan.
bool is_word(std::string_view text) {
  return !text.empty() && text.size() <= 256 &&
         std::ranges::all_of(text, [](char c) { return c > ' ' && c < 127 && c != '#'; });
}

// The text in one line, for a comment.
std::string one_line(std::string_view text) {
  std::string line(text);
  for (char& c : line) {
    if (static_cast<unsigned char>(c) < ' ' || c == 127) c = ' ';
  }
  return line;
}

std::vector<std::string_view> words_of(std::string_view line) {
  std::vector<std::string_view> words;
  line = line.substr(0, line.find('#'));
  for (std::size_t begin = 0; (begin = line.find_first_not_of(" \t", begin)) != line.npos;) {
    const std::size_t end = std::min(line.find_first_of(" \t", begin), line.size());
    words.push_back(line.substr(begin, end - begin));
    begin = end;
  }
  return words;
}

std::string note_in(std::string_view line) {
  const std::size_t mark = line.find('#');
  const std::size_t begin = mark == line.npos ? mark : line.find_first_not_of(" \t", mark + 1);
  return begin == line.npos ? std::string() : one_line(line.substr(begin));
}

// Takes the next line off the text, without its line end.
std::string_view take_line(std::string_view& text) {
  const std::size_t end = std::min(text.find('\n'), text.size());
  std::string_view line = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
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
  bool good = words.size() < 3 || parse_number(words[2], place.most.value);
  if (good && words.size() == 4 && words[3] != kUnseen) {
    double heat = 0;
    good = parse_number(words[3], heat) && heat >= 0 && heat <= 1;
    place.heat = heat;
  }
  if (!good) {
    return fail(ErrorCode::invalid,
                "line {} of the plan of arenas: after name and place come bytes, a whole number, "
                "and heat, from 0 to 1, or - if it was not seen",
                number);
  }
  place.note = note_in(line);
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
    text += fmt::format("{} {} {} ", each.name, each.place, each.most.value);
    text += each.heat ? fmt::format("{:.3f}", *each.heat) : std::string(kUnseen);
    text += each.note.empty() ? "\n" : fmt::format(" # {}\n", one_line(each.note));
  }
  return text;
}

Result<ArenaPlan> ArenaPlan::parse(std::string_view text) {
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  if (take_line(text) != kHeader) {
    return fail(ErrorCode::invalid, "no plan of arenas: its first line is not \"{}\"", kHeader);
  }
  ArenaPlan plan;
  std::set<std::string> names;
  for (std::size_t number = 2; !text.empty(); ++number) {
    const std::string_view line = take_line(text);
    if (words_of(line).empty()) continue;
    HEADRACE_TRY(ArenaPlace place, parse_line(line, number));
    if (!names.insert(place.name).second) {
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
  std::vector<ArenaPlace> unseen;
  std::vector<const ArenaUse*> ordered;
  for (const ArenaUse& use : uses) {
    if (use.looks > 0) {
      ordered.push_back(&use);
    } else {
      unseen.push_back({use.name, std::string(kNoPlace), use.most, {}, use.why_unseen});
    }
  }
  std::ranges::sort(ordered, [](const ArenaUse* a, const ArenaUse* b) {
    return a->heat != b->heat ? a->heat > b->heat : a->name < b->name;
  });
  std::vector<std::uint64_t> room;
  for (const ArenaTier& tier : tiers) room.push_back(tier.room.value);
  ArenaPlan plan;
  for (const ArenaUse* use : ordered) {
    std::size_t chosen = use->heat > 0 ? 0 : tiers.size() - 1;
    while (chosen + 1 < tiers.size() && room[chosen] < use->most.value) ++chosen;
    room[chosen] -= std::min(room[chosen], use->most.value);
    plan.arenas.push_back({use->name, tiers[chosen].place, use->most, use->heat, use->why_unseen});
  }
  std::ranges::move(unseen, std::back_inserter(plan.arenas));
  return plan;
}

}  // namespace headrace
