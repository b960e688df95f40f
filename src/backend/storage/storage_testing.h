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
#include "core/mutex.h"
#include "headrace/file.h"
#include "headrace/random.h"
#include "tests/support/machines.h"

namespace headrace::test {

using Data = std::vector<std::byte>;

inline Data random_bytes(std::size_t bytes, std::uint64_t seed) {
  Random random(seed);
  Data data(bytes);
  for (std::size_t at = 0; at < bytes; at += sizeof(std::uint64_t)) {
    const std::uint64_t drawn = random();
    std::memcpy(data.data() + at, &drawn, std::min(sizeof(drawn), bytes - at));
  }
  return data;
}

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

// Uses memcmp, since equal() over bytes takes the sanitizers seconds.
inline bool same(std::span<const std::byte> a, std::span<const std::byte> b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size()) == 0);
}

inline Data contents(const std::filesystem::path& path) {
  Data data(std::filesystem::file_size(path));
  std::ifstream in(path, std::ios::binary);
  in.read(reinterpret_cast<char*>(data.data()), static_cast<std::streamsize>(data.size()));
  return data;
}

// Remembers outcomes by tag; each tag must end once.
class Outcomes final : public Completion {
 public:
  explicit Outcomes(const Clock& clock = system_clock()) : clock_(clock) {}
  void complete(std::uint64_t tag, Status outcome) noexcept override {
    const MutexLock lock(mutex_);
    last_end_ = clock_.now();
    EXPECT_TRUE(outcomes_.emplace(tag, std::move(outcome)).second) << "tag " << tag << " twice";
    changed_.notify_all();
  }
  std::size_t count() {
    const MutexLock lock(mutex_);
    return outcomes_.size();
  }
  // Waits until `n` pieces have ended; false after 30 s.
  bool wait(std::size_t n) {
    const Nanoseconds end = system_clock().now() + std::chrono::seconds{30};
    const MutexLock lock(mutex_);
    while (outcomes_.size() < n && system_clock().now() < end) {
      changed_.wait_for(mutex_, std::chrono::milliseconds{100});
    }
    return outcomes_.size() >= n;
  }
  // The time of the last end so far.
  Nanoseconds last_end() {
    const MutexLock lock(mutex_);
    return last_end_;
  }
  Status of(std::uint64_t tag) {
    const MutexLock lock(mutex_);
    const auto found = outcomes_.find(tag);
    if (found == outcomes_.end()) {
      return Unexpected(Error{ErrorCode::absent, "has not ended"});
    }
    return found->second;
  }

 private:
  const Clock& clock_;
  Mutex mutex_;
  CondVar changed_;
  std::map<std::uint64_t, Status> outcomes_ GUARDED_BY(mutex_);
  Nanoseconds last_end_ GUARDED_BY(mutex_){0};
};

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

// Lost requests, with the cancellations that each still ignores.
using LostRequests = std::map<storage::Request*, int>;

// Whether this cancellation ends a lost request.
inline bool end_lost(LostRequests& lost, storage::Request& request) {
  const auto found = lost.find(&request);
  if (found == lost.end() || found->second-- > 0) return false;
  lost.erase(found);
  return true;
}

// Asks the script about each request and passes on those that do not fail. While `passing` returns
// true, a wait for nothing takes its timeout by the clock, and no real time.
class FaultyQueue final : public storage::Queue {
 public:
  using Script = std::function<Fault(const storage::Request&)>;
  struct Time {
    ManualClock& clock;
    std::atomic<bool> passing = false;
  };
  FaultyQueue(std::unique_ptr<storage::Queue> real, Script script, Time* time)
      : real_(std::move(real)), script_(std::move(script)), time_(time) {}

