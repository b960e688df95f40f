// SPDX-License-Identifier: Apache-2.0
#include "measure/instruments/side_by_side/ping_pong.h"

#include <algorithm>
#include <atomic>

#include "core/check.h"
#include "core/fail.h"
#include "core/waiting/patience.h"
#include "headrace/clock.h"
#include "measure/instruments/chase.h"
#include "measure/instruments/cpu_share.h"
#include "measure/instruments/ticks.h"
#include "measure/instruments/worker_pool.h"

namespace headrace::instruments {
namespace {

// Looks per reading of the clock: far more than an answer takes.
constexpr std::size_t kLooksPerReading = 1 << 14;
// A thread that has not looked for this long had no CPU or was stopped; that does not count as
// waiting.
constexpr Nanoseconds kLongestBetweenLooks = std::chrono::seconds{1};
// Uncounted first round trips on each line.
constexpr std::size_t kTripsOfWarmUp = 32;

// One of the two threads. They write 1, 2, 3, ... in turn; the first thread the odd numbers.
class Player {
 public:
  Player(Nanoseconds most_wait, std::atomic<bool>& over)
      : waited_(system_clock(), kLongestBetweenLooks), most_wait_(most_wait), over_(over) {}

  // Waits for `number`. False: it did not come in time, or the other thread gave up.
  bool wait(const std::atomic_ref<std::uint64_t>& line, std::uint64_t number) {
    for (std::size_t looks = 1;; ++looks) {
      if (line.load(std::memory_order_acquire) == number) return true;  // pairs with write()
      if (looks % kLooksPerReading != 0) continue;
      if (over_.load() || waited_.now() > most_wait_) {
        over_.store(true);
        return false;
      }
    }
  }
  static void write(const std::atomic_ref<std::uint64_t>& line, std::uint64_t number) {
    line.store(number, std::memory_order_release);  // pairs with wait()
  }

 private:
  AttendedTime waited_;
  const Nanoseconds most_wait_;
  std::atomic<bool>& over_;
};

class Game {
 public:
  Game(std::span<std::byte> memory, std::size_t trips, Nanoseconds most_wait)
      : memory_(memory), trips_(trips), most_wait_(most_wait) {}

  // All trips of one thread; false: it gave up.
  bool play(bool first) {
    Player player(most_wait_, over_);
    for (std::size_t at = 0; at < memory_.size() / kLine; ++at) {
      const std::atomic_ref<std::uint64_t> line(
          *reinterpret_cast<std::uint64_t*>(memory_.data() + at * kLine));
      const bool whole = first ? serve(player, line) : answer(player, line);
      if (!whole) return false;
    }
    return true;
  }
  double ticks() const { return static_cast<double>(ticks_); }

 private:
  bool serve(Player& player, const std::atomic_ref<std::uint64_t>& line) {
    const Ticks& clock = Ticks::instance();
    std::uint64_t begin = 0;
    for (std::size_t trip = 0; trip < kTripsOfWarmUp + trips_; ++trip) {
      if (trip == kTripsOfWarmUp) begin = clock.now();
      Player::write(line, 2 * trip + 1);
      if (!player.wait(line, 2 * trip + 2)) return false;
    }
    ticks_ += clock.now() - begin;
    return true;
  }
  bool answer(Player& player, const std::atomic_ref<std::uint64_t>& line) {
    for (std::size_t trip = 0; trip < kTripsOfWarmUp + trips_; ++trip) {
      if (!player.wait(line, 2 * trip + 1)) return false;
      Player::write(line, 2 * trip + 2);
    }
    return true;
  }

  const std::span<std::byte> memory_;
  const std::size_t trips_;
  const Nanoseconds most_wait_;
  std::uint64_t ticks_ = 0;  // of the first thread's counted trips
  std::atomic<bool> over_{false};
};

}  // namespace

Result<PingPong> ping_pong(std::array<unsigned, 2> cpus, std::span<std::byte> memory,
                           std::size_t trips, Nanoseconds most_wait) {
  CHECK(memory.size() >= kLine && trips > 0);
  std::ranges::fill(memory, std::byte{0});
  Game game(memory, trips, most_wait);
  std::array<bool, 2> whole{};
  std::array<double, 2> shares{};
  HEADRACE_TRY_STATUS(run_pinned({cpus[0], cpus[1]}, [&](std::size_t i) {
    const CpuShare share;
    whole[i] = game.play(i == 0);
    shares[i] = share.now();
  }));
  if (!whole[0] || !whole[1]) {
    return fail(ErrorCode::timed_out, "CPUs {} and {} did not answer each other; are they busy?",
                cpus[0], cpus[1]);
  }
  const double counted = static_cast<double>(trips * (memory.size() / kLine));
  return PingPong{
      .round_trip_ns =
          Ticks::instance().nanoseconds(static_cast<std::uint64_t>(game.ticks())) / counted,
      .cpu_share = std::ranges::min(shares)};
}

}  // namespace headrace::instruments
