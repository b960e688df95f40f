// SPDX-License-Identifier: Apache-2.0
// Receives completed slots from the storage backend and hands them to their lane. Thread-safe.
#pragma once

#include <memory>
#include <utility>

#include "backend/cuda/engines/lane.h"

namespace headrace::cuda {

class Lane::Stored final : public Completion {
 public:
  explicit Stored(std::shared_ptr<Mailbox> mailbox) : mailbox_(std::move(mailbox)) {}

  void complete(std::uint64_t tag, Status outcome) noexcept override {
    Task* const task = reinterpret_cast<Task*>(tag);
    task->outcome = std::move(outcome);
    const MutexLock lock(mailbox_->mutex);
    task->next = std::exchange(mailbox_->stored, task);
    mailbox_->wake.notify_one();
  }

 private:
  const std::shared_ptr<Mailbox> mailbox_;
};

}  // namespace headrace::cuda
