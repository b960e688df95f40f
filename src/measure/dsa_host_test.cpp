#include "measure/dsa_host.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "measure/dsa_testing.h"

namespace headrace {
namespace {

using test::SoftwareDsaHost;

TEST(DsaHost, EveryMethodCopiesAll) {
  const SoftwareDsaHost ground({dsa::DeviceOptions{}});
  DsaHost host = ground.host();
  for (const DsaMethod method : {DsaMethod::single, DsaMethod::batch, DsaMethod::vectored}) {
    DsaThread thread = ground.copy_of(64_KiB);
    thread.copies = 40;
    thread.method = method;
    thread.at_once = thread.window = method == DsaMethod::single ? 1 : 10;
    const std::uint64_t before = ground.device(0).stats().executed[dsa::Opcode::memmove];
    const auto times = host.run({thread, thread}, {}, 2);
    ASSERT_TRUE(times) << times.error().message;
    ASSERT_EQ(times->size(), 2U);
    for (const DsaTimes& round : *times) {
      EXPECT_EQ(round.each.size(), 2U);
      EXPECT_GE(round.all, std::max(round.each[0], round.each[1]));
    }
    EXPECT_EQ(ground.device(0).stats().executed[dsa::Opcode::memmove] - before, 2U * 2U * 40U);
  }
}

TEST(DsaHost, ABatchTakenApartIsNoBatch) {
  const SoftwareDsaHost ground({dsa::DeviceOptions{}}, {.character_device = true});
  DsaHost host = ground.host();
  DsaThread thread = ground.copy_of(4_KiB);
  thread.copies = thread.at_once = thread.window = 10;
  thread.method = DsaMethod::batch;
  EXPECT_EQ(host.run({thread}, {}, 1).error().code, ErrorCode::unsupported);
}

TEST(DsaHost, SaysWhatIsNotConfigured) {
  const SoftwareDsaHost ground({dsa::DeviceOptions{}});
  DsaHost host = ground.host();
  const DsaThread thread = ground.copy_of(4_KiB);
  const auto dedicated = host.run({thread}, {.shared = false}, 1);
  EXPECT_EQ(dedicated.error().code, ErrorCode::absent);
  EXPECT_NE(dedicated.error().message.find("no dedicated queue"), std::string::npos);
  EXPECT_EQ(host.run({thread}, {.engines = 4}, 1).error().code, ErrorCode::absent);
  DsaThread elsewhere = thread;
  elsewhere.to = NodeId{999};
  EXPECT_EQ(host.run({elsewhere}, {}, 1).error().code, ErrorCode::absent);
  DsaThread cores = thread;
  cores.engine = EngineId{0};
  EXPECT_EQ(host.run({cores}, {}, 1).error().code, ErrorCode::absent);
}

TEST(DsaHost, ADeviceThatFailsIsAnErrorNotATime) {
  dsa::DeviceOptions options;
  options.faults.hardware_chance = 1;
  const SoftwareDsaHost ground({options});
  DsaHost host = ground.host();
  EXPECT_FALSE(host.run({ground.copy_of(4_KiB)}, {}, 1));
}

TEST(DsaHost, DevicesOfElsewhereAreNotHardware) {
  ASSERT_EQ(setenv("HEADRACE_DSA_SYSFS", "/nowhere", 1), 0);
  const auto found = find_dsa_host(*Machine::discover());
  unsetenv("HEADRACE_DSA_SYSFS");
  ASSERT_FALSE(found);
  EXPECT_EQ(found.error().code, ErrorCode::unsupported);
  EXPECT_NE(found.error().message.find("--emulated"), std::string::npos);
}

}  // namespace
}  // namespace headrace
