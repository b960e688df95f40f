// SPDX-License-Identifier: Apache-2.0
// The objects of handles. A handle is a number that is never reused, so that each use after its end
// is noticed. It points to nothing.
//
// Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "core/mutex.h"

namespace headrace::cuda::fake {

inline std::uintptr_t next_handle() {
  static std::atomic<std::uintptr_t> last{0x10000};
  return last += 0x100;
}

template <class Handle, class Object>
class Handles {
 public:
  static Handle make() { return reinterpret_cast<Handle>(next_handle()); }

  Handle add(std::shared_ptr<Object> object, Handle handle = make()) {
    const MutexLock lock(mutex_);
    objects_.emplace(handle, std::move(object));
    return handle;
  }

  // Null: never existed, or has ended.
  std::shared_ptr<Object> find(Handle handle) const {
    const MutexLock lock(mutex_);
    const auto found = objects_.find(handle);
    return found == objects_.end() ? nullptr : found->second;
  }

  // Null: as for find().
  std::shared_ptr<Object> remove(Handle handle) {
    const MutexLock lock(mutex_);
    const auto found = objects_.find(handle);
    if (found == objects_.end()) return nullptr;
    std::shared_ptr<Object> object = std::move(found->second);
    objects_.erase(found);
    return object;
  }

  // Removes and returns the objects for which `is_one` holds; the caller ends them.
  std::vector<std::shared_ptr<Object>> remove_if(auto is_one) {
    std::vector<std::shared_ptr<Object>> removed;
    const MutexLock lock(mutex_);
    for (auto each = objects_.begin(); each != objects_.end();) {
      if (is_one(*each->second)) {
        removed.push_back(std::move(each->second));
        each = objects_.erase(each);
      } else {
        ++each;
      }
    }
    return removed;
  }

 private:
  mutable Mutex mutex_;
  std::map<Handle, std::shared_ptr<Object>> objects_ GUARDED_BY(mutex_);
};

}  // namespace headrace::cuda::fake
