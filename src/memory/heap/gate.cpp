// SPDX-License-Identifier: Apache-2.0
#include "memory/heap/gate.h"

#include <array>
#include <atomic>
#include <cstddef>

#include "core/fork.h"

namespace headrace {
namespace {

// A thread takes one door, fork() takes all; enough doors that threads rarely meet.
constexpr std::size_t kDoors = 16;

// On separate cache lines, because threads take different doors at once.
struct alignas(64) Door {
  GlobalMutex mutex{kRankOfHeaps};
};

std::array<Door, kDoors> doors;

constinit std::atomic<std::size_t> threads{0};
constinit thread_local unsigned depth = 0;
constinit thread_local Door* mine = nullptr;

Door& own_door() {
  if (mine == nullptr) mine = &doors[threads.fetch_add(1) % kDoors];
  return *mine;
}

}  // namespace

HeapGate::HeapGate() NO_THREAD_SAFETY_ANALYSIS {
  if (depth++ == 0) own_door().mutex.lock();
}

HeapGate::~HeapGate() NO_THREAD_SAFETY_ANALYSIS {
  if (--depth == 0) own_door().mutex.unlock();
}

}  // namespace headrace
