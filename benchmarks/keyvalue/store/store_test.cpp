// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/keyvalue/store/store.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <map>
#include <string>

#include "headrace/random.h"

namespace headrace::kv_bench {
namespace {

class StoreTest : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    char name[] = "/tmp/headrace-kv-test-XXXXXX";
    directory_ = ::mkdtemp(name);
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  StoreOptions options() const {
    StoreOptions options{.cached = 64_KiB, .value_bytes = 1000, .records = 100};
    if (GetParam()) options.file = directory_ + "/values";
    return options;
  }

 private:
  std::string directory_;
};

std::string got(Store& store, const std::string& name) {
  const auto found = store.get(name);
  if (!found) return "nothing";
  return found->block ? *Store::value_of(*found->block) : std::string(found->value);
}

// A cache of 64 values for several hundred, all of them overwritten now and then.
TEST_P(StoreTest, GivesWhatWasLastStored) {
  auto opened = Store::open(options());
  ASSERT_TRUE(opened) << opened.error().message;
  Store& store = **opened;
  std::map<std::string, std::string> model;
  Random random(1);
  for (int i = 0; i < 5000; ++i) {
    const std::string name = "n" + std::to_string(random.below(300));
    if (random.chance(0.3)) {
      const std::string value(1 + random.below(1000), static_cast<char>('a' + random.below(26)));
      ASSERT_TRUE(store.set(name, value));
      model[name] = value;
    } else {
      const auto found = model.find(name);
      ASSERT_EQ(got(store, name), found == model.end() ? "nothing" : found->second) << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(InMemoryAndOnFile, StoreTest, ::testing::Bool());

TEST(Store, FailedOpenOrSet_IsReported) {
  EXPECT_EQ(Store::open({.file = "/nowhere/values"}).error().code, ErrorCode::absent);
  EXPECT_FALSE(Store::open({.placement = "tape"}));
  char name[] = "/tmp/headrace-kv-test-XXXXXX";
  const std::string directory = ::mkdtemp(name);
  {
    auto store = Store::open({.file = directory + "/values", .value_bytes = 100});
    ASSERT_TRUE(store) << store.error().message;
    EXPECT_EQ((*store)->set("n", std::string(513, 'x')).error().code, ErrorCode::invalid);
  }
  std::filesystem::remove_all(directory);
}

}  // namespace
}  // namespace headrace::kv_bench
