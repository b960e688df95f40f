// SPDX-License-Identifier: Apache-2.0
// The objects that a cache was asked for. The cache borrows the objects it copies from and does not
// tell when it is done with one, so they are held here, and looked through from time to time.
//
// Thread-safe. No object is dropped while one of the list's own locks is held, or from inside the
// list: that may run Python code, which may come back here. In a child made by fork() the list is
// empty and takes nothing: another thread may have been looking through it.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "core/fork.h"
#include "headrace/object.h"

namespace headrace::python {

using ObjectPointer = std::shared_ptr<const Object>;

class SeenObjects {
 public:
  SeenObjects() = default;
  ~SeenObjects();
  SeenObjects(const SeenObjects&) = delete;
  SeenObjects& operator=(const SeenObjects&) = delete;

  // Whether it is time to let some go.
  bool add(const ObjectPointer& object);
  // Takes out the objects that nobody else holds, except those in `kept`, which is sorted.
  std::vector<ObjectPointer> take_unused(std::span<const ObjectId> kept);
  // Puts back objects that were taken out and are needed again. Ends the look through the list.
  void put_back(std::vector<ObjectPointer> objects);
  bool holds(ObjectId object) const { return find(object) != nullptr; }
  // Null: it is not in the list.
  ObjectPointer find(ObjectId object) const;

 private:
  using Objects = std::map<ObjectId, ObjectPointer>;

  const Origin origin_;
  // Held for no longer than a look into the map: never while Python runs, nor while the GIL is
  // taken or let go.
  mutable std::mutex mutex_;
  std::unique_ptr<Objects> objects_ = std::make_unique<Objects>();
  std::size_t look_at_ = 64;  // how many are seen when it is time to let some go
};

}  // namespace headrace::python
