// SPDX-License-Identifier: Apache-2.0
// Shared by the tests of this folder: a temporary directory, a listener that waits with a bound,
// and a queue that fails by script.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "backend/storage/queue.h"
#include "backend/storage/storage.h"
#include "headrace/file.h"
#include "tests/support/bytes.h"
#include "tests/support/machines.h"
#include "tests/support/outcomes.h"

namespace headrace::test {

using Data = std::vector<std::byte>;

// A directory that is removed with its files at the end of the scope.
class TempDir {
 public:
  explicit TempDir(const std::filesystem::path& where = testing::TempDir()) {
    std::string name = (where / "headrace_storage_XXXXXX").string();
    EXPECT_NE(mkdtemp(name.data()), nullptr);
    path_ = name;
  }
  ~TempDir() { std::filesystem::remove_all(path_); }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path file(const std::string& name, const Data& data) const {
    std::ofstream out(path_ / name, std::ios::binary);
    out.write(reinterpret_cast<const char*>(data.data()),
              static_cast<std::streamsize>(data.size()));
    return path_ / name;
  }

 private:
  std::filesystem::path path_;
};

inline Data contents(const std::filesystem::path& path) {
  Data data(std::filesystem::file_size(path));
  std::ifstream in(path, std::ios::binary);
  in.read(reinterpret_cast<char*>(data.data()), static_cast<std::streamsize>(data.size()));
  return data;
}

inline std::unique_ptr<Backend> open_or_die(const StorageOptions& options) {
  auto backend = open_storage(small_machine(), {kSsd}, options);
  EXPECT_TRUE(backend) << backend.error().message;
  return *std::move(backend);
}

inline std::unique_ptr<File> open_file(const std::filesystem::path& path, FileOptions options) {
  auto file = File::open(small_machine(), path, options);
  EXPECT_TRUE(file) << file.error().message;
  return *std::move(file);
}

// Reads of `each` bytes from the beginning of a file; the tag of each is its number.
inline std::vector<Piece> reads(const File& file, const Object& memory, std::uint64_t count,
                                std::uint64_t each) {
  std::vector<Piece> pieces;
  for (std::uint64_t i = 0; i < count; ++i) {
    pieces.push_back({.from = {&file, i * each, Bytes{each}},
                      .to = {&memory, i * each, Bytes{each}},
                      .engine = kSsd,
                      .tag = i});
  }
  return pieces;
}

// Submits one piece and waits for its outcome.
inline Status copy_now(Backend& backend, const Extent& to, const Extent& from) {
  Outcomes outcomes;
  const Piece piece{.from = from, .to = to, .engine = kSsd, .tag = 7};
  const auto accepted = backend.submit({&piece, 1}, outcomes);
  if (!accepted) return Unexpected(accepted.error());
  EXPECT_EQ(*accepted, 1U);
  EXPECT_TRUE(outcomes.wait(1));
  return outcomes.of(7);
}

// The effect of a script on a request.
struct Fault {
  int error = 0;                          // ends with it, unsent
  std::size_t at_most = ~std::size_t{0};  // reports at most this many bytes
  bool lost = false;                      // is not sent and ends only when cancelled
  int deaf = 0;                           // if lost: ignores this number of cancellations
};

// Outcomes, and the time of the last one by a clock.
class TimedOutcomes final : public Outcomes {
 public:
  explicit TimedOutcomes(const Clock& clock) : clock_(clock) {}
  void complete(std::uint64_t tag, Status outcome) noexcept override {
    last_end_ = clock_.now();
    Outcomes::complete(tag, std::move(outcome));
  }
  Nanoseconds last_end() const { return last_end_; }

 private:
  const Clock& clock_;
  std::atomic<Nanoseconds> last_end_{};
};

using FaultScript = std::function<Fault(const storage::Request&)>;

// Asks the script about each request, and keeps those that fail or are lost from the real queue.
class ScriptedFaults {
 public:
  explicit ScriptedFaults(FaultScript script) : script_(std::move(script)) {}
  void start(storage::Request& request, auto& real) {
    const Fault fault = script_(request);
    if (fault.lost) {
      lost_[&request] = fault.deaf;
    } else if (fault.error != 0) {
      ended.push_back({&request, -fault.error});
    } else {
      limits_[&request] = fault.at_most;
      real.start(request);
    }
  }
  void cancel(storage::Request& request, auto& real) {
    const auto found = lost_.find(&request);
    if (found == lost_.end()) {
      real.cancel(request);
    } else if (found->second-- <= 0) {
      lost_.erase(found);
      ended.push_back({&request, -ECANCELED});
    }
  }
  void limit(std::span<storage::Finished> finished) {
    for (storage::Finished& each : finished) {
      const std::size_t most = std::min<std::size_t>(limits_[each.request], 1 << 30);
      each.result = std::min(each.result, static_cast<int>(most));
    }
  }
  void give(std::vector<storage::Finished>& out) {
    out.insert(out.end(), ended.begin(), ended.end());
    ended.clear();
  }

