// SPDX-License-Identifier: Apache-2.0
#include "headrace/mover.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <atomic>
#include <optional>
#include <vector>

#include "move/mover_testing.h"
#include "tests/explore/explore.h"

namespace headrace::explore {
namespace {

using namespace test;

constexpr std::uint64_t kLength = 8 << 10;

FakeOptions own_thread(Trial& trial) {
  FakeOptions fake;
  fake.own_thread = true;
  fake.log = false;
  fake.seed = 1 + trial.below(1000);
  fake.inside_chance = trial.below(3) == 0 ? 0.3 : 0;
  fake.partial_chance = trial.below(3) == 0 ? 0.5 : 0;
  fake.reorder = trial.below(2) == 0;
  return fake;
}

// Pieces of 4 KiB, two of them in flight: every move of 8 KiB waits in a queue.
MoverOptions small_pieces() {
  return {.route = by_engine(kCpuA), .piece = 4_KiB, .in_flight_per_link = 8_KiB};
}

struct Small {
  explicit Small(FakeOptions fake_options, MoverOptions options = small_pieces()) {
    fake_options.engines = {kCpuA, kCpuB};
    auto made = std::make_unique<FakeBackend>(std::move(fake_options));
    fake = made.get();
    backends.add(std::move(made));
    mover.emplace(machine, backends, std::move(options));
  }
  Transfer copy(std::size_t row, MoveOptions options = {}) {
    return mover->copy({&to, row * kLength, Bytes{kLength}}, {&from, row * kLength, Bytes{kLength}},
                       options);
  }
  bool copied(std::size_t row) const {
    const auto at = static_cast<std::ptrdiff_t>(row * kLength);
    return std::equal(a.begin() + at, a.begin() + at + static_cast<std::ptrdiff_t>(kLength),
                      b.begin() + at);
  }

