// SPDX-License-Identifier: Apache-2.0
// Random operations compared with a naive model: an array of the expected destination, where it is
// known. RapidCheck prints the seed and the shortened operations of a failing run.
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <array>
#include <deque>

#include "move/mover_testing.h"

namespace headrace {
namespace {

using test::kCpuA;
using test::kCpuB;

constexpr std::size_t kBlock = 512;
constexpr std::size_t kBlocks = 128;
constexpr std::size_t kBytes = kBlock * kBlocks;
constexpr std::uint64_t kLinkBound = 3000;

enum class Kind {
  copy,
  batch,
  promote,
  cancel,
  poll,
  finish,
  advance,
  drop,
  break_engine,
  refuse,
  accept,
  end
};

struct Op {
  Kind kind{};
  std::uint32_t a = 0;
  std::uint32_t b = 0;
  std::uint32_t c = 0;
};

void showValue(const Op& op, std::ostream& out) {
  out << '{' << static_cast<int>(op.kind) << ' ' << op.a << ' ' << op.b << ' ' << op.c << '}';
}

// Copies and polls are frequent, the destructor is rare.
rc::Gen<Op> any_op() {
  const auto kinds = rc::gen::weightedElement<Kind>({{12, Kind::copy},
                                                     {3, Kind::batch},
                                                     {2, Kind::promote},
                                                     {2, Kind::cancel},
                                                     {4, Kind::poll},
                                                     {3, Kind::finish},
                                                     {3, Kind::advance},
                                                     {1, Kind::drop},
                                                     {1, Kind::break_engine},
                                                     {1, Kind::refuse},
                                                     {1, Kind::accept},
                                                     {1, Kind::end}});
  const auto number =
      rc::gen::resize(rc::kNominalSize, rc::gen::inRange<std::uint32_t>(0, 1 << 20));
  return rc::gen::build<Op>(rc::gen::set(&Op::kind, kinds), rc::gen::set(&Op::a, number),
                            rc::gen::set(&Op::b, number), rc::gen::set(&Op::c, number));
}

struct Scenario {
  std::uint64_t seed;
  bool reorder;
  unsigned inside;  // pieces complete inside submit(): none, some, all
  bool partial;
  bool failing;
};

class World {
 public:
  explicit World(const Scenario& scenario) : scenario_(scenario) {
    for (const EngineId engine : {kCpuA, kCpuB}) {
      auto fake = std::make_unique<FakeBackend>(
          FakeOptions{.name = engine == kCpuA ? "a" : "b",
                      .engines = {engine},
                      .max_piece = engine == kCpuA ? 700_B : 2000_B,
                      .max_in_flight = engine == kCpuA ? 2U : 3U,
                      .seed = scenario.seed + raw(engine),
                      .clock = &clock_,
                      .jitter = std::chrono::microseconds{20},
                      .polls = raw(engine),
                      .reorder = scenario.reorder,
                      .inside_chance = std::array{0.0, 0.4, 1.0}[scenario.inside],
                      .partial_chance = scenario.partial ? 0.4 : 0,
                      .fail_chance = scenario.failing ? 0.2 : 0});
      fakes_.push_back(fake.get());
      backends_.add(std::move(fake));
    }
    mover_.emplace(machine_, backends_,
                   MoverOptions{.piece = Bytes{900},
                                .in_flight_per_link = Bytes{kLinkBound},
                                .clock = &clock_,
                                .waiting = &waiting_,
                                .poller = false});
  }

  void carry_out(const Op& op) {
    apply(op);
    for (Batch& batch : batches_) look_at_pairs(batch);
  }

