#include "backend/storage/storage.h"
#include "conformance/suite.h"
#include "support/machines.h"

namespace headrace::conformance {
namespace {

Case storage(std::string name, bool threads, bool write) {
  const MakeSide memory = memory_on(test::kDram);
  const MakeSide file = file_of(test::small_machine());
  return {.name = std::move(name),
          .open =
              [threads] {
                return *open_storage(test::small_machine(), {test::kSsd},
                                     {.force_threads = threads});
              },
          .engine = test::kSsd,
          .source = write ? memory : file,
          .destination = write ? file : memory};
}

INSTANTIATE_TEST_SUITE_P(Storage, BackendConformance,
                         testing::Values(storage("UringRead", false, false),
                                         storage("UringWrite", false, true),
                                         storage("ThreadsRead", true, false),
                                         storage("ThreadsWrite", true, true)),
                         case_name);

}  // namespace
}  // namespace headrace::conformance