  std::vector<storage::Finished> ended;  // not yet given back

 private:
  FaultScript script_;
  std::map<storage::Request*, int> lost_;  // with the cancellations that each still ignores
  std::map<storage::Request*, std::size_t> limits_;
};

// A queue with faults. While `passing`, a wait for nothing takes its timeout by the clock, and no
// real time.
class FaultyQueue final : public storage::Queue {
 public:
  struct Time {
    ManualClock& clock;
    std::atomic<bool> passing = false;
  };
  FaultyQueue(std::unique_ptr<storage::Queue> real, FaultScript script, Time* time)
      : real_(std::move(real)), faults_(std::move(script)), time_(time) {}

  void start(storage::Request& request) override { faults_.start(request, *real_); }
  void cancel(storage::Request& request) override { faults_.cancel(request, *real_); }
  void wait(Nanoseconds timeout, std::vector<storage::Finished>& out) override {
    const std::size_t before = out.size();
    const bool passing = time_ != nullptr && time_->passing;
    // The clock may start to pass during a wait.
    const Nanoseconds longest =
        time_ != nullptr ? Nanoseconds{std::chrono::milliseconds{1}} : timeout;
    real_->wait(faults_.ended.empty() ? std::min(timeout, longest) : Nanoseconds{0}, out);
    if (passing && faults_.ended.empty() && out.size() == before) time_->clock.advance(timeout);
    faults_.limit(std::span(out).subspan(before));
    faults_.give(out);
  }
  void wake() override { real_->wake(); }
  std::optional<int> wake_descriptor() const override { return real_->wake_descriptor(); }
  std::string describe() const override { return real_->describe(); }

 private:
  std::unique_ptr<storage::Queue> real_;
  ScriptedFaults faults_;
  Time* const time_;
};

// The same for small reads. A lost read is given back only after its cancellation; an ended one
// that is `held`, after its release.
class FaultyRing final : public storage::SharedRing {
 public:
  // Counts the threads that sleep while reads are held; they wake at the release. While `stopped`,
  // no such sleep ends, as if the thread got no CPU.
  struct Held {
    std::atomic<bool> reads = false;
    std::atomic<bool> stopped = false;
    std::atomic<int> sleepers = 0;
    std::atomic<int> sleeps = 0;
    std::atomic<bool> announced = false;  // as the ring was last asked to
    std::atomic<int> cancels = 0;
  };
  FaultyRing(std::unique_ptr<storage::SharedRing> real, FaultScript script, Held* held = nullptr)
      : real_(std::move(real)), faults_(std::move(script)), held_(held == nullptr ? &own_ : held) {}

  void start(storage::Request& request) override { faults_.start(request, *real_); }
  void cancel(storage::Request& request) override {
    ++held_->cancels;
    const auto held = std::ranges::find(faults_.ended, &request, &storage::Finished::request);
    if (held == faults_.ended.end()) return faults_.cancel(request, *real_);
    held->result = -ECANCELED;
    cancelled_ = true;
  }
  bool send() override { return real_->send(); }
  void take(std::vector<storage::Finished>& out, const storage::Request* kept) override {
    const std::size_t before = faults_.ended.size();
    real_->take(faults_.ended, kept);
    faults_.limit(std::span(faults_.ended).subspan(before));
    if (!held_->reads || cancelled_) faults_.give(out);
  }
  void announce(bool ends) override {
    held_->announced = ends;
    real_->announce(ends);
  }
  void sleep(Nanoseconds timeout) override {
    ++held_->sleeps;
    if (!held_->reads) return real_->sleep(timeout);
    ++held_->sleepers;
    const Nanoseconds now = system_clock().now();
    while ((held_->stopped && system_clock().now() < now + kBound) ||
           (held_->reads && system_clock().now() < now + timeout)) {
      std::this_thread::sleep_for(std::min<Nanoseconds>(timeout, std::chrono::milliseconds{1}));
    }
    --held_->sleepers;
  }

 private:
  std::unique_ptr<storage::SharedRing> real_;
  ScriptedFaults faults_;
  Held own_;
  Held* const held_;
  bool cancelled_ = false;
};

inline StorageQueue queue_of(bool threads) {
  return threads ? StorageQueue::threads : StorageQueue::automatic;
}

inline StorageOptions with_faults(bool threads, FaultScript script,
                                  FaultyQueue::Time* time = nullptr) {
  StorageOptions options;
  options.queue = queue_of(threads);
  if (time != nullptr) options.clock = &time->clock;
  options.wrap_shared = [script](std::unique_ptr<storage::SharedRing> real) {
    return std::make_unique<FaultyRing>(std::move(real), script);
  };
  options.wrap = [script = std::move(script), time](std::unique_ptr<storage::Queue> real) {
    return std::make_unique<FaultyQueue>(std::move(real), script, time);
  };
  return options;
}

}  // namespace headrace::test
