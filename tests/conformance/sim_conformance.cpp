// SPDX-License-Identifier: Apache-2.0
// The simulated backend. It lives in a run of its own, whose main thread carries out the calls of
// the tests. Since it copies nothing, the bytes are copied here when a piece ends: proven are the
// promises on acceptance, order and reports, not those on bytes.
#include <condition_variable>
#include <cstring>
#include <functional>
#include <mutex>
#include <thread>

#include "conformance/suite.h"
#include "core/fork.h"
#include "sim/backend.h"
#include "sim/sim_testing.h"

namespace headrace::conformance {
namespace {

// Calls a function on the main thread of a run, and returns when it has ended. Between two calls
// virtual time goes on.
class Runner {
 public:
  Runner()
      : thread_([this] { (void)sim::run({}, [this](sim::Scheduler& turns) { serve(turns); }); }) {}
  ~Runner() {
    call(nullptr);
    thread_.join();
  }
  void call(std::function<void(sim::Scheduler&)> function) {
    std::unique_lock lock(mutex_);
    free_.wait(lock, [this] { return !asked_; });
    function_ = std::move(function);
    asked_ = true;
    done_ = false;
    changed_.notify_all();
    const bool last = function_ == nullptr;
    ended_.wait(lock, [this, last] { return done_ || last; });
    asked_ = last;
    free_.notify_one();
  }

 private:
  void serve(sim::Scheduler& turns) {
    for (;;) {
      {
        std::unique_lock lock(mutex_);
        const auto some = [this] { return asked_ && !done_; };
        if (changed_.wait_for(lock, std::chrono::microseconds{20}, some)) {
          if (function_ == nullptr) return;
          const auto function = std::move(function_);
          lock.unlock();
          function(turns);
          lock.lock();
          done_ = true;
          ended_.notify_all();
        }
      }
      turns.sleep(std::chrono::microseconds{20});
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_, ended_, free_;
  std::function<void(sim::Scheduler&)> function_;
  bool asked_ = false;
  bool done_ = false;
  std::thread thread_;  // last: it uses the others
};

class InARun final : public Backend {
 public:
  explicit InARun(EngineId engine) {
    runner_->call([&](sim::Scheduler& turns) {
      host_ = *sim::Host::create(turns, machine_);
      backend_ = *sim::open(*host_, {engine});
    });
  }
  ~InARun() override {
    if (!origin_.here()) {
      backend_.reset();
      abandon(std::move(runner_));
      abandon(std::move(host_));
      return;
    }
    runner_->call([this](sim::Scheduler&) {
      backend_.reset();
      host_.reset();
    });
  }
  const Capabilities& capabilities() const override { return backend_->capabilities(); }
  Result<std::size_t> submit(std::span<const Piece> pieces, Completion& completion) override {
    std::vector<Piece> copies(pieces.begin(), pieces.end());
    for (Piece& piece : copies) {
      auto* const copying = new Copying{piece, completion};
      piece.tag = reinterpret_cast<std::uintptr_t>(copying);
    }
    Result<std::size_t> accepted = 0;
    const auto submit = [&] { accepted = backend_->submit(copies, copies_); };
    if (sim::Scheduler::current() != nullptr || !origin_.here()) {
      submit();
    } else {
      runner_->call([&](sim::Scheduler&) { submit(); });
    }
    for (std::size_t i = accepted.value_or(0); i < copies.size(); ++i) {
      delete reinterpret_cast<Copying*>(copies[i].tag);
    }
    return accepted;
  }
  std::size_t poll() override {
    std::size_t found = 0;
    if (origin_.here()) runner_->call([&](sim::Scheduler&) { found = backend_->poll(); });
    return found;
  }

 private:
  struct Copying {
    Piece piece;
    Completion& completion;
  };
  class Copies final : public Completion {
    void complete(std::uint64_t tag, Status outcome) noexcept override {
      const std::unique_ptr<Copying> own(reinterpret_cast<Copying*>(tag));
      const Piece& piece = own->piece;
      if (outcome && piece.from.length > 0_B) {
        std::memcpy(piece.to.memory(), piece.from.memory(), piece.from.length.value);
      }
      own->completion.complete(piece.tag, std::move(outcome));
    }
  };

  const Origin origin_;
  const Machine machine_ = sim::test_machine();
  Copies copies_;
  std::unique_ptr<Runner> runner_ = std::make_unique<Runner>();
  std::unique_ptr<sim::Host> host_;
  std::unique_ptr<Backend> backend_;
};

Case sim_case(std::string name, EngineId engine) {
  return {.name = std::move(name),
          .open = [engine] { return std::make_unique<InARun>(engine); },
          .engine = engine,
          .source = memory_on(sim::kSlow),
          .destination = memory_on(sim::kFast)};
}

INSTANTIATE_TEST_SUITE_P(Sim, BackendConformance,
                         testing::Values(sim_case("Cores", sim::kCores),
                                         sim_case("Dsa", sim::kDsa)),
                         case_name);

}  // namespace
}  // namespace headrace::conformance
