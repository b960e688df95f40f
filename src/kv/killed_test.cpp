// A process that is killed in the middle of stores: the next one finds blocks that are right, and
// none that are not.
#include <sys/wait.h>

#include "kv/kv_testing.h"

namespace headrace {
namespace {

using namespace test;

TEST(KvKilled, FolderServesOnlyWhatIsRight) {
  std::size_t found = 0;
  std::size_t served = 0;
  for (int round = 0; round < 2; ++round) {
    KvRig rig;
    const auto keys = kv::keys(rig.geometry, tokens(4 * 400));
    int started[2];
    ASSERT_EQ(pipe(started), 0);
    const pid_t child = fork();
    if (child == 0) {
      KvRig inside;  // what the parent has made is the parent's
      inside.worker = true;
      inside.folder.path.swap(rig.folder.path);
      inside.open({4}, 100);
      for (std::size_t i = 0;; i = (i + 1) % keys.size()) {
        (void)inside.put({&keys[i], 1});
        if (i == 40) (void)!write(started[1], "x", 1);
      }
    }
    char ignored = 0;
    EXPECT_EQ(read(started[0], &ignored, 1), 1);
    usleep(static_cast<useconds_t>(1000 + 700 * round));
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    close(started[0]);
    close(started[1]);
    rig.open({4}, 100);
    found += rig.store->stats().reopened;
    for (const kv::Key& key : keys) {
      if (rig.store->match({&key, 1}).size() == 0) continue;
      std::vector<std::byte> bytes(rig.geometry.block().value);
      const MemoryRange memory(bytes, kDram);
      const auto load = rig.store->load({&key, 1}, whole(memory));
      ASSERT_TRUE(load.has_value());
      if (load->wait()) {
        EXPECT_EQ(bytes, rig.blocks_of({&key, 1}));
        ++served;
      }
    }
  }
  EXPECT_GT(found, 0u);
  EXPECT_GT(2 * served, found);  // a few were being written
}

}  // namespace
}  // namespace headrace
