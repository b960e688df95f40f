// SPDX-License-Identifier: Apache-2.0
#include "cache/accounts/owners.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <atomic>
#include <deque>
#include <map>
#include <thread>

#include "cache/accounts/tenants.h"

namespace headrace {
namespace {

class Nothing final : public Object {
 public:
  Nothing() : Object(1_B, NodeId{0}, nullptr) {}
};

RC_GTEST_PROP(ObjectTenantsTest, RandomChanges_AreFoundAsInAMap, ()) {
  std::deque<Nothing> objects(200);
  ObjectTenants tenants;
  std::map<const Object*, TenantId> naive;
  for (int step = *rc::gen::inRange(1, 400); step > 0; --step) {
    const Object& object = objects[*rc::gen::inRange<std::size_t>(0, objects.size())];
    const auto tenant = static_cast<TenantId>(*rc::gen::element(0, 0, 1, 2, 31));
    tenants.set(object.id(), tenant);
    naive[&object] = tenant;
    const Object& other = objects[*rc::gen::inRange<std::size_t>(0, objects.size())];
    for (const Object* one : {&object, &other}) {
      RC_ASSERT(tenants.of(one, {}) == naive[one]);
      RC_ASSERT(tenants.of(one, TenantId{7}) == TenantId{7});
    }
  }
  for (const Object& object : objects) RC_ASSERT(tenants.of(&object, {}) == naive[&object]);
}

TEST(ObjectTenantsTest, LookupsBesideChanges_FindWhatStays) {
  std::deque<Nothing> objects(64);
  ObjectTenants tenants;
  for (std::size_t i = 0; i < 64; i += 2) tenants.set(objects[i].id(), TenantId{3});
  std::atomic<bool> over{false};
  std::jthread changes([&] {
    for (int round = 0; round < 200; ++round) {
      for (std::size_t i = 1; i < 64; i += 2) {
        tenants.set(objects[i].id(), static_cast<TenantId>(round % 3));
      }
    }
    over = true;
  });
  std::size_t wrong = 0;
  while (!over) {
    for (std::size_t i = 0; i < 64; i += 2) {
      wrong += tenants.of(&objects[i], {}) != TenantId{3};
      wrong += number_of(tenants.of(&objects[i + 1], {})) > 2;
    }
  }
  EXPECT_EQ(wrong, 0u);
}

}  // namespace
}  // namespace headrace
