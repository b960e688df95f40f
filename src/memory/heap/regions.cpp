// SPDX-License-Identifier: Apache-2.0
#include "memory/heap/regions.h"

#include <sys/mman.h>

#include <algorithm>
#include <utility>

#include "core/check.h"
#include "core/fail.h"
#include "memory/heap/gate.h"
#include "memory/layout.h"

namespace headrace {
namespace {

// Larger requests are errors, and rounding them up could overflow.
constexpr std::size_t kMostBytes = std::size_t{1} << 56;

std::size_t rounded_up(std::size_t bytes, std::size_t to) { return (bytes + to - 1) / to * to; }

}  // namespace

bool Budget::take(Bytes bytes) {
  std::uint64_t used = used_.load();
  do {
    if (bytes.value > limit_.value - std::min(used, limit_.value)) return false;
  } while (!used_.compare_exchange_weak(used, used + bytes.value));
  return true;
}

Heap::Regions::Regions(const Machine& machine, Placement placement, const HeapOptions& options)
    : in_file_(storage_of(machine, placement) != nullptr),
      machine_(machine),
      placement_(std::move(placement)),
      budget_(options.budget),
      observer_(options.observer),
      unit_(pages_of(placement_.pages).map_by.value),
      region_(std::clamp(options.region.value_or(2_MiB * placement_.nodes.size()).value,
                         std::size_t{1}, kMostBytes)) {}

Heap::Regions::~Regions() {
  if (!here()) abandon(std::move(taken_));
}

std::unique_ptr<Buffer> Heap::Regions::take(std::size_t bytes, std::size_t align) {
  const Bytes wanted{bytes};
  Result<std::unique_ptr<Buffer>> buffer = nullptr;
  if (budget_ != nullptr && !budget_->take(wanted)) {
    buffer = fail(ErrorCode::exhausted,
                  "{} of a budget of {} are used and {} were wanted; free something, or give the "
                  "heap a larger budget",
                  to_string(budget_->used()), to_string(budget_->limit()), to_string(wanted));
  } else if (buffer = headrace::allocate(machine_, wanted, placement_, Bytes{align});
             !buffer && budget_ != nullptr) {
    budget_->give(wanted);
  }
  // A child would share the file and change the allocator's data under its parent.
  if (buffer && in_file_) ::madvise((*buffer)->memory(), bytes, MADV_DONTFORK);
  const HeapGate gate;
  const MutexLock lock(mutex_);
  if (!buffer) {
    error_ = std::move(buffer).error();
    return nullptr;
  }
  reserved_ += wanted;
  return *std::move(buffer);
}

void Heap::Regions::keep(void* begin, Taken taken, Heap* owner, PageUse use) {
  if (in_file_) tell_parents_pages(taken.owned);
  set_owner(taken.owned, owner, use);
  const auto bytes = taken.buffer->bytes();
  {
    const HeapGate gate;
    const MutexLock lock(mutex_);
    taken_.emplace(begin, std::move(taken));
  }
  if (HeapObserver* const told = observer()) told->took(bytes);
}

// The allocator cuts requests of whole MiB into slabs and can use any amount, so such a request may
// get a whole region of huge pages. It uses other requests only up to the requested size.
void* Heap::Regions::take_region(Heap* owner, std::size_t& bytes) {
  const std::size_t wanted = bytes % (1_MiB).value == 0 ? rounded_up(bytes, region_) : bytes;
  std::unique_ptr<Buffer> buffer = take(rounded_up(wanted, unit_));
  // With little budget left, takes only the requested bytes.
  if (buffer == nullptr && wanted > bytes) buffer = take(rounded_up(bytes, unit_));
  if (buffer == nullptr) return nullptr;
  bytes = buffer->size().value;
  void* const begin = buffer->memory();
  const auto all = buffer->bytes();
  keep(begin, {std::move(buffer), all}, owner, PageUse::none);
  return begin;
}

void* Heap::Regions::take_object(Heap* owner, std::size_t size, std::size_t align) {
  std::unique_ptr<Buffer> buffer =
      take(rounded_up(std::clamp(size, std::size_t{1}, kMostBytes), unit_), align);
  if (buffer == nullptr) return nullptr;
  std::byte* const begin = buffer->memory();
  keep(begin, {std::move(buffer), {begin, 1}}, owner, PageUse::large);
  return begin;
}

void Heap::Regions::give(const void* begin) {
  Taken taken;
  {
    const HeapGate gate;
    const MutexLock lock(mutex_);
    const auto found = taken_.find(begin);
    CHECK(found != taken_.end());
    taken = std::move(found->second);
    taken_.erase(found);
    reserved_ -= taken.buffer->size();
  }
  release(std::move(taken));
}

void Heap::Regions::give_all() {
  std::map<const void*, Taken> all;
  {
    const HeapGate gate;
    const MutexLock lock(mutex_);
    all.swap(taken_);
    reserved_ = {};
  }
  for (auto& [begin, taken] : all) release(std::move(taken));
}

void Heap::Regions::release(Taken taken) {
  set_owner(taken.owned, nullptr);
  if (in_file_) forget_parents_pages(taken.owned);
  const Bytes size = taken.buffer->size();
  if (HeapObserver* const told = observer()) told->giving(taken.buffer->bytes());
  taken.buffer.reset();
  if (budget_ != nullptr) budget_->give(size);
}

std::size_t Heap::Regions::size_of(const void* object) const {
  const HeapGate gate;
  const MutexLock lock(mutex_);
  const auto found = taken_.find(object);
  CHECK(found != taken_.end());
  return found->second.buffer->size().value;
}

HeapStats Heap::Regions::stats() const {
  const HeapGate gate;
  const MutexLock lock(mutex_);
  return {reserved_, taken_.size()};
}

std::optional<Error> Heap::Regions::last_error() const {
  const HeapGate gate;
  const MutexLock lock(mutex_);
  return error_;
}

}  // namespace headrace
