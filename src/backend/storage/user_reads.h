// SPDX-License-Identifier: Apache-2.0
// Pieces whose bytes come from a UserSource: read by a few threads, which start when needed.
//
// Thread-safe.
#pragma once

#include <cstddef>
#include <thread>
#include <vector>

#include "core/mutex.h"
#include "headrace/backend.h"
#include "headrace/clock.h"

namespace headrace::storage {

class UserReads {
 public:
  UserReads(std::size_t threads, std::size_t most);
  // Ends all accepted pieces, each within the bound of its UserSource::read().
  ~UserReads();
  UserReads(const UserReads&) = delete;
  UserReads& operator=(const UserReads&) = delete;

  // False: full. Never blocks. Requires: the piece was checked; piece.from is of a UserSource.
  bool accept(const Piece& piece, Completion& completion);

 private:
  struct Read {
    Piece piece;
    Completion* completion = nullptr;
  };

  void work();

  const std::size_t most_threads_;
  const std::size_t most_;
  Mutex mutex_;
  CondVar work_;
  std::vector<std::thread> workers_ GUARDED_BY(mutex_);
  std::vector<Read> pending_ GUARDED_BY(mutex_);
  std::size_t idle_ GUARDED_BY(mutex_) = 0;
  bool ending_ GUARDED_BY(mutex_) = false;
};

}  // namespace headrace::storage
