// SPDX-License-Identifier: Apache-2.0
#include <cerrno>

#include "backend/storage/storage_testing.h"
#include "conformance/suite.h"
#include "tests/support/machines.h"

namespace headrace::conformance {
namespace {

// Pieces wait for each other, for requests and for the only bounce buffer.
const StorageOptions kNarrow{.max_pieces = 1, .queue_depth = 1, .bounce_buffers = 1};

Case storage_case(std::string name, bool threads, bool write, StorageOptions options = {}) {
  options.queue = test::queue_of(threads);
  const MakeSide memory = memory_on(test::kDram);
  const MakeSide file = file_of(test::small_machine());
  return {.name = std::move(name),
          .open = [options] { return *open_storage(test::small_machine(), {test::kSsd}, options); },
          .engine = test::kSsd,
          .source = write ? memory : file,
          .destination = write ? file : memory};
}

INSTANTIATE_TEST_SUITE_P(Storage, BackendConformance,
                         testing::Values(storage_case("UringRead", false, false),
                                         storage_case("UringWrite", false, true),
                                         storage_case("UringReadNarrow", false, false, kNarrow),
                                         storage_case("ThreadsWriteNarrow", true, true, kNarrow),
                                         storage_case("ThreadsRead", true, false),
                                         storage_case("ThreadsWrite", true, true)),
                         case_name);

Case failing(std::string name, bool threads) {
  const auto odd_ones = [](const storage::Request& request) {
    return test::Fault{.error = request.offset / 8192 % 3 == 0 ? EIO : 0};
  };
  Case made = storage_case(std::move(name), threads, false);
  made.open = [=] {
    return *open_storage(test::small_machine(), {test::kSsd}, test::with_faults(threads, odd_ones));
  };
  return made;
}

INSTANTIATE_TEST_SUITE_P(Storage, FailingBackendConformance,
                         testing::Values(failing("UringRead", false), failing("ThreadsRead", true)),
                         case_name);

}  // namespace
}  // namespace headrace::conformance
