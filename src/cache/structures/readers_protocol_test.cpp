// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <utility>
#include <vector>

namespace headrace {
namespace {

// The protocol of readers.h as a machine of small steps, of which all interleavings are tried. Two
// threads pin the block of key 1, one of them twice. A third chooses it as a victim, drops it
// later, and uses its frame and entry for key 2. Memory is x86's: the stores of a thread stay in
// its own buffer, in order, until they are drained one by one, by a locked instruction of the
// thread, or by the heavy fence.
namespace protocol {

enum Where : std::uint8_t { word, key, frame, slot0, slot1, mark0, mark1, places };
enum Word : std::uint8_t { open, counted, chosen, gone };
constexpr std::uint8_t kNobody = 3;
constexpr std::size_t kDropper = 2;

struct Store {
  std::uint8_t where = 0, value = 0;
  auto operator<=>(const Store&) const = default;
};

struct State {
  std::array<std::uint8_t, places> memory{open, 1, 1, 0, 0, 0, 0};
  std::array<std::array<Store, 6>, 3> buffer{};  // oldest first
  std::array<std::uint8_t, 3> buffered{}, step{};
  std::array<bool, 2> marked{};  // Reader::marked_now
  std::uint8_t pins = 0, lock = kNobody, again = 1;
  bool detached = false, was_chosen = false;
  auto operator<=>(const State&) const = default;

  void store(std::size_t thread, std::uint8_t where, std::uint8_t value) {
    buffer[thread][buffered[thread]++] = {where, value};
  }
  std::uint8_t load(std::size_t thread, std::uint8_t where) const {
    for (std::size_t i = buffered[thread]; i-- > 0;) {
      if (buffer[thread][i].where == where) return buffer[thread][i].value;
    }
    return memory[where];
  }
  void drain_one(std::size_t thread) {
    auto& all = buffer[thread];
    memory[all[0].where] = all[0].value;
    std::shift_left(all.begin(), all.end(), 1);
    all[--buffered[thread]] = {};
  }
  void drain(std::size_t thread) {
    while (buffered[thread] > 0) drain_one(thread);
  }
  void locked_store(std::size_t thread, std::uint8_t where, std::uint8_t value) {
    drain(thread);
    memory[where] = value;
  }
};

// The steps that may be left out; each omission must be noticed.
enum class Without { nothing, fence, word, key, mark, second_fence, second_look, order, claim };

class Protocol {
 public:
  explicit Protocol(Without without) : without_(without) {}

  // Whether an interleaving reads another block's bytes, or ends with a pin that nobody releases or
  // a frame that nobody frees.
  bool fails() {
    std::vector<State> left{State{}};
    while (!left.empty()) {
      const State state = left.back();
      left.pop_back();
      if (!seen_.insert(state).second) continue;
      bool moved = false;
      for (std::size_t thread = 0; thread < 3; ++thread) {
        if (state.buffered[thread] > 0) {
          left.push_back(state);
          left.back().drain_one(thread);
          moved = true;
        }
        const auto next = thread == kDropper ? drop(state) : pin(state, thread);
        if (wrong_) return true;
        if (!next) continue;
        left.push_back(*next);
        moved = true;
      }
      if (!moved && !ended_well(state)) return true;
    }
    return false;
  }
  std::size_t states() const { return seen_.size(); }

 private:
  static bool ended_well(const State& state) {
    return state.pins == 0 && state.lock == kNobody && state.memory[slot0] == 0 &&
           state.memory[slot1] == 0 && state.memory[mark0] == 0 && state.memory[mark1] == 0 &&
           state.memory[frame] == 2;
  }
  // The entry and its frame become another block.
  static void reuse(State& state, std::size_t thread) {
    state.locked_store(thread, word, gone);
    state.store(thread, frame, 2);
    state.store(thread, key, 2);
    state.store(thread, word, open);
  }

