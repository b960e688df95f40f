// SPDX-License-Identifier: Apache-2.0
#include "backend/dsa/queue/open_queue.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "backend/dsa/queue/pages.h"
#include "core/check.h"
#include "core/fail.h"

namespace headrace::dsa {
namespace {

constexpr std::uint64_t kMostCredits = 1024;
// Records checked behind the first missing one: a device with several engines completes out of
// order, but only within a short distance.
constexpr std::size_t kLookAhead = 16;

std::string_view to_string(Code code) {
  switch (code) {
    case Code::none: return "not completed";
    case Code::success: return "success";
    case Code::page_fault: return "page fault";
    case Code::page_request_refused: return "page request refused";
    case Code::batch_failed: return "an operation of the batch failed";
    case Code::batch_list_fault: return "page fault in the descriptor list";
    case Code::bad_opcode: return "unsupported operation";
    case Code::bad_flags: return "invalid flags";
    case Code::reserved_field: return "a reserved field is not 0";
    case Code::bad_size: return "invalid transfer size";
    case Code::bad_count: return "invalid descriptor count";
    case Code::bad_value: return "a value is out of range";
    case Code::overlap: return "buffers overlap";
    case Code::list_alignment: return "the descriptor list is not aligned to 64 bytes";
    case Code::bad_interrupt: return "invalid interrupt handle";
    case Code::record_fault: return "page fault at the completion record";
    case Code::record_alignment: return "the completion record is not aligned to 32 bytes";
    case Code::bad_alignment: return "an address or size is not aligned";
    case Code::privilege: return "privilege error";
    case Code::traffic_class: return "invalid traffic class";
    case Code::hardware: return "hardware error";
  }
  return "unknown";
}

}  // namespace

Result<std::unique_ptr<OpenQueue>> OpenQueue::open(const WorkQueue& queue, QueueOptions options) {
  if (!queue.unusable.empty()) {
    return fail(ErrorCode::unsupported, "{}: {}; see headrace doctor", queue.name, queue.unusable);
  }
  if (queue.credits() == 0) {
    return fail(ErrorCode::unsupported, "{} holds no descriptors; see headrace doctor", queue.name);
  }
  HEADRACE_TRY(auto portal, options.open(queue));
  return std::unique_ptr<OpenQueue>(new OpenQueue(queue, std::move(options), std::move(portal)));
}

OpenQueue::OpenQueue(const WorkQueue& queue, QueueOptions options, std::unique_ptr<Portal> portal)
    : queue_(queue),
      options_(std::move(options)),
      name_(portal->name()),
      mapped_(portal->mapped()),
      room_(std::min<std::uint64_t>(queue.credits(), kMostCredits)),
      cells_(new Cell[room_]),
      portal_(std::move(portal)) {
  const auto credits = static_cast<std::uint32_t>(room_);
  slots_.resize(credits);
  for (std::uint32_t slot = credits; slot > 0; --slot) free_.push_back(slot - 1);
  ready_.reserve(credits);
  submitted_.reserve(credits);
  buffer_.resize(std::max<std::size_t>(options_.at_once, 1));
}

OpenQueue::~OpenQueue() {
  const MutexLock lock(mutex_);
  portal_.reset();  // before the records are freed
}

Result<std::size_t> OpenQueue::submit(std::span<const Submission> submissions) {
  const MutexLock lock(mutex_);
  HEADRACE_TRY_STATUS(revive());
  const std::size_t taken = std::min(submissions.size(), free_.size());
  if (taken == 0) return 0;
  const std::size_t first = occupy(taken);
  for (std::size_t i = 0; i < taken; ++i) {
    DescriptorSlot& slot = slots_[ready_[first + i]];
    slot.copy = PartialCopy(submissions[i].copy);
    slot.tag = submissions[i].tag;
    slot.owner = submissions[i].owner;
    slot.tries = 0;
    slot.alone = false;
  }
  submit_ready();
  return taken;
}

bool OpenQueue::take_over(const Ended& given_back) {
  const MutexLock lock(mutex_);
  if (!revive() || free_.empty()) return false;
  DescriptorSlot& slot = slots_[ready_[occupy(1)]];
  slot.copy = given_back.failure->rest;
  slot.tag = given_back.tag;
  slot.owner = given_back.owner;
  slot.tries = given_back.failure->tries + 1;
  slot.alone = true;  // in a batch, another member may have caused the refusal
  submit_ready();
  return true;
}

// Puts `slots` free slots at the end of `ready_`; returns the index of the first.
std::size_t OpenQueue::occupy(std::size_t slots) {
  const std::size_t first = ready_.size();
  const auto rest = free_.end() - static_cast<std::ptrdiff_t>(slots);
  ready_.insert(ready_.end(), rest, free_.end());
  free_.erase(rest, free_.end());
  count_in_flight();
  return first;
}

void OpenQueue::release(std::uint32_t slot) {
  slots_[slot].since.reset();
  free_.push_back(slot);
  count_in_flight();
}

void OpenQueue::count_in_flight() {
  // A hint: pairs with nothing.
  in_flight_.store(room_ - free_.size(), std::memory_order_relaxed);
}

void OpenQueue::make_ready(std::uint32_t slot) {
  slots_[slot].since.reset();
  ready_.push_back(slot);
}

// Opens a portal if there is none. After a portal that never answered it first waits for `limit`.
Status OpenQueue::revive() {
  if (portal_ != nullptr) return {};
  const Nanoseconds now = options_.clock->now();
  if (closed_ && now - *closed_ < options_.limit) {
    return fail(ErrorCode::absent, "{} does not answer; another engine copies in its place",
                queue_.name);
  }
  auto portal = options_.open(queue_);
  if (!portal) {
    closed_ = now;
    return Unexpected(std::move(portal).error());
  }
  portal_ = *std::move(portal);
  answered_ = false;
  return {};
}

void OpenQueue::submit_ready() {
  if (ready_.empty()) return;
  if (auto revived = revive(); !revived) {
    refusal_ = std::move(revived).error();
    return;
  }
  const std::size_t taken = submit_slots(ready_);
  ready_.erase(ready_.begin(), ready_.begin() + static_cast<std::ptrdiff_t>(taken));
}

// Submits the first n, in batches if possible.
std::size_t OpenQueue::submit_slots(std::span<const std::uint32_t> slots) {
  const bool in_batches = options_.batches && portal_ != nullptr && portal_->takes_batches() &&
                          queue_.operations.has(Opcode::batch) && queue_.max_batch >= 2;
  std::size_t most = buffer_.size();
  if (in_batches) most = std::min<std::size_t>(most, queue_.max_batch);
  std::size_t done = 0;
  while (done < slots.size() && portal_ != nullptr) {
    const bool alone = slots_[slots[done]].alone;
    std::size_t count = 1;
    while (count < most && done + count < slots.size() &&
           slots_[slots[done + count]].alone == alone) {
      ++count;
    }
    const auto some = slots.subspan(done, count);
    const bool batch = in_batches && !alone && count >= 2;
    const std::size_t taken = batch ? submit_batch(some) : submit_singly(some);
    submitted_.insert(submitted_.end(), some.begin(),
                      some.begin() + static_cast<std::ptrdiff_t>(taken));
    for (const std::uint32_t slot : some.first(taken)) slots_[slot].since.reset();
    done += taken;
    if (taken < count) break;
  }
  return done;
}

void OpenQueue::prepare(std::uint32_t slot, Descriptor& descriptor) {
  Cell& cell = cells_[slot];
  cell.record = {};
  ++slots_[slot].turn;
  descriptor = slots_[slot].copy.next(queue_.max_transfer);
  descriptor.record = reinterpret_cast<std::uintptr_t>(&cell.record);
}

std::size_t OpenQueue::submit_singly(std::span<const std::uint32_t> slots) {
  for (std::size_t i = 0; i < slots.size(); ++i) prepare(slots[i], buffer_[i]);
  return submit(std::span<const Descriptor>(buffer_).first(slots.size()));
}

std::size_t OpenQueue::submit_batch(std::span<const std::uint32_t> slots) {
  auto free = std::ranges::find_if(batches_, [](const auto& b) { return b->members.empty(); });
  if (free == batches_.end()) {
    batches_.push_back(std::make_unique<Batch>());
    free = batches_.end() - 1;
  }
  Batch& batch = **free;
  batch.list.resize(slots.size());
  for (std::size_t i = 0; i < slots.size(); ++i) prepare(slots[i], batch.list[i]);
  batch.cell.record = {};
  Descriptor whole;
  whole.set(Opcode::batch, flag::record_valid | flag::request_record);
  whole.record = reinterpret_cast<std::uintptr_t>(&batch.cell.record);
  whole.source = reinterpret_cast<std::uintptr_t>(batch.list.data());
  whole.size = static_cast<std::uint32_t>(slots.size());
  if (submit({&whole, 1}) == 0) return 0;
  for (const std::uint32_t slot : slots) batch.members.push_back({slot, slots_[slot].turn});
  ++stats_.batches;
  return slots.size();
}

// An error of the portal applies at the next poll to the descriptors that it did not take. Those in
// flight may still end.
std::size_t OpenQueue::submit(std::span<const Descriptor> descriptors) {
  auto taken = portal_->submit(descriptors);
  const std::size_t count = taken.value_or(0);
  refusal_.reset();
  if (!taken) refusal_ = std::move(taken).error();
  return count;
}

// Pairs with the device's last write of a record: after it, all that the operation wrote is
// visible.
std::uint8_t OpenQueue::status_of(const Cell& cell) const {
  return __atomic_load_n(&cell.record.status, __ATOMIC_ACQUIRE);
}

void OpenQueue::poll(std::vector<Ended>& ended) {
  std::vector<std::uint32_t> touching;
  {
    const MutexLock lock(mutex_);
    collect(ended);
    if (touching_.empty()) {
      submit_ready();
      give_back_refused(ended);
      return;
    }
    touching.swap(touching_);
  }
  // No other thread uses these slots: they are neither ready nor submitted.
  std::vector<Status> touched;
  for (const std::uint32_t slot : touching) {
    const Copy* rest = nullptr;
    {
      const MutexLock lock(mutex_);
      rest = &slots_[slot].copy.rest();
    }
    touched.push_back(bring_in(*rest));
  }
  const MutexLock lock(mutex_);
  for (std::size_t i = 0; i < touching.size(); ++i) resume(touching[i], touched[i], ended);
  submit_ready();
  give_back_refused(ended);
}

// Gives copies to other queues if the portal takes nothing more. If it refused one descriptor only
// (invalid), it may take those behind it: the first one is tried alone, then given back.
void OpenQueue::give_back_refused(std::vector<Ended>& ended) {
  if (!refusal_) return;
  const Error why = *std::exchange(refusal_, std::nullopt);
  if (why.code == ErrorCode::invalid && !ready_.empty()) {
    const std::uint32_t first = ready_.front();
    if (!std::exchange(slots_[first].alone, true)) return;
    ready_.erase(ready_.begin());
    const std::string what = fmt::format("{}: {}", queue_.name, why.message);
    return fail_slot(first, {ErrorCode::unsupported, what}, ended);
  }
  for (const std::uint32_t slot : std::exchange(ready_, {})) {
    fail_slot(slot, why, ended);
  }
  if (portal_ == nullptr || !submitted_.empty()) return;
  if (!answered_) closed_ = options_.clock->now();
  forget_portal();
}

void OpenQueue::forget_portal() {
  portal_.reset();
  refusal_.reset();
  for (const auto& batch : batches_) batch->members.clear();
}

void OpenQueue::resume(std::uint32_t slot, const Status& touched, std::vector<Ended>& ended) {
  if (!touched) return fail_slot(slot, touched.error(), ended);
  if (slots_[slot].copy.hopeless()) {
    const std::string what = fmt::format("{}: page faults without end", queue_.name);
    return fail_slot(slot, {ErrorCode::io, what}, ended);
  }
  make_ready(slot);
}

void OpenQueue::collect(std::vector<Ended>& ended) {
  if (!batches_.empty()) collect_batches();
  std::size_t waiting = 0;
  std::size_t kept = 0;
  for (std::size_t i = 0; i < submitted_.size(); ++i) {
    const std::uint32_t slot = submitted_[i];
    if (waiting < kLookAhead && take_answer(slot, ended)) continue;
    ++waiting;
    submitted_[kept++] = slot;
  }
  submitted_.resize(kept);
  if (kept > 0 || !ready_.empty()) expire(ended);
}

// A batch is over when its own record is written. Its members then have their records, with two
// exceptions: the list could not be read to its end, or the batch was refused as a whole. Those
// members continue alone.
void OpenQueue::collect_batches() {
  for (const auto& batch : batches_) {
    if (batch->members.empty() || status_of(batch->cell) == 0) continue;
    const Record& record = batch->cell.record;
    // The operation was executed, but its record is lost: it waits for the limit.
    std::size_t executed = 0;
    switch (record.code()) {
      case Code::success:
      case Code::batch_failed: executed = batch->members.size(); break;
      case Code::batch_list_fault: executed = record.completed; break;
      default: break;
    }
    for (std::size_t i = executed; i < batch->members.size(); ++i) {
      const auto [slot, turn] = batch->members[i];
      if (slots_[slot].turn != turn || status_of(cells_[slot]) != 0) continue;
      slots_[slot].alone = true;
      make_ready(slot);
      std::erase(submitted_, slot);
    }
    batch->members.clear();
  }
}

bool OpenQueue::take_answer(std::uint32_t slot, std::vector<Ended>& ended) {
  if (status_of(cells_[slot]) == 0) return false;
  answered_ = true;
  const Record& record = cells_[slot].record;
  DescriptorSlot& of = slots_[slot];
  switch (of.copy.absorb(record)) {
    case Next::done:
      ended.emplace_back(of.tag, of.owner);
      release(slot);
      return true;
    case Next::more: make_ready(slot); return true;
    case Next::touch:
      ++stats_.faults;
      touching_.push_back(slot);
      return true;
    case Next::failed: break;
  }
  refuse(slot, record, ended);
  return true;
}

[[gnu::cold, gnu::noinline]] void OpenQueue::refuse(std::uint32_t slot, const Record& record,
                                                    std::vector<Ended>& ended) {
  const std::string what = fmt::format("{} ended a copy with status {:#04x} ({})", queue_.name,
                                       record.status, to_string(record.code()));
  fail_slot(slot, {ErrorCode::io, what}, ended);
}

[[gnu::cold, gnu::noinline]] void OpenQueue::fail_slot(std::uint32_t slot, const Error& why,
                                                       std::vector<Ended>& ended) {
  const DescriptorSlot& of = slots_[slot];
  ended.push_back({.tag = of.tag,
                   .owner = of.owner,
                   .failure = std::make_unique<Failure>(why, of.copy, of.tries)});
  release(slot);
}

// Stamps the slots that are found waiting for the first time; they are the last ones.
void OpenQueue::stamp(std::span<const std::uint32_t> slots, Nanoseconds now) {
  for (std::size_t i = slots.size(); i > 0 && !slots_[slots[i - 1]].since; --i) {
    slots_[slots[i - 1]].since = now;
  }
}

// Whether the first slot, which has waited longest, has waited too long.
bool OpenQueue::late(std::span<const std::uint32_t> slots, Nanoseconds now) const {
  return !slots.empty() && now - slots_[slots.front()].since.value_or(now) > options_.limit;
}

void OpenQueue::expire(std::vector<Ended>& ended) {
  const Nanoseconds now = options_.clock->now();
  stamp(submitted_, now);
  stamp(ready_, now);
  if (!late(submitted_, now) && !late(ready_, now)) return;
  close_portal(ended, {ErrorCode::timed_out, queue_.name + " did not answer in time"});
  closed_ = answered_ ? std::nullopt : std::optional(now);
}

// After it the device writes nothing for the work in flight.
void OpenQueue::close_portal(std::vector<Ended>& ended, const Error& why) {
  forget_portal();
  for (const std::uint32_t slot : std::exchange(submitted_, {})) {
    // It may have ended by now.
    if (take_answer(slot, ended)) continue;
    fail_slot(slot, why, ended);
  }
  for (const std::uint32_t slot : std::exchange(ready_, {})) fail_slot(slot, why, ended);
}

void OpenQueue::give_up(std::vector<Ended>& ended) {
  const MutexLock lock(mutex_);
  const Error why{ErrorCode::timed_out, queue_.name + " was closed before it answered"};
  close_portal(ended, why);
  for (const std::uint32_t slot : std::exchange(touching_, {})) fail_slot(slot, why, ended);
}

QueueStats OpenQueue::stats() const {
  const MutexLock lock(mutex_);
  return stats_;
}

}  // namespace headrace::dsa
