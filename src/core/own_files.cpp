// SPDX-License-Identifier: Apache-2.0
#include "core/own_files.h"

#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include <utility>
#include <vector>

#include "core/fork.h"

namespace headrace::own_files {
namespace {

GlobalMutex files_mutex{kRankOfFiles};

// Never destroyed: a file may be closed while the program ends.
std::vector<int>& files() REQUIRES(files_mutex) {
  static std::vector<int>& all = *new std::vector<int>;
  return all;
}

// Registered after the mutex's handler, which frees the mutex in the child.
[[maybe_unused]] const int files_registered = pthread_atfork(nullptr, nullptr, [] {
  const MutexLock lock(files_mutex);
  for (const int descriptor : files()) ::close(descriptor);
  files().clear();
});

}  // namespace

int open(const char* path) {
  const MutexLock lock(files_mutex);
  const int descriptor = ::open(path, O_RDWR | O_CLOEXEC);
  if (descriptor >= 0) files().push_back(descriptor);
  return descriptor;
}

void add(int descriptor) {
  const MutexLock lock(files_mutex);
  files().push_back(descriptor);
}

void remove(int descriptor) {
  const MutexLock lock(files_mutex);
  std::erase(files(), descriptor);
}

void close(int descriptor) {
  const MutexLock lock(files_mutex);
  std::erase(files(), descriptor);
  ::close(descriptor);
}

}  // namespace headrace::own_files

namespace headrace {

// Constructed first, so that the descriptor is closed if adding it runs out of memory.
OwnDescriptor::OwnDescriptor(int descriptor) : OwnDescriptor() {
  descriptor_ = descriptor;
  if (descriptor >= 0) own_files::add(descriptor);
}
OwnDescriptor::OwnDescriptor(OwnDescriptor&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)) {}
OwnDescriptor& OwnDescriptor::operator=(OwnDescriptor&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  return *this;
}
OwnDescriptor::~OwnDescriptor() {
  if (descriptor_ >= 0) own_files::close(descriptor_);
}

}  // namespace headrace