  std::optional<State> pin(const State& before, std::size_t me) {
    State state = before;
    const auto slot = static_cast<std::uint8_t>(slot0 + me);
    const auto mark = static_cast<std::uint8_t>(mark0 + me);
    std::uint8_t& step = state.step[me];
    switch (step++) {
      case 0: state.store(me, slot, 1); break;  // P1
      case 1:                                   // P3
        if (state.load(me, word) == chosen) {
          step = 10;
        } else if (state.load(me, word) != open && without_ != Without::word) {
          step = 5;
        }
        break;
      case 2:  // P4
        if (state.load(me, key) != 1 && without_ != Without::key) step = 5;
        break;
      case 3:
      case 4: wrong_ = wrong_ || state.load(me, frame) != 1; break;  // the bytes, twice
      case 5: state.store(me, slot, 0); break;                       // L1
      case 6:                                                        // L3
        if (state.load(me, mark) == 0) step = 9;
        break;
      case 7:
        if (state.lock != kNobody) return std::nullopt;
        state.drain(me);
        state.lock = static_cast<std::uint8_t>(me);
        break;
      case 8:
        if (state.memory[mark] != 0) {
          state.locked_store(me, mark, 0);
          if (--state.pins == 0 && state.detached) reuse(state, me);
        }
        state.lock = kNobody;
        break;
      case 9:
        if (me != 0 || state.again-- == 0) return std::nullopt;
        step = 0;
        break;
      case 10:  // P3 of a victim
        state.drain(me);
        step = state.memory[word] == chosen ? 1 : 5;
        if (step == 1) state.memory[word] = open;
        break;
      default: return std::nullopt;
    }
    return state;
  }

  void mark(State& state, std::size_t reader) const {
    if (state.load(kDropper, static_cast<std::uint8_t>(slot0 + reader)) == 0) return;
    if (state.load(kDropper, static_cast<std::uint8_t>(mark0 + reader)) != 0) return;
    state.marked[reader] = true;
    if (without_ == Without::mark) return;
    state.locked_store(kDropper, static_cast<std::uint8_t>(mark0 + reader), 1);
  }
  void count(State& state, std::size_t reader) const {
    if (!std::exchange(state.marked[reader], false)) return;
    const bool held = state.load(kDropper, static_cast<std::uint8_t>(slot0 + reader)) != 0;
    if (held || without_ == Without::second_look) {
      ++state.pins;
    } else {
      state.locked_store(kDropper, static_cast<std::uint8_t>(mark0 + reader), 0);
    }
  }

  std::optional<State> drop(const State& before) {
    State state = before;
    std::uint8_t& step = state.step[kDropper];
    const bool fence_first = without_ == Without::order;
    const auto fence = [&] {
      for (std::size_t thread = 0; thread < 3; ++thread) state.drain(thread);
    };
    switch (step++) {
      case 0:
        if (state.lock != kNobody) return std::nullopt;
        state.lock = kDropper;
        break;
      case 1:
        if (fence_first) fence();
        break;
      case 2: state.locked_store(kDropper, word, counted); break;  // D1
      case 3:                                                      // D2
        if (without_ != Without::fence && !fence_first) fence();
        break;
      case 4: mark(state, 0); break;  // D3
      case 5: mark(state, 1); break;
      case 6:  // D4
        if (without_ != Without::second_fence && (state.marked[0] || state.marked[1])) fence();
        break;
      case 7: count(state, 0); break;  // D5
      case 8: count(state, 1); break;
      case 9:  // a victim, which others may make open meanwhile
        if (std::exchange(state.was_chosen, true)) {
          step = 12;
          break;
        }
        state.locked_store(kDropper, word, chosen);
        state.lock = kNobody;
        break;
      case 10:
        if (state.lock != kNobody) return std::nullopt;
        state.lock = kDropper;
        break;
      case 11:  // D6 of a victim
        if (state.memory[word] == chosen) {
          if (without_ != Without::claim) state.locked_store(kDropper, word, counted);
        } else {
          step = 2;
        }
        break;
      case 12:  // D6
        if (state.pins == 0) {
          reuse(state, kDropper);
        } else {
          state.detached = true;
          state.locked_store(kDropper, word, gone);
        }
        break;
      case 13:
        state.drain(kDropper);
        state.lock = kNobody;
        break;
      default: return std::nullopt;
    }
    return state;
  }

  const Without without_;
  bool wrong_ = false;
  std::set<State> seen_;
};

}  // namespace protocol

TEST(ReadersProtocolTest, NoInterleavingMissesAPin) {
  protocol::Protocol whole(protocol::Without::nothing);
  EXPECT_FALSE(whole.fails());
  EXPECT_GT(whole.states(), 1000u) << "all interleavings are few";
}

TEST(ReadersProtocolTest, EachStepIsNeeded) {
  using protocol::Without;
  for (const Without without :
       {Without::fence, Without::word, Without::key, Without::mark, Without::second_fence,
        Without::second_look, Without::order, Without::claim}) {
    EXPECT_TRUE(protocol::Protocol(without).fails()) << static_cast<int>(without);
  }
}

}  // namespace
}  // namespace headrace
