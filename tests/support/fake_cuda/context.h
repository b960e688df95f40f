// SPDX-License-Identifier: Apache-2.0
// A device and its primary context: streams, copy engines, memory in use, and what has gone wrong.
//
// Thread-safe.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <set>
#include <thread>
#include <vector>

#include "backend/cuda/driver_api.h"
#include "core/mutex.h"
#include "support/fake_cuda/settings.h"
#include "support/fake_cuda/stream.h"

namespace headrace::cuda::fake {

class Context;
class Device;

// Keeps its context as long as it runs.
struct BoundStream {
  BoundStream(std::shared_ptr<Context> of, bool blocking);

  const std::shared_ptr<Context> context;
  Stream stream;
};

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

class Context final : public Runner, public std::enable_shared_from_this<Context> {
 public:
  Context(Device& device, CUcontext handle, const Settings& settings)
      : device_(device), handle_(handle), settings_(settings) {}

  Device& device() const { return device_; }
  CUcontext handle() const { return handle_; }

  CUresult run(const Marks& after, const Work& work) override;
  // Sleeps, but no longer than the context lives.
  void sleep(std::chrono::nanoseconds time);
  // The same, up to a time that is met to some microseconds.
  void sleep_until(Clock::time_point end);

  std::shared_ptr<BoundStream> legacy();     // the default stream
  std::shared_ptr<BoundStream> of_thread();  // that of the calling thread
  std::shared_ptr<BoundStream> add_stream(bool blocking);
  // Ends when what it was given is done; nobody waits for that.
  void retire(const std::shared_ptr<BoundStream>& stream);
  // In order after what the legacy default stream asks for.
  std::shared_ptr<Mark> enqueue(BoundStream& stream, Work work, Marks after = {});
  CUresult synchronize();         // waits for all streams
  bool enable_peer(int ordinal);  // false: it was already
  bool peer_enabled(int ordinal) const;

  // What every call answers from now on, until the context ends.
  void fail(CUresult error);
  CUresult failure() const;  // CUDA_SUCCESS: none
  // What one later call answers, and no more.
  void set_pending(CUresult error);
  CUresult take_pending();

  // All ends: what was enqueued is dropped, threads have ended on return.
  void close();
  bool closed() const;

 private:
  CUresult begin_operation();
  Marks all_streams();

  Device& device_;
  const CUcontext handle_;
  const Settings& settings_;
  std::atomic<std::uint64_t> operations_{0};

  mutable Mutex mutex_;
  CondVar closing_;
  bool closed_ GUARDED_BY(mutex_) = false;
  CUresult failure_ GUARDED_BY(mutex_) = CUDA_SUCCESS;
  CUresult pending_ GUARDED_BY(mutex_) = CUDA_SUCCESS;
  std::shared_ptr<BoundStream> legacy_ GUARDED_BY(mutex_);
  std::vector<std::shared_ptr<BoundStream>> streams_ GUARDED_BY(mutex_);
  std::vector<std::shared_ptr<BoundStream>> retired_ GUARDED_BY(mutex_);
  std::map<std::thread::id, std::shared_ptr<BoundStream>> of_threads_ GUARDED_BY(mutex_);
  std::set<int> peers_ GUARDED_BY(mutex_);
};

// What takes a copy engine's time; operations wait for each other.
enum class Direction { to_device, to_host, within };

class Device {
 public:
  Device(int ordinal, const Settings& settings);

  int ordinal() const { return ordinal_; }

  // The number that the driver gives for an attribute; false: it knows none.
  bool attribute(CUdevice_attribute what, int& value) const;

  // The primary context; made when there was none. Its handle.
  CUcontext retain();
  bool release();  // false: it is not retained
  bool retained() const;

  bool take_memory(std::size_t size);  // false: there is not so much
  void give_memory(std::size_t size);
  std::size_t free_memory() const;

  // Holds an engine for as long as `size` bytes take, then does `work`. Who is late, since threads
  // sleep for longer than they ask to, holds up nothing that comes after.
  void transfer(Context& context, Direction direction, std::size_t size, const Work& work);
  // Holds the link for kernels as long, from `begun` on: they share it.
  void use_link(Context& context, Clock::time_point begun, std::chrono::nanoseconds time);
  // What `operations` take on a link, each with its latency, with `size` bytes in all.
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
