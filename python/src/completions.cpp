// SPDX-License-Identifier: Apache-2.0
// The ends of many moves, told through one descriptor: for event loops.
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include "core/fork.h"
#include "core/own_files.h"
#include "handles.h"
#include "types.h"

namespace headrace::python {

using namespace nb::literals;

namespace {

// Without locks: the thread of an engine adds, a fork() finds none held. Belongs to its process: in
// a child the descriptor is closed, because parent and child would share its counter, and no end is
// reported. An end is allocated before its move, so reporting it needs no memory. Thread-safe.
class CompletionQueue {
 public:
  static std::shared_ptr<CompletionQueue> open() {
    const int descriptor = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (descriptor < 0) {
      raise(ErrorCode::exhausted,
            "no file descriptor left to await moves; raise the limit with ulimit -n");
    }
    own_files::add(descriptor);
    return std::make_shared<CompletionQueue>(descriptor);
  }
  explicit CompletionQueue(int descriptor) : descriptor_(descriptor) {}
  ~CompletionQueue() {
    if (!origin_.here()) return;  // an engine's thread of the parent may have been adding
    own_files::close(descriptor_);
    free_all(top_.exchange(nullptr));
  }
  CompletionQueue(const CompletionQueue&) = delete;
  CompletionQueue& operator=(const CompletionQueue&) = delete;

  int descriptor() const {
    unwrap(origin_.check("the completion queue"));
    return descriptor_;
  }

  // The end of a move, which the copies of its callback share.
  struct Ended {
    std::uint64_t key = 0;
    Ended* next = nullptr;
    std::shared_ptr<Ended> listed;  // this, while it is in the queue
  };

  // Requires: not added before.
  void add(const std::shared_ptr<Ended>& end) noexcept {
    if (!origin_.here()) return;
    end->listed = end;
    Ended* const ended = end.get();
    ended->next = top_.load();
    while (!top_.compare_exchange_weak(ended->next, ended)) {
    }
    // Refused only when 2^64 - 2 were added and none taken.
    (void)eventfd_write(descriptor_, 1);
  }

  // Returns the keys added since the last call. The descriptor is readable again after an add().
  std::vector<std::uint64_t> take() {
    if (!origin_.here()) return {};
    eventfd_t ignored = 0;
    (void)eventfd_read(descriptor_, &ignored);
    Ended* const first = top_.exchange(nullptr);
    std::size_t count = 0;
    for (const Ended* each = first; each != nullptr; each = each->next) ++count;
    std::vector<std::uint64_t> keys;
    try {
      keys.reserve(count);
    } catch (const std::bad_alloc&) {
      Ended* last = first;  // back into the queue: the next call returns them
      while (last->next != nullptr) last = last->next;
      last->next = top_.load();
      while (!top_.compare_exchange_weak(last->next, first)) {
      }
      (void)eventfd_write(descriptor_, 1);
      throw;
    }
    for (const Ended* each = first; each != nullptr; each = each->next) keys.push_back(each->key);
    free_all(first);
    return keys;
  }

 private:
  static void free_all(Ended* next) noexcept {
    while (next != nullptr) {
      Ended* const ended = std::exchange(next, next->next);
      const std::shared_ptr<Ended> last = std::move(ended->listed);
    }
  }

  const Origin origin_;
  const int descriptor_;
  std::atomic<Ended*> top_{nullptr};
};

// Transfers in flight hold the queue too.
struct CompletionQueueRef {
  std::shared_ptr<CompletionQueue> queue;

  // A callback that adds the key.
  auto adds(std::uint64_t key) const {
    return [queue = queue, end = std::make_shared<CompletionQueue::Ended>(key)](const auto&...) {
      queue->add(end);
    };
  }
};

}  // namespace

void bind_completions(nb::module_& m) {
  nb::class_<CompletionQueueRef>(m, "CompletionQueue",
                                 "Reports completed moves through one descriptor, for event loops. "
                                 "Awaiting a Transfer or a Block uses one queue for each loop.")
      .def(
          "__init__",
          [](CompletionQueueRef* self) { new (self) CompletionQueueRef{CompletionQueue::open()}; },
          "Opens the queue, which uses one file descriptor.")
      .def(
          "fileno", [](const CompletionQueueRef& self) { return self.queue->descriptor(); },
          "A descriptor that is readable when take() has a key.")
      .def(
          "add",
          [](const CompletionQueueRef& self, const TransferRef& transfer, std::uint64_t key) {
            const GilRelease release;
            transfer.transfer.on_done(self.adds(key));
          },
          "transfer"_a, "key"_a, "Reports `key` when the move is done.")
      .def(
          "add",
          [](const CompletionQueueRef& self, const BlockRef& block, std::uint64_t key) {
            const std::shared_ptr<Pin> pin = block.pin;
            if (!pin) raise(ErrorCode::invalid, "this block was released; access() it again");
            const GilRelease release;
            pin->block.on_ready(self.adds(key));
          },
          "block"_a, "key"_a, "Reports `key` when the copy is ready or has failed.")
      .def(
          "add",
          [](const CompletionQueueRef& self, const KvLayerRef& layer, std::uint64_t key) {
            const KvLayerRef mine = layer;
            const GilRelease release;
            mine.load.on_layer(mine.layer, self.adds(key));
          },
          "layer"_a, "key"_a, "Reports `key` when the layer is loaded or has failed.")
      .def(
          "add",
          [](const CompletionQueueRef& self, const KvLoadRef& load, std::uint64_t key) {
            const KvLoadRef mine = load;
            const GilRelease release;
            auto left = std::make_shared<std::atomic<unsigned>>(mine.load.layers() + 1);
            const auto one_less = [add = self.adds(key), left] {
              if (left->fetch_sub(1) == 1) add();
            };
            for (unsigned i = 0; i < mine.load.layers(); ++i) mine.load.on_layer(i, one_less);
            one_less();
          },
          "load"_a, "key"_a, "Reports `key` when all layers are loaded or have failed.")
      .def(
          "add",
          [](const CompletionQueueRef& self, const KvStoredRef& stored, std::uint64_t key) {
            const KvStoredRef mine = stored;
            const GilRelease release;
            mine.stored.on_done(self.adds(key));
          },
          "stored"_a, "key"_a, "Reports `key` when all blocks are stored or refused.")
      .def(
          "tell", [](const CompletionQueueRef& self, std::uint64_t key) { self.adds(key)(); },
          "key"_a, "Reports `key` now.")
      .def(
          "take", [](const CompletionQueueRef& self) { return self.queue->take(); },
          "The keys of moves that have ended since the last call.");
}

}  // namespace headrace::python
