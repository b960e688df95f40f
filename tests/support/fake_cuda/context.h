// SPDX-License-Identifier: Apache-2.0
// A device and its primary context: streams, copy engines, used memory, and errors.
//
// Thread-safe.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <thread>
#include <vector>

#include "backend/cuda/driver_api.h"
#include "core/mutex.h"
#include "support/fake_cuda/settings.h"
#include "support/fake_cuda/stream.h"

namespace headrace::cuda::fake {

class Device;

struct Event {
  std::shared_ptr<Context> context;
  bool timed = true;
  Mutex mutex;
  std::shared_ptr<Mark> mark GUARDED_BY(mutex);  // null: never recorded

  std::shared_ptr<Mark> recorded() {
    const MutexLock lock(mutex);
    return mark;
  }
};

class Context final : public std::enable_shared_from_this<Context> {
 public:
  Context(Device& device, CUcontext handle, const Settings& settings)
      : device_(device), handle_(handle), settings_(settings) {}

  Device& device() const { return device_; }
  CUcontext handle() const { return handle_; }

  // Does the work of a stream after the mark, unless it is null.
  CUresult run(const Mark* after, const Work& work);
  // Sleeps until a time, exact to some microseconds, but at most until the context ends.
  void sleep_until(Clock::time_point end);

  // The default stream of a thread; of no thread: the legacy one. None takes turns with other
  // streams, as if those were non-blocking.
  std::shared_ptr<Stream> default_of(std::thread::id thread);
  // Streams live as long as their context, so that the end of a handle waits for no work.
  std::shared_ptr<Stream> add_stream();
  CUresult synchronize();         // waits for all streams
  bool enable_peer(int ordinal);  // false: it was already enabled
  bool peer_enabled(int ordinal) const;

  // The result of every call from now on, until the context ends.
  void fail(CUresult error);
  CUresult failure() const;  // CUDA_SUCCESS: none
  // The result of one later call only.
  void set_pending(CUresult error);
  CUresult take_pending();

  // Ends all: drops enqueued work; threads have ended on return.
  void close();

 private:
  CUresult begin_operation();
  bool closed() const;

  Device& device_;
  const CUcontext handle_;
  const Settings& settings_;
  std::atomic<std::uint64_t> operations_{0};

  mutable Mutex mutex_;
  CondVar closing_;
  bool closed_ GUARDED_BY(mutex_) = false;
  CUresult failure_ GUARDED_BY(mutex_) = CUDA_SUCCESS;
  CUresult pending_ GUARDED_BY(mutex_) = CUDA_SUCCESS;
  std::map<std::thread::id, std::shared_ptr<Stream>> defaults_ GUARDED_BY(mutex_);
  std::vector<std::shared_ptr<Stream>> streams_ GUARDED_BY(mutex_);
  std::set<int> peers_ GUARDED_BY(mutex_);
};

// The kinds of copies that occupy a copy engine; operations of a kind wait for each other.
enum class Direction { to_device, to_host, within };

class Device {
 public:
  Device(int ordinal, const Settings& settings);

  int ordinal() const { return ordinal_; }

  // The driver's number for an attribute; nullopt: it knows none.
  std::optional<int> attribute(CUdevice_attribute what) const;

  // The handle of the primary context, which is made if there was none.
  CUcontext retain();
  bool release();  // false: it is not retained
  bool retained() const;

  bool take_memory(std::size_t size);  // false: not enough is free
  void give_memory(std::size_t size);
  std::size_t free_memory() const;

  // Occupies an engine for the time of `size` bytes, then does `work`. A thread that wakes late,
  // since sleeps last longer than requested, delays nothing that comes after.
  void transfer(Context& context, Direction direction, std::size_t size, const Work& work);
  // Occupies the link for kernels that long, starting at `begun`; kernels share it.
  void use_link(Context& context, Clock::time_point begun, std::chrono::nanoseconds time);
  // The time of `operations` with `size` bytes in all on a link, each with its latency.
  std::chrono::nanoseconds link_time(std::size_t operations, std::size_t size) const;

 private:
  struct Engine {
    Mutex mutex;
    Clock::time_point busy GUARDED_BY(mutex);  // until then
  };

  const int ordinal_;
  const Settings& settings_;
  std::vector<std::unique_ptr<Engine>> engines_;
  Engine kernels_;
  mutable Mutex mutex_;
  unsigned retained_ GUARDED_BY(mutex_) = 0;
  std::shared_ptr<Context> context_ GUARDED_BY(mutex_);
  std::size_t used_ GUARDED_BY(mutex_) = 0;
};

}  // namespace headrace::cuda::fake
