#include "backend/dsa_sim/client_memory.h"

#include <gtest/gtest.h>

#include <array>
#include <thread>

#include "backend/dsa_sim/sim_testing.h"

namespace headrace::dsa {
namespace {

TEST(ClientMemory, IsTheProcesssButForTheRecordsOfItsOwnDrains) {
  test::Client client;
  ClientMemory memory(client.memory());
  std::array<std::byte, 8> bytes;
  const std::uint64_t address = DirectMemory::number(client.from.data());
  EXPECT_EQ(memory.read(address, bytes), 8U);
  EXPECT_EQ(bytes[1], std::byte{7});
  EXPECT_EQ(memory.write(DirectMemory::number(client.to.data()), bytes), 8U);
  EXPECT_EQ(client.to[1], std::byte{7});
  EXPECT_EQ(memory.reach(address, 300, Touch::read), 300U);
  EXPECT_TRUE(memory.resolve(address, Touch::read));
  EXPECT_FALSE(memory.resolve(8, Touch::read));
  const Record record{.status = 1};
  EXPECT_TRUE(memory.write_record(DirectMemory::number(&client.records[3]), record));
  EXPECT_EQ(client.records[3].status, 1);
  EXPECT_FALSE(memory.write_record(32, record));
  EXPECT_TRUE(memory.write_record(ClientMemory::record_of(1), record));
  EXPECT_TRUE(ClientMemory::is_own(ClientMemory::record_of(1)));
  EXPECT_FALSE(ClientMemory::is_own(address));
}

TEST(ClientMemory, WaitsForItsDrain) {
  ClientMemory memory(std::make_unique<DirectMemory>());
  EXPECT_FALSE(memory.wait(1, std::chrono::milliseconds{1}));
  std::thread device([&] { memory.write_record(ClientMemory::record_of(2), Record{.status = 1}); });
  EXPECT_TRUE(memory.wait(2, std::chrono::seconds{30}));
  EXPECT_TRUE(memory.wait(1, Nanoseconds{0}));
  EXPECT_FALSE(memory.wait(3, Nanoseconds{0}));
  device.join();
}

}  // namespace
}  // namespace headrace::dsa
