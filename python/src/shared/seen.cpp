// SPDX-License-Identifier: Apache-2.0
#include "seen.h"

#include <algorithm>
#include <utility>

namespace headrace::python {

SeenObjects::~SeenObjects() {
  if (!origin_.here()) abandon(std::move(objects_));
}

bool SeenObjects::add(const ObjectPointer& object) {
  if (!origin_.here()) return false;
  const std::lock_guard<std::mutex> lock(mutex_);
  objects_->try_emplace(object->id(), object);
  return objects_->size() >= look_at_;
}

std::vector<ObjectPointer> SeenObjects::take_unused(std::span<const ObjectId> kept) {
  std::vector<ObjectPointer> taken;
  if (!origin_.here()) return taken;
  const std::lock_guard<std::mutex> lock(mutex_);
  for (auto each = objects_->begin(); each != objects_->end();) {
    auto& [id, object] = *each;
    if (object.use_count() == 1 && !std::ranges::binary_search(kept, id)) {
      taken.push_back(std::move(object));
      each = objects_->erase(each);
    } else {
      ++each;
    }
  }
  return taken;
}

void SeenObjects::put_back(std::vector<ObjectPointer> objects) {
  constexpr std::size_t kLeast = 64;
  if (!origin_.here()) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  for (ObjectPointer& object : objects) {
    const ObjectId id = object->id();
    objects_->emplace(id, std::move(object));
  }
  look_at_ = std::max(kLeast, 2 * objects_->size());
}

ObjectPointer SeenObjects::find(ObjectId object) const {
  if (!origin_.here()) return nullptr;
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = objects_->find(object);
  return found == objects_->end() ? nullptr : found->second;
}

}  // namespace headrace::python