  void start(storage::Request& request) override {
    const Fault fault = script_(request);
    if (fault.lost) {
      lost_[&request] = fault.deaf;
    } else if (fault.error != 0) {
      ended_.push_back({&request, -fault.error});
    } else {
      limits_[&request] = fault.at_most;
      real_->start(request);
    }
  }
  void cancel(storage::Request& request) override {
    if (end_lost(lost_, request)) {
      ended_.push_back({&request, -ECANCELED});
    } else if (!lost_.contains(&request)) {
      real_->cancel(request);
    }
  }
  void wait(Nanoseconds timeout, std::vector<storage::Finished>& out) override {
    const std::size_t before = out.size();
    const bool passing = time_ != nullptr && time_->passing;
    // The clock may start to pass during a wait.
    const Nanoseconds longest =
        time_ != nullptr ? Nanoseconds{std::chrono::milliseconds{1}} : timeout;
    real_->wait(ended_.empty() ? std::min(timeout, longest) : Nanoseconds{0}, out);
    if (passing && ended_.empty() && out.size() == before) time_->clock.advance(timeout);
    for (std::size_t i = before; i < out.size(); ++i) {
      const auto limit = static_cast<long>(std::min<std::size_t>(limits_[out[i].request], 1 << 30));
      out[i].result = static_cast<int>(std::min<long>(out[i].result, limit));
    }
    out.insert(out.end(), ended_.begin(), ended_.end());
    ended_.clear();
  }
  void wake() override { real_->wake(); }
  std::optional<int> wake_descriptor() const override { return real_->wake_descriptor(); }
  std::string describe() const override { return real_->describe(); }

 private:
  std::unique_ptr<storage::Queue> real_;
  Script script_;
  Time* const time_;
  LostRequests lost_;
  std::vector<storage::Finished> ended_;
  std::map<storage::Request*, std::size_t> limits_;
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
  FaultyRing(std::unique_ptr<storage::SharedRing> real, FaultyQueue::Script script,
             Held* held = nullptr)
      : real_(std::move(real)), script_(std::move(script)), held_(held) {}

  void start(storage::Request& request) override {
    const Fault fault = script_(request);
    if (fault.lost) {
      lost_[&request] = fault.deaf;
    } else if (fault.error != 0) {
      ended_.push_back({&request, -fault.error});
    } else {
      limits_[&request] = fault.at_most;
      real_->start(request);
    }
  }
  void cancel(storage::Request& request) override {
    if (held_ != nullptr) ++held_->cancels;
    const auto held = std::ranges::find(ended_, &request, &storage::Finished::request);
    if (held != ended_.end()) {
      held->result = -ECANCELED;
      cancelled_ = true;
    } else if (end_lost(lost_, request)) {
      ended_.push_back({&request, -ECANCELED});
    } else if (!lost_.contains(&request)) {
      real_->cancel(request);
    }
  }
  bool send() override { return real_->send(); }
  void take(std::vector<storage::Finished>& out, const storage::Request* kept) override {
    const std::size_t before = ended_.size();
    real_->take(ended_, kept);
    for (std::size_t i = before; i < ended_.size(); ++i) {
      const std::size_t limit = std::min<std::size_t>(limits_[ended_[i].request], 1 << 30);
      ended_[i].result = std::min(ended_[i].result, static_cast<int>(limit));
    }
    if (held_ != nullptr && held_->reads && !cancelled_) return;
    out.insert(out.end(), ended_.begin(), ended_.end());
    ended_.clear();
  }
  void announce(bool ends) override {
    if (held_ != nullptr) held_->announced = ends;
    real_->announce(ends);
  }
  void sleep(Nanoseconds timeout) override {
    if (held_ != nullptr) ++held_->sleeps;
    if (held_ == nullptr || !held_->reads) return real_->sleep(timeout);
    ++held_->sleepers;
    const Nanoseconds end = system_clock().now() + timeout;
    const Nanoseconds bound = system_clock().now() + std::chrono::seconds{60};
    while ((held_->stopped && system_clock().now() < bound) ||
           (held_->reads && system_clock().now() < end)) {
      std::this_thread::sleep_for(std::min<Nanoseconds>(timeout, std::chrono::milliseconds{1}));
    }
    --held_->sleepers;
  }

 private:
  std::unique_ptr<storage::SharedRing> real_;
  FaultyQueue::Script script_;
  Held* const held_;
  bool cancelled_ = false;
  LostRequests lost_;
  std::vector<storage::Finished> ended_;
  std::map<storage::Request*, std::size_t> limits_;
};

inline StorageQueue queue_of(bool threads) {
  return threads ? StorageQueue::threads : StorageQueue::automatic;
}

inline StorageOptions with_faults(bool threads, FaultyQueue::Script script,
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

// Waits until `holds` does; false after 30 s.
template <class Holds>
bool eventually(Holds holds) {
  const Nanoseconds end = system_clock().now() + std::chrono::seconds{30};
  while (!holds() && system_clock().now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds{1});
  }
  return holds();
}

}  // namespace headrace::test