  void apply(const Op& op) {
    switch (op.kind) {
      case Kind::copy: copy(op); break;
      case Kind::batch: batch(op); break;
      case Kind::promote:
        if (!moves_.empty()) {
          moves_[op.a % moves_.size()].transfer.promote(static_cast<Priority>(op.b % 3));
        }
        break;
      case Kind::cancel:
        if (!moves_.empty()) {
          Handled& move = moves_[op.a % moves_.size()];
          move.may_fail = true;
          move.transfer.cancel();
        }
        break;
      case Kind::poll: mover_->poll(); break;
      case Kind::finish: fake(op).finish(op.b % 4); break;
      case Kind::advance: clock_.advance(Nanoseconds{op.a % 10'000}); break;
      case Kind::drop:
        if (!moves_.empty()) moves_[op.a % moves_.size()].transfer = Transfer();
        break;
      case Kind::break_engine: fake(op).break_engine(engine(op), some_error(op)); break;
      case Kind::refuse: fake(op).refuse(engine(op), some_error(op)); break;
      case Kind::accept:
        fake(op).accept_at_most(op.b % 3 == 0 ? std::optional<std::size_t>{op.b % 2}
                                              : std::nullopt);
        break;
      case Kind::end: break;
    }
  }

  // All moves end within a number of polls that depends only on the work left.
  void run_dry() {
    for (FakeBackend* fake : fakes_) fake->accept_at_most(std::nullopt);
    std::size_t rounds = 2000 + 50 * started_;
    while (open_ > 0 && rounds-- > 0) {
      clock_.advance(std::chrono::microseconds{5});
      mover_->poll();
    }
    RC_ASSERT(open_ == 0u);
    const MoverStats stats = mover_->stats();
    RC_ASSERT(stats.in_flight_pieces == 0u);
    RC_ASSERT(stats.queued_pieces == 0u);
    RC_ASSERT(stats.transfers == started_);
  }

  void end() {
    for (Handled& move : moves_) move.may_fail = true;
    mover_.reset();
    RC_ASSERT(open_ == 0u);
  }

  void judge() const {
    RC_ASSERT(complaints_ == std::vector<std::string>{});
    for (std::size_t i = 0; i < kBytes; ++i) {
      if (expected_[i]) RC_ASSERT(*expected_[i] == target_bytes_[i]);
    }
    Bytes most;
    for (const FakeBackend* fake : fakes_) {
      RC_ASSERT(fake->violations() == std::vector<std::string>{});
      RC_ASSERT(fake->in_flight() == 0u);
      for (const auto& [link, bytes] : fake->stats().most_link_bytes) most = std::max(most, bytes);
    }
    RC_ASSERT(most.value <= kLinkBound);
  }

 private:
  struct Handled {
    Transfer transfer;
    bool may_fail = false;
    int told = 0;
  };

  struct Batch {
    std::vector<MovePair> pairs;
    std::vector<bool> over;
    Transfer transfer;
    Handled* move = nullptr;
  };

  FakeBackend& fake(const Op& op) { return *fakes_[op.c % 2]; }
  static EngineId engine(const Op& op) { return op.c % 2 == 0 ? kCpuA : kCpuB; }
  std::optional<Error> some_error(const Op& op) {
    if (op.a % 2 == 0) return std::nullopt;
    trouble_ = true;
    return Error{op.a % 4 == 1 ? ErrorCode::io : ErrorCode::unsupported, "told to"};
  }

  // The destination: blocks to which no open move writes.
  void copy(const Op& op) {
    const std::uint64_t length = op.c % (8 * kBlock);
    const std::uint64_t from = op.a % (kBytes - length);
    const std::uint64_t to = op.b % (kBytes - length);
    const std::size_t first = to / kBlock;
    const std::size_t last = (to + length) / kBlock;
    for (std::size_t i = first; i <= last && i < kBlocks; ++i) {
      if (busy_[i]) return;
    }
    for (std::size_t i = first; i <= last && i < kBlocks; ++i) busy_[i] = true;
    for (std::size_t i = 0; i < length; ++i) expected_[to + i].reset();

    MoveOptions options{.priority = static_cast<Priority>(op.a % 3)};
    if (op.b % 3 != 0) options.route = test::by_engine(engine(op));
    Handled& move = moves_.emplace_back();
    move.may_fail = scenario_.failing;
    ++open_;
    ++started_;
    const Extent target{&to_, to, Bytes{length}};
    move.transfer = mover_->copy(target, {&from_, from, Bytes{length}}, options);
    move.transfer.on_done([this, &move, from, target](const Result<MoveStats>& outcome) {
      ended(move, from, target, outcome);
    });
  }

  // Pairs of up to two blocks, to blocks to which nothing else writes.
  void batch(const Op& op) {
    Batch& batch = batches_.emplace_back();
    for (std::uint32_t i = 0; i <= op.c % 9; ++i) {
      const std::size_t first = (op.b + i * 5) % (kBlocks - 2);
      if (busy_[first] || busy_[first + 1]) continue;
      busy_[first] = busy_[first + 1] = true;
      const std::uint64_t length = (op.a + i * 300) % (2 * kBlock);
      const std::uint64_t from = (op.a + i * 700) % (kBytes - length);
      batch.pairs.push_back({{&to_, first * kBlock, Bytes{length}}, {&from_, from, Bytes{length}}});
      for (std::size_t j = 0; j < length; ++j) expected_[first * kBlock + j].reset();
    }
    batch.over.resize(batch.pairs.size());
    MoveOptions options{.priority = static_cast<Priority>(op.a % 3)};
    if (op.b % 3 != 0) options.route = test::by_engine(engine(op));
    Handled& move = moves_.emplace_back();
    move.may_fail = scenario_.failing;
    batch.move = &move;
    ++open_;
    started_ += batch.pairs.size();
    batch.transfer = mover_->copy(batch.pairs, options);
    move.transfer = batch.transfer;
    batch.transfer.on_done([this, &batch](const Result<MoveStats>& outcome) {
      --open_;
      expect(++batch.move->told == 1, "told once");
      look_at_pairs(batch);
      Bytes moved;
      bool all_well = true;
      for (std::size_t i = 0; i < batch.pairs.size(); ++i) {
        expect(batch.over[i], "done when all pairs are");
        const bool well = batch.transfer.poll(i).value().has_value();
        all_well = all_well && well;
        if (well) moved += batch.pairs[i].to.length;
      }
      expect(outcome.has_value() == all_well, "well if all are");
      if (outcome) expect(outcome->bytes == moved, "all bytes are counted");
    });
  }

  // An ended pair has no writer; a successful one has its bytes.
  void look_at_pairs(Batch& batch) {
    expect(batch.transfer.size() == batch.pairs.size(), "size");
    for (std::size_t i = 0; i < batch.pairs.size(); ++i) {
      if (batch.over[i]) continue;
      const auto status = batch.transfer.poll(i);
      if (!status) continue;
      batch.over[i] = true;
      const MovePair& pair = batch.pairs[i];
      const std::size_t first = pair.to.offset / kBlock;
      busy_[first] = busy_[first + 1] = false;
      for (const FakeBackend* fake : fakes_) {
        expect(!fake->writes_to(pair.to), "a pair that is over has no writer");
      }
      if (!*status) {
        expect(batch.move->may_fail || trouble_, "fails only where there is a reason");
        continue;
      }
      for (std::size_t j = 0; j < pair.to.length.value; ++j) {
        expected_[pair.to.offset + j] = source_bytes_[pair.from.offset + j];
        expect(target_bytes_[pair.to.offset + j] == source_bytes_[pair.from.offset + j],
               "bytes are there");
      }
    }
  }

  // A callback must not throw, so the failure is reported to RapidCheck later.
  void expect(bool held, const char* what) {
    if (!held) complaints_.emplace_back(what);
  }

  void ended(Handled& move, std::uint64_t from, const Extent& target,
             const Result<MoveStats>& outcome) {
    --open_;
    expect(++move.told == 1, "told once");
    for (const FakeBackend* fake : fakes_) expect(!fake->writes_to(target), "done has no writer");
    for (std::size_t i = target.offset / kBlock; i <= target.end() / kBlock && i < kBlocks; ++i) {
      busy_[i] = false;
    }
    if (!outcome) {
      expect(move.may_fail || trouble_, "fails only where there is a reason");
      return;
    }
    expect(outcome->bytes == target.length, "all bytes are counted");
    for (std::size_t i = 0; i < target.length.value; ++i) {
      expected_[target.offset + i] = source_bytes_[from + i];
      expect(target_bytes_[target.offset + i] == source_bytes_[from + i], "bytes are there");
    }
  }

  const Scenario scenario_;
  const Machine machine_ = test::small_machine();
  ManualClock clock_;
  test::ManualWaiting waiting_{clock_};
  std::vector<std::byte> source_bytes_ = test::random_bytes(kBytes, 1);
  std::vector<std::byte> target_bytes_ = std::vector<std::byte>(kBytes);
  MemoryRange from_{source_bytes_, test::kDram};
  MemoryRange to_{target_bytes_, test::kHbm};
  std::vector<std::optional<std::byte>> expected_ =
      std::vector<std::optional<std::byte>>(kBytes, std::byte{0});
  std::vector<bool> busy_ = std::vector<bool>(kBlocks);
  std::deque<Handled> moves_;  // callbacks hold references
  std::deque<Batch> batches_;
  std::size_t open_ = 0;
  std::size_t started_ = 0;  // moves, and pairs of batches
  std::vector<std::string> complaints_;
  bool trouble_ = false;  // an engine was made to fail
  std::vector<FakeBackend*> fakes_;
  Backends backends_;
  std::optional<Mover> mover_;
};

TEST(MoverRandom, RandomOperations_MatchTheModel) {
  const bool held = rc::check("the Mover against a naive model", [] {
    const Scenario scenario{*rc::gen::arbitrary<std::uint64_t>(), *rc::gen::arbitrary<bool>(),
                            *rc::gen::inRange(0U, 3U), *rc::gen::arbitrary<bool>(),
                            *rc::gen::arbitrary<bool>()};
    const auto ops = *rc::gen::scale(3.0, rc::gen::container<std::vector<Op>>(any_op()));
    World world(scenario);
    bool ended = false;
    for (const Op& op : ops) {
      ended = op.kind == Kind::end;
      if (ended) break;
      world.carry_out(op);
    }
    if (!ended) world.run_dry();
    world.end();
    world.judge();
  });
  EXPECT_TRUE(held);
}

}  // namespace
}  // namespace headrace
