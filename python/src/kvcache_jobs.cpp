// SPDX-License-Identifier: Apache-2.0
// Loads and stores of whole blocks that a thread begins: the caller only lists them.
#include <nanobind/ndarray.h>
#include <nanobind/stl/tuple.h>

#include <iterator>
#include <list>
#include <thread>

#include "core/mutex.h"
#include "core/thread.h"
#include "handles.h"
#include "kvcache.h"
#include "types.h"

namespace headrace::python {

using namespace nb::literals;

namespace {

constexpr std::string_view kJobs = "the jobs of the KV store";
// CondVar has no wait without a bound.
constexpr Nanoseconds kSleep = std::chrono::seconds{60};

// Bytes of a key for which memory is reserved: a hash, and a number or two.
constexpr std::size_t kUsualKey = 64;

// How a load is divided: its parts are verified while others are read.
struct Division {
  std::size_t blocks = 0;  // of a part; 0: one part
  bool promote = true;
};

struct Job {
  std::uint64_t number = 0;      // the caller's
  std::optional<Division> load;  // none: a store
  std::string names;
  std::vector<std::size_t> ends;  // of each name in `names`
  std::vector<std::size_t> positions;
  // Written by the thread that begins the job, then read by who takes it.
  std::vector<kvcache::Load> loads;
  kvcache::Stored stored;
  std::string error;
  std::size_t left = 1;  // parts that have not ended, and their beginning; guarded by the inbox

  std::size_t blocks() const { return ends.size(); }
};
using Jobs = std::list<Job>;

// Number, which blocks were loaded, how many were loaded or kept, and why not all were begun.
using Outcome = std::tuple<std::uint64_t, std::vector<bool>, std::size_t, std::string>;

// Jobs that wait to begin, run, and have ended. Thread-safe.
class Inbox {
 public:
  // Errors: cancelled: stop() was called.
  void put(Jobs job) {
    {
      const MutexLock lock(mutex_);
      if (stopping_) raise(ErrorCode::cancelled, "the jobs are closed");
      waiting_.splice(waiting_.end(), job);
    }
    there_.notify_one();  // without the lock, for which the thread would wait
  }
  // The next job to begin; nothing once there is none and stop() was called. It stays in place
  // until part_ended() was called for its beginning.
  std::optional<Jobs::iterator> next() {
    const MutexLock lock(mutex_);
    while (waiting_.empty() && !stopping_) there_.wait_for(mutex_, kSleep);
    if (waiting_.empty()) return std::nullopt;
    running_.splice(running_.end(), waiting_, waiting_.begin());
    return std::prev(running_.end());
  }
  void add_part(Job& job) {
    const MutexLock lock(mutex_);
    ++job.left;
  }
  void part_ended(Jobs::iterator job) {
    const MutexLock lock(mutex_);
    if (--job->left > 0) return;
    ended_.splice(ended_.end(), running_, job);
    if (idle()) idle_.notify_all();
  }
  Jobs take() {
    const MutexLock lock(mutex_);
    return std::exchange(ended_, {});
  }
  // Whether all jobs have ended within the time.
  bool wait(Nanoseconds timeout) {
    const MutexLock lock(mutex_);
    if (!idle() && timeout > Nanoseconds{0}) idle_.wait_for(mutex_, timeout);
    return idle();
  }
  void stop() {
    const MutexLock lock(mutex_);
    stopping_ = true;
    there_.notify_one();
  }

 private:
  bool idle() const REQUIRES(mutex_) { return waiting_.empty() && running_.empty(); }

  Mutex mutex_;
  CondVar there_;  // a job to begin, or the end
  CondVar idle_;
  bool stopping_ GUARDED_BY(mutex_) = false;
  Jobs waiting_ GUARDED_BY(mutex_);
  Jobs running_ GUARDED_BY(mutex_);
  Jobs ended_ GUARDED_BY(mutex_);
};

class KvJobs {
 public:
  KvJobs(std::shared_ptr<KvOwner> owner, const ExtentLike& memory)
      : owner_(std::move(owner)), memory_({memory}), inbox_(std::make_shared<Inbox>()) {
    thread_ = unwrap(start_thread("headrace-kvjobs", [this] { work(); }));
  }
  ~KvJobs() {
    if (!origin_.here()) {  // the thread and the locks are the parent's
      thread_.detach();
      new std::shared_ptr(std::move(inbox_));
      return;
    }
    std::optional<GilRelease> release;
    if (holds_gil()) release.emplace();
    stop();
  }
  KvJobs(const KvJobs&) = delete;
  KvJobs& operator=(const KvJobs&) = delete;

