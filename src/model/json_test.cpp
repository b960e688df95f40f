// SPDX-License-Identifier: Apache-2.0
#include "model/json.h"

#include <gtest/gtest.h>

#include "model/model_testing.h"

namespace headrace {
namespace {

TEST(ModelJsonTest, Smoke) {
  const auto answer = solve_json(
      two_memories().to_json(),
      R"([{"name": "a", "threads": 4, "initiator": 0, "accesses": [{"node": 1, "kind": "read", "bytes": 1}], "in_flight_bytes": 640}])");
  ASSERT_TRUE(answer.has_value()) << answer.error().message;
  puts(answer->c_str());
}

}  // namespace
}  // namespace headrace
