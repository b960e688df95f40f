#include "backend/storage/storage.h"

#include <unistd.h>

#include <deque>
#include <thread>

#include "core/fail.h"
#include "core/mutex.h"
#include "headrace/file.h"

namespace headrace {
namespace {

class Storage final : public Backend {
 public:
  Storage(std::vector<EngineId> engines, const StorageOptions& options) {
    facts_.name = "storage";
    facts_.engines = std::move(engines);
    facts_.max_piece = 1_GiB;
    facts_.max_in_flight = options.queue_depth;
    facts_.min_efficient = 64_KiB;
    facts_.may_reorder = true;
    worker_ = std::thread([this] { work(); });
  }
  ~Storage() override {
    {
      MutexLock lock(mutex_);
      ending_ = true;
    }
    wake_.notify_one();
    worker_.join();
  }
  const Capabilities& capabilities() const override { return facts_; }
  Result<std::size_t> submit(std::span<const Piece> pieces, Completion& completion) override {
    MutexLock lock(mutex_);
    std::size_t n = 0;
    for (const Piece& piece : pieces) {
      if (jobs_.size() >= facts_.max_in_flight) break;
      if (auto good = check_piece(facts_, piece); !good) {
        if (n == 0) return std::unexpected(good.error());
        break;
      }
      if ((piece.from.object->memory() == nullptr) == (piece.to.object->memory() == nullptr)) {
        if (n == 0)
          return fail(ErrorCode::unsupported, "one side must be a file, the other memory");
        break;
      }
      jobs_.push_back({piece, &completion});
      ++n;
    }
    lock.unlock();
    wake_.notify_one();
    return n;
  }

 private:
  struct Job {
    Piece piece;
    Completion* completion;
  };
  void work() {
    MutexLock lock(mutex_);
    while (!ending_ || !jobs_.empty()) {
      if (jobs_.empty()) {
        wake_.wait_for(mutex_, std::chrono::seconds{1});
        continue;
      }
      const Job job = jobs_.front();
      jobs_.pop_front();
      lock.unlock();
      job.completion->complete(job.piece.tag, copy(job.piece));
      lock.lock();
    }
  }
  static Status copy(const Piece& piece) {
    const bool reading = piece.from.object->memory() == nullptr;
    const Extent& at = reading ? piece.from : piece.to;
    std::byte* memory = (reading ? piece.to : piece.from).memory();
    const auto& file = *static_cast<const File*>(at.object);
    for (std::uint64_t done = 0; done < at.length.value;) {
      const auto offset = static_cast<off_t>(at.offset + done);
      const ssize_t n =
          reading ? pread(file.buffered_fd(), memory + done, at.length.value - done, offset)
                  : pwrite(file.buffered_fd(), memory + done, at.length.value - done, offset);
      if (n < 0) return fail_errno(errno, "cannot copy " + file.quoted());
      if (n == 0) {
        return fail(ErrorCode::io, "{} is shorter than when it was opened", file.quoted());
      }
      done += static_cast<std::uint64_t>(n);
    }
    return {};
  }

  Capabilities facts_;
  Mutex mutex_;
  CondVar wake_;
  std::deque<Job> jobs_ GUARDED_BY(mutex_);
  bool ending_ GUARDED_BY(mutex_) = false;
  std::thread worker_;
};

}  // namespace

Result<std::unique_ptr<Backend>> open_storage(const Machine& machine,
                                              std::vector<EngineId> engines) {
  return open_storage(machine, std::move(engines), {});
}

Result<std::unique_ptr<Backend>> open_storage(const Machine& machine, std::vector<EngineId> engines,
                                              const StorageOptions& options) {
  for (const EngineId id : engines) {
    const Engine* engine = machine.find(id);
    if (engine == nullptr || engine->kind != EngineKind::ssd) {
      return fail(ErrorCode::unsupported, "engine {} is not an ssd engine", raw(id));
    }
  }
  return std::make_unique<Storage>(std::move(engines), options);
}

}  // namespace headrace