  Inbox& inbox() {
    unwrap(origin_.check(kJobs));
    return *inbox_;
  }
  // Jobs that were put are begun first. Each of several callers waits for the end of the thread.
  void stop() {
    inbox_->stop();
    const MutexLock lock(joining_);
    if (thread_.joinable()) thread_.join();
  }

 private:
  void work() {
    while (const auto next = inbox_->next()) {
      const Jobs::iterator job = *next;
      try {
        if (job->blocks() > 0) job->load ? begin_load(job) : begin_store(job);
      } catch (const std::bad_alloc&) {
        job->error = "out of memory";
      } catch (const std::exception& error) {
        job->error = error.what();
      }
      inbox_->part_ended(job);
    }
  }

  static std::vector<kvcache::Key> keys_of(const Job& job) {
    std::vector<std::string_view> names;
    names.reserve(job.blocks());
    std::size_t begin = 0;
    for (const std::size_t end : job.ends) {
      names.push_back(std::string_view(job.names).substr(begin, end - begin));
      begin = end;
    }
    return kvcache::keys_of(names);
  }

  void begin_load(Jobs::iterator job) {
    const std::vector<kvcache::Key> keys = keys_of(*job);
    const std::size_t part = job->load->blocks == 0 ? keys.size() : job->load->blocks;
    job->loads.reserve((keys.size() + part - 1) / part);  // none that has begun is dropped
    for (std::size_t first = 0; first < keys.size(); first += part) {
      const std::size_t count = std::min(part, keys.size() - first);
      const auto at = job->positions.begin() + static_cast<std::ptrdiff_t>(first);
      auto load = owner_->store->load(std::span(keys).subspan(first, count), memory_.extents,
                                      {.positions = {at, at + static_cast<std::ptrdiff_t>(count)},
                                       .layer_order = false,
                                       .skip_missing = true,
                                       .promote = job->load->promote,
                                       .keep = memory_.keep});
      if (!load) {
        job->error = std::move(load.error().message);
        return;
      }
      job->loads.push_back(std::move(*load));
      const kvcache::Load& begun = job->loads.back();
      if (begun.layers() == 0) continue;
      count_part(job, begun, [&](auto then) { begun.on_layer(0, std::move(then)); });
    }
  }

  void begin_store(Jobs::iterator job) {
    auto stored = owner_->store->store(keys_of(*job), memory_.extents,
                                       {.positions = job->positions, .keep = memory_.keep});
    if (!stored) {
      job->error = std::move(stored.error().message);
      return;
    }
    job->stored = std::move(*stored);
    count_part(job, job->stored, [&](auto then) { job->stored.on_done(std::move(then)); });
  }

  // Counts a copy as a part of the job until it ends. If the callback cannot be registered, the end
  // is waited for here: a job never ends while its memory is in use.
  void count_part(Jobs::iterator job, const auto& copy, const auto& register_callback) {
    inbox_->add_part(*job);
    try {
      register_callback([inbox = inbox_, job] { inbox->part_ended(job); });
    } catch (...) {
      while (!copy.done()) static_cast<void>(copy.wait(kSleep));
      inbox_->part_ended(job);
      throw;
    }
  }

