// SPDX-License-Identifier: Apache-2.0
#include "dsa_sim/fuse/options.h"

#include <fmt/core.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

namespace headrace::emulator {
namespace {

Result<Options> parse(std::vector<const char*> words) { return parse_options(words); }

Result<std::vector<DeviceSetup>> setups(std::vector<const char*> words) {
  words.push_back("/mnt");
  auto options = parse_options(words);
  if (!options) return Unexpected(options.error());
  return make_setups(*options);
}

TEST(Options, OneDeviceWithOneSharedQueueByDefault) {
  const auto made = setups({});
  ASSERT_TRUE(made);
  ASSERT_EQ(made->size(), 1U);
  const DeviceSetup& setup = made->front();
  EXPECT_EQ(setup.version, 0x100U);
  ASSERT_EQ(setup.queues.size(), 1U);
  EXPECT_TRUE(setup.queues[0].shared);
  EXPECT_EQ(setup.queues[0].size, 128U);
  EXPECT_EQ(setup.queues[0].threshold, 128U);
  EXPECT_FALSE(setup.queues[0].batches_allowed);
}

TEST(Options, TheLayoutOfTheThesis) {
  const auto made = setups({"--layout", "8n1d1e1w"});
  ASSERT_TRUE(made);
  ASSERT_EQ(made->size(), 8U);
  for (unsigned i = 0; i < 8; ++i) EXPECT_EQ((*made)[i].numa_node, i);
}

TEST(Options, LayoutsSayHowMuchOfEach) {
  const auto made = setups({"--layout=2n3d4e2w"});
  ASSERT_TRUE(made);
  ASSERT_EQ(made->size(), 6U);
  EXPECT_EQ((*made)[2].numa_node, 0U);
  EXPECT_EQ((*made)[3].numa_node, 1U);
  EXPECT_EQ((*made)[0].groups[0].engines, 4U);
  ASSERT_EQ((*made)[0].queues.size(), 2U);
  EXPECT_EQ((*made)[0].queues[1].size, 64U);
}

TEST(Options, DevicesAndNodesReplaceTheLayoutsWhereverTheyStand) {
  const auto made = setups({"--devices=2", "--nodes=7", "--layout", "8n1d4e1w"});
  ASSERT_TRUE(made);
  ASSERT_EQ(made->size(), 2U);
  EXPECT_EQ((*made)[1].numa_node, 7U);
  EXPECT_EQ((*made)[1].groups[0].engines, 4U);
}

TEST(Options, DevicesOnNodesInTurn) {
  const auto made = setups({"--devices", "8", "--nodes", "0,0,5"});
  ASSERT_TRUE(made);
  ASSERT_EQ(made->size(), 8U);
  EXPECT_EQ((*made)[1].numa_node, 0U);
  EXPECT_EQ((*made)[2].numa_node, 5U);
  EXPECT_EQ((*made)[5].numa_node, 5U);
}

TEST(Options, QueuesByKindSizeAndThreshold) {
  const auto made = setups({"--queue", "shared:32:16", "--queue", "dedicated:8",
                            "--no-block-on-fault", "--profile", "dsa2"});
  ASSERT_TRUE(made);
  const std::vector<QueueSetup>& queues = made->front().queues;
  ASSERT_EQ(queues.size(), 2U);
  EXPECT_EQ(queues[0].threshold, 16U);
  EXPECT_FALSE(queues[0].block_on_fault);
  EXPECT_TRUE(queues[0].batches_allowed);
  EXPECT_FALSE(queues[1].shared);
  EXPECT_EQ(queues[1].size, 8U);
}

TEST(Options, TheOthers) {
  const auto options =
      parse({"--mode", "666", "--rates", "--seed=7", "--retries", "0", "--resident", "/mnt"});
  ASSERT_TRUE(options);
  EXPECT_EQ(options->mode, 0666U);
  EXPECT_TRUE(options->served.rates);
  EXPECT_EQ(options->served.seed, 7U);
  EXPECT_EQ(options->served.retries, 0U);
  EXPECT_FALSE(options->absent_pages_fault);
  EXPECT_EQ(options->mount_point, "/mnt");
}

TEST(Options, HelpNeedsNoMountPointAndNamesAllOptions) {
  const std::string help = parse({"--help"})->help;
  for (const char* option :
       {"--profile", "--layout", "--devices", "--nodes", "--queue", "--no-block-on-fault",
        "--resident", "--retries", "--mode", "--rates", "--seed", "--help"}) {
    EXPECT_NE(help.find(fmt::format("\n  {}", option)), std::string::npos) << option;
  }
}

TEST(Options, WrongOnesAreToldWithWhatIsRight) {
  const auto wrong = [](std::vector<const char*> words) {
    const auto made = setups(std::move(words));
    EXPECT_FALSE(made);
    if (made) return std::string();
    EXPECT_EQ(made.error().code, ErrorCode::invalid);
    return made.error().message;
  };
  const auto names = [&](std::vector<const char*> words, std::string_view what) {
    const std::string message = wrong(std::move(words));
    EXPECT_NE(message.find(what), std::string::npos) << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  };
  names({"--colour"}, "--colour");
  names({"--devices", "x"}, "--devices");
  names({"--devices", "65"}, "65");
  names({"--retries", "65"}, "--retries");
  names({"--rates=1"}, "rates");
  names({"--seed", "-1"}, "--seed");
  names({"/elsewhere"}, "/mnt");
  EXPECT_EQ(wrong({"--profile", "dsa9"}),
            "no profile 'dsa9'; there are sapphire-rapids, dsa2, dsa3");
  EXPECT_EQ(wrong({"--layout", "8n1d1e"}), "--layout '8n1d1e': give it as 8n1d1e1w");
  EXPECT_EQ(wrong({"--layout", "8n1d1e1w2"}), "--layout '8n1d1e1w2': '2' is too much");
  EXPECT_EQ(wrong({"--queue", "both:1"}),
            "--queue 'both:1': give shared:SIZE, shared:SIZE:THRESHOLD or dedicated:SIZE");
  EXPECT_EQ(wrong({"--queue", "dedicated:8:4"}),
            "--queue 'dedicated:8:4': a dedicated queue has no threshold");
  EXPECT_EQ(wrong({"--queue", "shared:8:9"}), "--queue threshold '9': give 1 to 8");
  EXPECT_EQ(wrong({"--queue", "shared:129"}),
            "the queues hold 129 descriptors together; at most 128");
  EXPECT_NE(parse({}).error().message.find("MOUNT_POINT"), std::string::npos);
  EXPECT_NE(parse({"/mnt", "--seed"}).error().message.find("--seed"), std::string::npos);
  EXPECT_EQ(parse({"--mode", "8", "/mnt"}).error().message, "--mode '8': give 0 to 777");
}

}  // namespace
}  // namespace headrace::emulator
