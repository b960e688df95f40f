// SPDX-License-Identifier: Apache-2.0
// The work of a lane's thread.

#include <fmt/core.h>

#include <algorithm>

#include "backend/cuda/engines/lane.h"
#include "backend/cuda/engines/stored.h"
#include "core/check.h"
#include "core/fail.h"
#include "headrace/copy.h"

namespace headrace::cuda {
namespace {

// The thread's sleep with nothing to do; with work in flight, to check that the GPU is still there;
// and with work that must be tried again.
constexpr Nanoseconds kIdle = std::chrono::seconds{1};
constexpr Nanoseconds kLook = std::chrono::milliseconds{100};
constexpr Nanoseconds kSoon = std::chrono::milliseconds{1};
// The wait for a silent GPU ends after this many times the limit.
constexpr int kLimitsToTheEnd = 5;
// An hour: other programs' kernels may occupy the multiprocessors for minutes.
constexpr int kLimitsOfMultiprocessors = 120;
// The thread itself makes smaller copies, since a hand-over takes as long.
constexpr Bytes kShared = 256_KiB;
// A read past the page cache goes straight to memory if both have the same offset in a page.
constexpr std::uint64_t kPage = 4096;

std::uint64_t offset_in_page(const AcceptedPiece& piece) {
  const Extent& file = piece.direction == Direction::to_gpu ? piece.piece.from : piece.piece.to;
  return piece.way == Way::filed ? (file.offset + piece.cut) % kPage : 0;
}

// The place in the slot where its next part would begin.
std::uint64_t next_in(const Slot& slot, const AcceptedPiece& piece) {
  if (piece.way != Way::filed) return slot.used;
  return slot.used + (offset_in_page(piece) + kPage - slot.used % kPage) % kPage;
}

// Whether the whole piece fits in the rest of the slot.
bool fits(const Slot& slot, const AcceptedPiece& piece) {
  return piece.cut == 0 &&
         next_in(slot, piece) + piece.piece.from.length.value <= slot.memory->size().value;
}

// Returns the error of a fail() or fail_cuda() call; only its code if memory for the words is
// lacking.
template <class Make>
Error error_of(Make make) noexcept try {
  return make().error();
} catch (const std::bad_alloc&) {
  return out_of_memory().error();
}

// Like Backend::submit(), which throws for lack of memory and then has accepted nothing.
Result<std::size_t> submit_to(Backend& storage, const Piece& piece, Completion& completion) try {
  return storage.submit({&piece, 1}, completion);
} catch (const std::bad_alloc&) {
  return out_of_memory();
}

// Whether callbacks are still to come for groups without pieces, or such groups are not yet free.
bool owes_groups(Mailbox& box) {
  const MutexLock lock(box.mutex);
  return box.found + box.owed > 0 || box.done != nullptr;
}

}  // namespace

struct Lane::News {
  Group* done = nullptr;
  Task* stored = nullptr;
  Task* refused = nullptr;
  Task* emptied = nullptr;
  Task* absent = nullptr;
  bool quiet = false;
  bool uncalled = false;
  bool ending = false;
};

bool Lane::busy() {
  const MutexLock lock(mutex_);
  return free_pieces_.size() < pieces_.size();
}

Lane::News Lane::wait_for_news() {
  const bool working = busy();
  Mailbox& box = *mailbox_;
  const MutexLock lock(box.mutex);
  const auto nothing = [&]() REQUIRES(box.mutex) {
    return box.done == nullptr && box.stored == nullptr && box.refused == nullptr &&
           box.emptied == nullptr && box.absent == nullptr && box.staged.empty();
  };
  if (nothing() && (working || !box.ending || box.found + box.owed > 0)) {
    const bool soon = !to_store_.empty() || box.uncalled || (box.ending && !working);
    box.wake.wait_for(box.mutex, soon ? kSoon : working ? kLook : kIdle);
  }
  const bool quiet = nothing();
  const News news{.done = std::exchange(box.done, nullptr),
                  .stored = std::exchange(box.stored, nullptr),
                  .refused = std::exchange(box.refused, nullptr),
                  .emptied = std::exchange(box.emptied, nullptr),
                  .absent = std::exchange(box.absent, nullptr),
                  .quiet = quiet,
                  .uncalled = box.uncalled,
                  .ending = box.ending};
  waiting_.insert(waiting_.end(), box.staged.begin(), box.staged.end());
  box.staged.clear();
  return news;
}

void Lane::run() {
  const CurrentContext current(*context_);
  // Otherwise streams would be asked without a context, and no failure would be noticed.
  if (current.result() != CUDA_SUCCESS) {
    Error why = error_of(
        [&] { return fail_cuda(driver_, current.result(), fmt::format("cannot use {}", name_)); });
    flights_.refuse(std::move(why));
  }
  for (auto last_turns = kLook / kSoon;;) {
    const News news = wait_for_news();
    settle(news);
    take_waiting();
    offer_to_storage();
    for (std::size_t i = 0; i < kDirections; ++i) {
      flights_.launch(Direction(i), ready_[i]);
      ready_[i].clear();
    }
    if (news.quiet || news.uncalled || time_.now() - looked_ >= kLook) look_at_streams();
    // Groups that are not free at the end are never destroyed.
    if (news.ending && !busy() && (!owes_groups(*mailbox_) || --last_turns == 0)) return;
  }
}

thread_local const Lane* Lane::settling_ = nullptr;

void Lane::settle(const News& news) {
  settling_ = this;
  for (Group* group = news.done; group != nullptr;) {
    Group* const next = std::exchange(group->next, nullptr);
    last_answer_[static_cast<std::size_t>(group->direction)] = time_.now();
    // Before the reports of its pieces, which may submit again.
    Task* const first = flights_.take(*group);
    each_task(first, [this](Task& task) { stream_ended(task); });
    group = next;
  }
  each_task(news.refused, [this](Task& task) { end_task(task); });
  each_task(news.emptied, [this](Task& task) { end_task(task); });
  each_task(news.absent, [this](Task& task) { to_store_.push_back(&task); });
  each_task(news.stored, [this](Task& task) {
    if (!task.outcome || task.direction != Direction::to_gpu) return end_task(task);
    ready_[static_cast<std::size_t>(task.direction)].push_back(&task);
  });
  settling_ = nullptr;
}

void Lane::stream_ended(Task& task) {
  AcceptedPiece& piece = *task.piece;
  if (!task.outcome) {
    // The GPU was lost: none of the parts has arrived for certain.
    if (PieceList* const list = piece.piece.list) std::ranges::fill(list->failed, 0);
    return end_task(task);
  }
  if (task.result != CUDA_SUCCESS) {
    task.outcome = Unexpected(error_of(
        [&] { return fail_cuda(driver_, task.result, fmt::format("{} cannot copy", name_)); }));
  } else if (task.slot != nullptr && task.direction == Direction::from_gpu) {
    if (piece.way == Way::filed) return to_store_.push_back(&task);
    if (task.length >= kShared) return give_to_crew(task);
    copy_bytes(piece.piece.to.memory() + task.offset,
               task.slot->memory->memory() + task.slot_offset, task.length.value, piece.piece.hint);
  }
  end_task(task);
}

void Lane::take_waiting() {
  const auto refused = flights_.refusal();
  if (refused) return fail_waiting(*refused);
  if (!waiting_.empty() && ring_ == nullptr) make_slots();
  std::array<Slot*, kDirections> begun{};  // other pieces may share it
  while (!waiting_.empty()) {
    AcceptedPiece& piece = *waiting_.front();
    if (piece.way == Way::pageable || (piece.way == Way::staged && ring_ == nullptr)) {
      piece.cut = piece.own.copy.bytes;
      piece.open = 1;
      ready_[static_cast<std::size_t>(piece.direction)].push_back(&piece.own);
      waiting_.erase(waiting_.begin());
      continue;
    }
    if (ring_ == nullptr) {
      piece.outcome = Unexpected(error_of([&] {
        return fail(ErrorCode::exhausted, "no pinned memory to copy through: {}", no_ring_);
      }));
      waiting_.erase(waiting_.begin());
      report(piece);
      continue;
    }
    Slot*& slot = begun[static_cast<std::size_t>(piece.direction)];
    Task* task = &piece.own;
    if (slot == nullptr || !fits(*slot, piece)) {
      if (free_slots_.empty()) return;
      slot = free_slots_.back();
      free_slots_.pop_back();
      slot->used = 0;
      if (!fits(*slot, piece)) task = &slot->part;
    }
    begin(*task, piece, *slot);
    if (!waiting_.empty() && waiting_.front() == &piece &&
        piece.cut == piece.piece.from.length.value) {
      waiting_.erase(waiting_.begin());
    }
  }
}

void Lane::begin(Task& task, AcceptedPiece& piece, Slot& slot) {
  task.piece = &piece;
  task.slot = &slot;
  task.direction = piece.direction;
  task.outcome = Status();
  task.offset = piece.cut;
  task.slot_offset = next_in(slot, piece);
  task.length = Bytes{std::min(piece.piece.from.length.value - piece.cut,
                               slot.memory->size().value - task.slot_offset)};
  slot.used = task.slot_offset + task.length.value;
  ++slot.open;
  piece.cut += task.length.value;
  ++piece.open;
  std::byte* const in_slot = slot.memory->memory() + task.slot_offset;
  const auto pinned = reinterpret_cast<std::uintptr_t>(in_slot);
  const bool to_gpu = task.direction == Direction::to_gpu;
  task.copy = {.to = to_gpu ? piece.own.copy.to + task.offset : pinned,
               .from = to_gpu ? pinned : piece.own.copy.from + task.offset,
               .bytes = task.length.value};
  const bool shared = task.length >= kShared;
  if (to_gpu && piece.way == Way::filed) {
    const bool in_pages = cached_ && piece.piece.from.object->user_source() == nullptr;
    return shared && in_pages ? give_to_crew(task) : to_store_.push_back(&task);
  }
  if (to_gpu && shared) return give_to_crew(task);
  if (to_gpu) copy_bytes(in_slot, piece.piece.from.memory() + task.offset, task.length.value);
  ready_[static_cast<std::size_t>(task.direction)].push_back(&task);
}

void Lane::give_to_crew(Task& task) {
  try {
    if (crew_ == nullptr) {
      const Node* const near = machine_.find(host_);
      const CpuSet cpus = near == nullptr ? CpuSet() : near->cpus;
      crew_ = Crew::start(cpus, [this](Task& its) { work(its); });
    }
  } catch (const std::bad_alloc&) {
    return work(task);
  }
  crew_->give(task);
}

// Copies the task's bytes to its slot and gives it to its stream at once; or copies them from the
// slot.
void Lane::work(Task& task) noexcept {
  const Piece& piece = task.piece->piece;
  std::byte* const in_slot = task.slot->memory->memory() + task.slot_offset;
  const std::size_t bytes = task.length.value;
  Mailbox& box = *mailbox_;
  if (task.direction == Direction::from_gpu) {
    copy_bytes(piece.to.memory() + task.offset, in_slot, bytes, piece.hint);
    const MutexLock lock(box.mutex);
    task.next = std::exchange(box.emptied, &task);
    return box.wake.notify_one();
  }
  if (task.piece->way == Way::filed) {
    const auto& file = static_cast<const File&>(*piece.from.object);
    const Cached cached = read_cached(file, piece.from.offset + task.offset, {in_slot, bytes});
    if (cached == Cached::never) cached_ = false;
    if (cached != Cached::read) {
      const MutexLock lock(box.mutex);
      task.next = std::exchange(box.absent, &task);
      return box.wake.notify_one();
    }
  } else {
    copy_bytes(in_slot, piece.from.memory() + task.offset, bytes);
  }
  const CurrentContext current(*context_);
  Task* const tasks[] = {&task};
  flights_.launch(task.direction, tasks);
}

void Lane::offer_to_storage() {
  while (!to_store_.empty()) {
    Task& task = *to_store_.front();
    const Piece& whole = task.piece->piece;
    const bool to_gpu = task.direction == Direction::to_gpu;
    const Extent slot{task.slot->memory.get(), task.slot_offset, task.length};
    const Extent file = (to_gpu ? whole.from : whole.to).part(task.offset, task.length);
    const Piece piece{.from = to_gpu ? file : slot,
                      .to = to_gpu ? slot : file,
                      .engine = *ssd_of(file),
                      .hint = CopyHint::stream,
                      .tag = reinterpret_cast<std::uintptr_t>(&task)};
    auto accepted = submit_to(*options_.storage, piece, *stored_);
    if (accepted && *accepted == 0) return;
    to_store_.erase(to_store_.begin());
    if (accepted) continue;
    task.outcome = Unexpected(std::move(accepted).error());
    end_task(task);
  }
}

void Lane::end_task(Task& task) {
  AcceptedPiece& piece = *task.piece;
  if (!task.outcome && piece.outcome) piece.outcome = std::move(task.outcome);
  Slot* const slot = std::exchange(task.slot, nullptr);
  if (slot != nullptr && --slot->open == 0) free_slots_.push_back(slot);
  --piece.open;
  // A failed piece begins no further part.
  if (!piece.outcome && piece.cut < piece.piece.from.length.value) {
    std::erase(waiting_, &piece);
    piece.cut = piece.piece.from.length.value;
  }
  if (piece.open == 0 && piece.cut == piece.piece.from.length.value) report(piece);
}

void Lane::report(AcceptedPiece& piece) {
  Completion& completion = *piece.completion;
  const std::uint64_t tag = piece.piece.tag;
  Status outcome = std::move(piece.outcome);
  {
    // Before the report, whose receiver may submit again into the free place.
    const MutexLock lock(mutex_);
    free_pieces_.push_back(&piece);
  }
  completion.complete(tag, std::move(outcome));
}

void Lane::look_at_streams() {
  const Nanoseconds now = time_.now();
  looked_ = now;
  std::array<bool, kDirections> flying{};
  std::array<bool, kDirections> by_multiprocessors{};
  {
    const MutexLock lock(mailbox_->mutex);
    for (Group* group : mailbox_->flying) {
      const auto direction = static_cast<std::size_t>(group->direction);
      flying[direction] = true;
      by_multiprocessors[direction] = by_multiprocessors[direction] || group->by_multiprocessors;
      group->asked = true;
    }
  }
  for (std::size_t i = 0; i < kDirections; ++i) {
    const CUresult result = flying[i] ? flights_.query(i) : CUDA_SUCCESS;
    if (ends_context(result)) {
      Error lost = error_of([&] {
        auto told = fail_cuda(driver_, result, fmt::format("{} is lost", name_));
        told.error().message += "; end the process, and look at dmesg for Xid";
        return told;
      });
      lost.code = ErrorCode::io;
      return lose(lost);
    }
    // Any other error says nothing about the work in flight, which goes on.
    if (result != CUDA_SUCCESS) continue;
    last_answer_[i] = now;
    if (flying[i]) flights_.end(Direction(i), {});
  }
  Nanoseconds engines_answered = now;
  for (std::size_t i = 0; i < kDirections; ++i) {
    if (!by_multiprocessors[i]) engines_answered = std::min(engines_answered, last_answer_[i]);
  }
  judge(now - std::ranges::min(last_answer_), now - engines_answered);
}

// `silent`: the longest time of any work in flight without an answer. `of_engines`: the same for
// work of copy engines only. Copy engines wait for nothing, but multiprocessors may be occupied for
// minutes by another program's kernel.
void Lane::judge(Nanoseconds silent, Nanoseconds of_engines) {
  if (hung_ && silent < options_.limit) {
    hung_ = false;
    flights_.refuse(std::nullopt);
  }
  if (silent < options_.limit) return;
  if (!hung_) {
    hung_ = true;
    Error why = error_of([&] {
      return fail(ErrorCode::timed_out,
                  "{} has answered nothing for {:.0f} s; look at dmesg for Xid", name_,
                  seconds(options_.limit));
    });
    why.code = ErrorCode::timed_out;
    flights_.refuse(std::move(why));
  }
  // The engines may still write to this memory. It belongs to the caller, who would free or reuse
  // it, and nothing here can prevent that.
  CHECK(of_engines < kLimitsToTheEnd * options_.limit &&
        silent < kLimitsOfMultiprocessors * options_.limit &&
        "a GPU hangs with memory of this process");
}

// Ends all work of the GPU; a lost context no longer writes.
void Lane::lose(const Error& why) {
  hung_ = false;  // otherwise its end would count as an answer
  flights_.refuse(told(why));
  flights_.end(std::nullopt, Unexpected(told(why)));
  fail_waiting(why);
}

// Ends the pieces that have not been given to the GPU.
void Lane::fail_waiting(const Error& why) {
  for (AcceptedPiece* piece : waiting_) {
    piece->cut = piece->piece.from.length.value;
    if (piece->outcome) piece->outcome = Unexpected(told(why));
    if (piece->open == 0) report(*piece);
  }
  waiting_.clear();
}

// Makes all slots or, without memory for them, none.
void Lane::make_slots() {
  // A shortage may be temporary.
  const Nanoseconds now = time_.now();
  if (ring_tried_ && now - *ring_tried_ < kIdle) return;
  ring_tried_ = now;
  try {
    Placement near = Placement::on(host_);
    near.strict = false;
    near.pin = true;
    auto ring = allocate(machine_, options_.slot * options_.slots, near);
    if (!ring) {
      no_ring_ = std::move(ring).error().message;
      return;
    }
    std::vector<std::unique_ptr<Slot>> slots;
    for (std::size_t i = 0; i < options_.slots; ++i) {
      slots.push_back(std::make_unique<Slot>());
      slots.back()->memory = std::make_unique<MemoryRange>(
          (*ring)->bytes().subspan(i * options_.slot.value, options_.slot.value), host_);
    }
    ring_ = *std::move(ring);
    slots_ = std::move(slots);
    for (const auto& slot : slots_) free_slots_.push_back(slot.get());
  } catch (const std::bad_alloc&) {
    no_ring_ = "out of memory";  // short enough to need no allocation
  }
}

}  // namespace headrace::cuda