  const Origin origin_;
  const std::shared_ptr<KvOwner> owner_;
  const Memory memory_;
  std::shared_ptr<Inbox> inbox_;
  Mutex joining_;
  std::thread thread_ GUARDED_BY(joining_);
};

struct KvJobsRef {
  std::shared_ptr<KvJobs> jobs;
};

using Names = nb::typed<nb::sequence, nb::bytes>;
using Positions = nb::ndarray<const std::int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

void put(const KvJobsRef& self, std::uint64_t number, const Names& keys, const Positions& positions,
         std::optional<Division> load) {
  Inbox& inbox = self.jobs->inbox();
  // A list or a tuple as it is: keys are read where they are, without references of their own.
  const auto list = nb::steal(PySequence_Fast(keys.ptr(), "keys are a sequence of bytes"));
  if (!list.is_valid()) throw nb::python_error();
  const auto count = static_cast<std::size_t>(PySequence_Fast_GET_SIZE(list.ptr()));
  if (count != positions.shape(0)) {
    raise(ErrorCode::invalid,
          std::to_string(count) + " keys for " + std::to_string(positions.shape(0)) + " positions");
  }
  Jobs jobs(1);
  Job& job = jobs.front();
  job.number = number;
  job.load = load;
  job.ends.reserve(count);
  for (PyObject* const key : std::span(PySequence_Fast_ITEMS(list.ptr()), count)) {
    char* name = nullptr;
    Py_ssize_t bytes = 0;
    if (PyBytes_AsStringAndSize(key, &name, &bytes) != 0) throw nb::python_error();
    const auto length = static_cast<std::size_t>(bytes);
    // Keys usually have one length. A first key that is much longer must not cost memory.
    if (job.ends.empty()) job.names.reserve(count * std::min(length, kUsualKey));
    job.names.append(name, length);
    job.ends.push_back(job.names.size());
  }
  const std::int64_t* const at = positions.data();
  job.positions.assign(at, at + count);
  inbox.put(std::move(jobs));
}

Outcome outcome_of(const Job& job) {
  std::vector<bool> loaded;
  std::size_t there = 0;
  if (job.load) {
    const std::size_t part = job.load->blocks == 0 ? job.blocks() : job.load->blocks;
    loaded.resize(job.blocks());
    for (std::size_t i = 0; i < job.blocks() && i / part < job.loads.size(); ++i) {
      loaded[i] = job.loads[i / part].loaded(i % part);
      there += loaded[i] ? 1 : 0;
    }
  } else if (const auto counts = job.stored.poll()) {
    there = counts->stored + counts->present;
  }
  return {job.number, std::move(loaded), there, job.error};
}

}  // namespace

void bind_kv_jobs(nb::module_& m) {
  nb::class_<KvJobsRef>(
      m, "KvJobs",
      "Loads and stores of whole blocks between a KvStore and one memory, for callers that must "
      "not wait. A call lists names and positions, and takes a few microseconds; a thread of this "
      "object begins the jobs, in the order of the calls. Thread-safe.")
      .def(
          "__init__",
          [](KvJobsRef* self, const KvStoreRef& store, const ExtentLike& memory) {
            if (!memory.writable) raise(ErrorCode::denied, "the memory is read-only");
            new (self) KvJobsRef{std::make_shared<KvJobs>(store.owner, memory)};
          },
          "store"_a, "memory"_a)
      .def(
          "store",
          [](const KvJobsRef& self, std::uint64_t number, const Names& keys,
             const Positions& positions) { put(self, number, keys, positions, {}); },
          "number"_a, "keys"_a, "positions"_a,
          "Like KvStore.store(). The memory must not change until the job has ended.")
      .def(
          "load",
          [](const KvJobsRef& self, std::uint64_t number, const Names& keys,
             const Positions& positions, std::size_t part,
             bool promote) { put(self, number, keys, positions, Division{part, promote}); },
          "number"_a, "keys"_a, "positions"_a, nb::kw_only(), "part"_a, "promote"_a,
          "Like KvStore.load_blocks(), in parts of `part` blocks: one part is verified while the "
          "next is read. 0: all in one part.")
      .def(
          "take",
          [](const KvJobsRef& self) {
            std::vector<Outcome> outcomes;
            for (const Job& job : self.jobs->inbox().take()) outcomes.push_back(outcome_of(job));
            return outcomes;
          },
          "Jobs that have ended since the last call. For each: its number; for each block of a "
          "load, whether it was loaded and verified; the count of blocks loaded or stored; and the "
          "error if it could not begin.")
      .def(
          "wait",
          [](const KvJobsRef& self, Nanoseconds timeout) {
            const std::shared_ptr<KvJobs> jobs = self.jobs;
            Inbox& inbox = jobs->inbox();
            if (!wait_with_signals(timeout, [&](Nanoseconds slice) { return inbox.wait(slice); })) {
              raise(ErrorCode::timed_out, "jobs of the KV store have not ended");
            }
          },
          "timeout"_a = 60.0, "Waits until all jobs have ended.")
      .def(
          "close",
          [](const KvJobsRef& self) {
            const std::shared_ptr<KvJobs> jobs = self.jobs;
            jobs->inbox();
            without_gil([&] { jobs->stop(); });
          },
          "Accepts no more jobs, and ends the thread once it has begun all jobs. The object still "
          "keeps the store and the memory.");
}

}  // namespace headrace::python