  const Machine machine = small_machine();
  std::vector<std::byte> a = std::vector<std::byte>(4 * kLength, std::byte{7});
  std::vector<std::byte> b = std::vector<std::byte>(4 * kLength);
  MemoryRange from{a, kDram};
  MemoryRange to{b, kHbm};
  FakeBackend* fake = nullptr;
  Backends backends;
  std::optional<Mover> mover;
};

void check_end(Trial& trial, const Small& rig) {
  const MoverStats stats = rig.mover->stats();
  trial.require(stats.in_flight_pieces == 0 && stats.queued_pieces == 0, "nothing is left");
  trial.require(rig.fake->violations().empty(), "no engine is given what another one has");
}

TEST(ExploreMover, CopiesOfSeveralThreads_AllEnd) {
  explore([](Trial& trial) {
    Small rig(own_thread(trial));
    const auto copy = [&](std::size_t row) {
      const Transfer move = rig.copy(row);
      const auto stats = move.wait(std::chrono::hours{1});
      trial.require(stats.has_value() && stats->bytes == Bytes{kLength}, "the move succeeds");
      trial.require(rig.copied(row), "a move that is done has its bytes");
    };
    trial.together({[&] { copy(0); }, [&] { copy(1); }, [&] { copy(2); }});
    check_end(trial, rig);
  });
}

// A move that is done has no writer, however it ended.
TEST(ExploreMover, CancelAndPromote_BesideTheEnd_GiveOneOutcome) {
  explore([](Trial& trial) {
    Small rig(own_thread(trial));
    const Transfer move = rig.copy(0, {.priority = Priority::prefetch});
    const Transfer other = rig.copy(1, {.priority = Priority::prefetch});
    const auto wait = [&](const Transfer& one, std::size_t row) {
      const auto stats = one.wait(std::chrono::hours{1});
      trial.require(stats ? rig.copied(row) : stats.error().code == ErrorCode::cancelled,
                    "a move ends with its bytes, or cancelled");
      trial.require(!rig.fake->writes_to({&rig.to, row * kLength, Bytes{kLength}}),
                    "a move that is done has no writer");
      const auto again = one.poll();
      trial.require(again.has_value() && again->has_value() == stats.has_value(),
                    "the outcome stays");
    };
    trial.together({[&] {
                      move.promote(Priority::demand);
                      wait(move, 0);
                    },
                    [&] {
                      if (trial.below(2) == 0) move.cancel();
                      wait(other, 1);
                    },
                    [&] {
                      other.promote(Priority::demand);
                      wait(other, 1);
                    }});
    check_end(trial, rig);
  });
}

TEST(ExploreMover, Callbacks_BesideTheEnd_AreCalledOnce) {
  explore([](Trial& trial) {
    Small rig(own_thread(trial));
    const Transfer move = rig.copy(0);
    std::atomic<int> called{0};
    const auto listen = [&] {
      for (int i = 0; i < 2; ++i) {
        move.on_done([&](const Result<MoveStats>& stats) {
          trial.require(stats.has_value() && move.done(), "a callback comes after the end");
          ++called;
        });
      }
    };
    trial.together({listen, listen, [&] { (void)move.wait(std::chrono::hours{1}); }});
    rig.mover.reset();
    trial.require(called == 4, "each callback is called once");
  });
}

TEST(ExploreMover, EventFd_BesideTheEnd_BecomesReadable) {
  explore(
      [](Trial& trial) {
        Small rig(own_thread(trial));
        const Transfer move = rig.copy(0);
        const auto open = [&] {
          const auto descriptor = move.event_fd();
          trial.require(descriptor.has_value(), "there is a descriptor");
          (void)move.wait(std::chrono::hours{1});
          pollfd look{.fd = *descriptor, .events = POLLIN, .revents = 0};
          for (int i = 0; i < 3 && poll(&look, 1, 0) == 0; ++i) (void)rig.mover->stats();
        };
        trial.together({open, open});
        rig.mover.reset();
        pollfd look{.fd = *move.event_fd(), .events = POLLIN, .revents = 0};
        trial.require(poll(&look, 1, 0) == 1, "the descriptor of a move that is done is readable");
      },
      0.5);
}

// The destructor comes while copies are queued and in flight.
TEST(ExploreMover, DestructionBesideTheEnd_CancelsAndWaits) {
  explore([](Trial& trial) {
    Small rig(own_thread(trial));
    std::vector<Transfer> moves(3);
    int called = 0;
    trial.together({[&] { moves[0] = rig.copy(0); },
                    [&] {
                      moves[1] = rig.copy(1);
                      moves[1].on_done([&](const Result<MoveStats>&) { ++called; });
                    },
                    [&] {
                      moves[2] = rig.copy(2);
                      (void)rig.mover->poll();
                    }});
    rig.mover.reset();
    for (std::size_t i = 0; i < moves.size(); ++i) {
      trial.require(moves[i].done(), "a destroyed Mover leaves no move");
      const auto stats = moves[i].poll();
      trial.require(
          stats->has_value() ? rig.copied(i) : stats->error().code == ErrorCode::cancelled,
          "a move ends with its bytes, or cancelled");
    }
    trial.require(called == 1, "the callback is called once");
    trial.require(rig.fake->in_flight() == 0, "nothing is in flight");
  });
}

TEST(ExploreMover, Batches_EndWithAllTheirPairs) {
  explore([](Trial& trial) {
    Small rig(own_thread(trial));
    const auto copy = [&](std::size_t first) {
      std::vector<MovePair> pairs;
      for (std::size_t row = first; row < first + 2; ++row) {
        pairs.push_back(
            {{&rig.to, row * kLength, Bytes{kLength}}, {&rig.from, row * kLength, Bytes{kLength}}});
      }
      const Transfer move = rig.mover->copy(pairs);
      if (first == 0 && trial.below(2) == 0) move.promote(Priority::demand);
      const auto stats = move.wait(std::chrono::hours{1});
      trial.require(stats.has_value() && stats->bytes == Bytes{2 * kLength}, "the batch succeeds");
      trial.require(rig.copied(first) && rig.copied(first + 1), "it has all bytes");
    };
    trial.together({[&] { copy(0); }, [&] { copy(2); }});
    check_end(trial, rig);
  });
}

// A backend that completes in poll(): the Mover's thread polls, and so do threads that wait.
TEST(ExploreMover, PolledEngines_EndEveryWait) {
  explore([](Trial& trial) {
    FakeOptions fake = own_thread(trial);
    fake.own_thread = false;
    MoverOptions options = small_pieces();
    options.poller = trial.below(2) == 0;
    trial.allow_timeouts();
    Small rig(fake, options);
    const auto copy = [&](std::size_t row) {
      const auto stats = rig.copy(row).wait(std::chrono::hours{1});
      trial.require(stats.has_value() && rig.copied(row), "the move succeeds");
    };
    trial.together({[&] { copy(0); }, [&] { copy(1); }, [&] { copy(2); }});
    check_end(trial, rig);
  });
}

// Copies inside submit(): at once, or in the share of a visit.
TEST(ExploreMover, InlineCopies_OfSeveralThreads_AllEnd) {
  explore([](Trial& trial) {
    FakeOptions fake = own_thread(trial);
    fake.own_thread = false;
    fake.inside_chance = 1;
    fake.fail_chance = trial.below(3) == 0 ? 0.3 : 0;
    Small rig(fake);
    const auto copy = [&](std::size_t row) {
      const auto stats = rig.copy(row).wait(std::chrono::hours{1});
      trial.require(!stats || rig.copied(row), "a move that succeeds has its bytes");
    };
    trial.together({[&] { copy(0); },
                    [&] {
                      copy(1);
                      copy(3);
                    },
                    [&] { copy(2); }});
    check_end(trial, rig);
  });
}

// A wait that ends by its time-out leaves a move that another wait ends.
TEST(ExploreMover, ShortWaits_GiveUpOrSucceed) {
  explore([](Trial& trial) {
    Small rig(own_thread(trial));
    trial.allow_timeouts();
    const Transfer move = rig.copy(0);
    const auto wait = [&] {
      for (int i = 0; i < 3; ++i) {
        const auto stats = move.wait(std::chrono::microseconds{20});
        if (stats) trial.require(rig.copied(0), "a move that is done has its bytes");
        trial.require(stats || stats.error().code == ErrorCode::timed_out, "a wait is short");
      }
    };
    trial.together({wait, wait, [&] {
                      const auto stats = move.wait(std::chrono::hours{1});
                      trial.require(stats && rig.copied(0), "the move succeeds");
                    }});
    check_end(trial, rig);
  });
}

}  // namespace
}  // namespace headrace::explore
