// SPDX-License-Identifier: Apache-2.0
// The whole program, as programs that know the kernel's driver see it.
#include "dsa_sim/fuse/serve.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <thread>

#include "dsa_sim/fuse/program_testing.h"
#include "tests/support/dsa/testing.h"

namespace headrace::emulator {
namespace {

using test::Emulator;
using test::in_child;
using test::status_of;
using test::wait_for;

class Serve : public testing::Test {
 protected:
  void SetUp() override {
    if (const auto why = test::obstacle()) GTEST_SKIP() << *why;
  }
};

// A file descriptor; errno says why it is -1.
struct File {
  explicit File(const std::string& path, int flags = O_RDWR) : number(open(path.c_str(), flags)) {}
  ~File() { reset(); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  void reset() {
    if (number >= 0) close(std::exchange(number, -1));
  }
  int number;
};

int error_of_open(const std::string& path, int flags = O_RDWR) {
  const File file(path, flags);
  return file.number < 0 ? errno : 0;
}

Descriptor noop(Record& record) { return test::make(Opcode::noop, record); }

Descriptor copy(const std::vector<std::byte>& from, std::vector<std::byte>& to, Record& record) {
  return test::make_move(test::address_of(from.data()), test::address_of(to.data()),
                         static_cast<std::uint32_t>(from.size()), record);
}

// Returns what write() returned, or -errno.
ssize_t submit(int file, const std::vector<Descriptor>& descriptors) {
  const ssize_t written = write(file, descriptors.data(), descriptors.size() * sizeof(Descriptor));
  return written < 0 ? -errno : written;
}

constexpr ssize_t kOne = sizeof(Descriptor);

// Does a no-op end well? What programs ask when mmap() fails.
bool probe(int file) {
  Record record;
  return submit(file, {noop(record)}) == kOne &&
         test::eventually([&] { return status_of(record) != 0; }) && status_of(record) == 1;
}

TEST_F(Serve, IsFoundByReadingFiles) {
  const Emulator emulator({"--layout", "2n3d4e2w", "--profile", "dsa2"});
  EXPECT_EQ(emulator.said().find("serving 6 dsa2 devices at /"), 0U) << emulator.said();
  for (const auto& [path, text] :
       std::vector<std::pair<std::string, std::string>>{{"dsa1/version", "0x200"},
                                                        {"dsa2/numa_node", "0"},
                                                        {"dsa3/numa_node", "1"},
                                                        {"dsa1/state", "enabled"},
                                                        {"dsa1/wq1.1/mode", "shared"},
                                                        {"dsa1/wq1.1/size", "64"},
                                                        {"dsa1/engine1.3/group_id", "0"}}) {
    EXPECT_EQ(emulator.attribute(path), text) << path;
  }
  const std::filesystem::directory_iterator files(emulator.path("dev/dsa"));
  EXPECT_EQ(std::distance(begin(files), end(files)), 12);
  EXPECT_EQ(error_of_open(emulator.sysfs("dsa0/state"), O_WRONLY), EACCES);
  EXPECT_EQ(error_of_open(emulator.sysfs("dsa0/nothing"), O_RDONLY), ENOENT);
}

TEST_F(Serve, WriteRefusesAsTheDriverDoes) {
  const Emulator emulator;
  const File file(emulator.path("dev/dsa/wq0.0"));
  Record record;
  Descriptor odd = noop(record);
  odd.record += 8;
  EXPECT_EQ(submit(file.number, {odd}), -EINVAL);
  EXPECT_EQ(submit(file.number, {noop(record), odd}), kOne);
  EXPECT_EQ(write(file.number, &odd, 63), 0);
  void* nowhere = mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  EXPECT_EQ(write(file.number, nowhere, 64), -1);
  EXPECT_EQ(errno, EFAULT);
  munmap(nowhere, 4096);
  char byte;
  EXPECT_EQ(read(file.number, &byte, 1), -1);
  EXPECT_EQ(errno, EINVAL);
}

TEST_F(Serve, APageThatWasNeverTouchedIsAFaultUnlessTheyAreResident) {
  const std::vector<std::byte> from(4096, std::byte{7});
  for (const bool resident : {false, true}) {
    const Emulator emulator(resident ? std::vector<std::string>{"--resident"}
                                     : std::vector<std::string>{});
    const File file(emulator.path("dev/dsa/wq0.0"));
    void* page = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    Record record;
    const Descriptor descriptor =
        test::make_move(test::address_of(from.data()), test::address_of(page), 4096, record);
    EXPECT_EQ(submit(file.number, {descriptor}), kOne);
    ASSERT_TRUE(test::eventually([&] { return status_of(record) != 0; }));
    EXPECT_EQ(status_of(record), resident ? 0x01 : 0x83);
    EXPECT_EQ(record.completed, 0U);
    munmap(page, 4096);
  }
}

// The driver says EPERM; FUSE cannot. Programs that fall back to write() look only whether it
// failed.
TEST_F(Serve, MmapFails) {
  const Emulator emulator;
  const File file(emulator.path("dev/dsa/wq0.0"));
  EXPECT_EQ(mmap(nullptr, 4096, PROT_WRITE, MAP_SHARED | MAP_POPULATE, file.number, 0), MAP_FAILED);
  EXPECT_EQ(errno, ENODEV);
  // A private mapping FUSE grants to any file; nothing can be read there.
  void* page = mmap(nullptr, 4096, PROT_READ, MAP_PRIVATE, file.number, 0);
  EXPECT_TRUE(page == MAP_FAILED || madvise(page, 4096, MADV_POPULATE_READ) != 0);
  if (page != MAP_FAILED) munmap(page, 4096);
  EXPECT_TRUE(probe(file.number));
}

TEST_F(Serve, ADedicatedQueueIsOpenedOnce) {
  const Emulator emulator({"--queue", "dedicated:16", "--queue", "shared:16"});
  const std::string dedicated = emulator.path("dev/dsa/wq0.0");
  {
    const File first(dedicated);
    EXPECT_TRUE(probe(first.number));
    EXPECT_EQ(error_of_open(dedicated), EBUSY);
    EXPECT_EQ(emulator.attribute("dsa0/wq0.0/clients"), "1");
  }
  // close() does not wait for the release.
  EXPECT_TRUE(test::eventually([&] { return error_of_open(dedicated) == 0; }));
  const File one(emulator.path("dev/dsa/wq0.1"));
  const File other(emulator.path("dev/dsa/wq0.1"));
  EXPECT_TRUE(probe(one.number));
  EXPECT_TRUE(probe(other.number));
  EXPECT_EQ(emulator.attribute("dsa0/wq0.1/clients"), "2");
}

TEST_F(Serve, AForkedChildMustOpenItsOwn) {
  const Emulator emulator;
  const std::string path = emulator.path("dev/dsa/wq0.0");
  const File file(path);
  EXPECT_TRUE(probe(file.number));
  const pid_t child = in_child([&] {
    Record record;
    if (submit(file.number, {noop(record)}) != -EPERM) return 1;
    const File own(path);
    return probe(own.number) ? 0 : 2;
  });
  EXPECT_EQ(wait_for(child), 0);
  bool other_thread = false;
  std::thread([&] { other_thread = probe(file.number); }).join();
  EXPECT_TRUE(other_thread);
}

TEST_F(Serve, PermissionBitsKeepOthersOut) {
  const auto as_nobody = [](const std::string& path) {
    return wait_for(in_child([&] {
      if (setuid(65534) != 0) return 200;
      return error_of_open(path);
    }));
  };
  const Emulator closed;
  EXPECT_EQ(as_nobody(closed.path("dev/dsa/wq0.0")), EACCES);
  EXPECT_EQ(as_nobody(closed.path("control")), EACCES);
  // The directory of the mount point itself is root's alone, but not what is mounted there.
  const Emulator open_to_all({"--mode", "0666"});
  EXPECT_EQ(as_nobody(open_to_all.path("dev/dsa/wq0.0")), 0);
}

TEST_F(Serve, CloseWaitsForWhatWasSubmitted) {
  const Emulator emulator({"--rates", "--queue", "shared:64", "--queue", "dedicated:64"});
  for (const char* queue : {"dev/dsa/wq0.0", "dev/dsa/wq0.1"}) {
    File file(emulator.path(queue));
    const std::vector<std::byte> from(1 << 20, std::byte{3});
    std::vector<std::byte> to(from.size());
    std::vector<Record> records(16);
    std::vector<Descriptor> descriptors;
    for (Record& record : records) descriptors.push_back(copy(from, to, record));
    EXPECT_EQ(submit(file.number, descriptors), 16 * kOne);
    file.reset();
    for (Record& record : records) EXPECT_EQ(status_of(record), 1);
  }
}

TEST_F(Serve, AQueueThatIsDisabledWhileInUse) {
  const Emulator emulator;
  const std::string path = emulator.path("dev/dsa/wq0.0");
  const File file(path);
  EXPECT_TRUE(probe(file.number));
  EXPECT_EQ(emulator.control("disable wq0.0\n"), 0);
  EXPECT_EQ(error_of_open(path), ENOENT);
  EXPECT_EQ(emulator.attribute("dsa0/wq0.0/state"), "disabled");
  Record record;
  EXPECT_EQ(submit(file.number, {noop(record)}), -EAGAIN);
  EXPECT_EQ(emulator.control("enable wq0.0\n"), 0);
  const File again(path);
  EXPECT_TRUE(probe(again.number));
  EXPECT_TRUE(probe(file.number));
}

TEST_F(Serve, ControlTakesCommandsAndRefusesNonsense) {
  const Emulator emulator;
  EXPECT_EQ(emulator.control("explode\n"), EINVAL);
  EXPECT_EQ(emulator.control("halt dsa7\n"), ENOENT);
  EXPECT_EQ(emulator.control("fail 1 dsa0\n"), 0);
  const File file(emulator.path("dev/dsa/wq0.0"));
  EXPECT_FALSE(probe(file.number));
  EXPECT_NE(emulator.status().find("executed 1 batches 0 failed 1"), std::string::npos)
      << emulator.status();
}

TEST_F(Serve, EndsWhileAClientHasAQueueOpen) {
  for (const int number : {SIGTERM, SIGINT}) {
    Emulator emulator;
    const File file(emulator.path("dev/dsa/wq0.0"));
    EXPECT_TRUE(probe(file.number));
    emulator.program().signal(number);
    EXPECT_EQ(emulator.program().end(), 0);
    Record record;
    EXPECT_LT(submit(file.number, {noop(record)}), 0);
    EXPECT_FALSE(std::filesystem::exists(emulator.path("control")));
    std::ifstream mounts("/proc/self/mounts");
    for (std::string line; std::getline(mounts, line);) {
      EXPECT_EQ(line.find(emulator.path("")), std::string::npos) << line;
    }
  }
}

// A program that keeps copies in flight and checks each: what the driver's users do. Counts in
// `done` how many ended well; 0: `goal` of them, else what went wrong.
class Copier {
 public:
  static constexpr std::size_t kSlots = 32;
  static constexpr std::size_t kMost = 3000;

  Copier(std::string path, std::uint64_t seed, std::atomic<std::uint64_t>& done)
      : path_(std::move(path)), random_(seed), done_(done), slots_(kSlots) {
    for (Slot& slot : slots_) {
      slot.from.resize(kMost);
      slot.to.resize(kMost);
    }
  }

  int run(std::uint64_t goal) {
    const File file(path_);
    if (file.number < 0) return 10;
    while (done_ < goal) {
      if (!feed(file.number)) return 11;
      if (!collect()) return 12;
    }
    return 0;
  }

 private:
  struct Slot {
    bool busy = false;
    Record record;
    std::vector<std::byte> from;
    std::vector<std::byte> to;
    std::size_t size = 0;
  };

  Descriptor prepare(Slot& slot) {
    slot.size = 1 + random_.below(kMost);
    slot.record = {};
    std::fill_n(slot.from.begin(), slot.size, static_cast<std::byte>(random_()));
    std::memcpy(slot.from.data(), &random_, std::min(slot.size, sizeof(random_)));
    std::ranges::fill(slot.to, std::byte{0});
    Descriptor descriptor = copy(slot.from, slot.to, slot.record);
    descriptor.size = static_cast<std::uint32_t>(slot.size);
    return descriptor;
  }

  // Submits for all free slots; as many as are accepted are busy then.
  bool feed(int file) {
    std::vector<Descriptor> descriptors;
    std::vector<Slot*> free;
    for (Slot& slot : slots_) {
      if (slot.busy) continue;
      descriptors.push_back(prepare(slot));
      free.push_back(&slot);
    }
    if (free.empty()) return true;
    const ssize_t taken = submit(file, descriptors);
    if (taken == -EAGAIN) return true;
    if (taken < 0) return false;
    for (ssize_t i = 0; i < taken / kOne; ++i) free[static_cast<std::size_t>(i)]->busy = true;
    return true;
  }

  bool collect() {
    bool idle = true;
    for (Slot& slot : slots_) {
      const std::uint8_t status = slot.busy ? status_of(slot.record) : 0;
      if (status == 0) continue;
      idle = false;
      const bool same =
          std::equal(slot.from.begin(), slot.from.begin() + static_cast<std::ptrdiff_t>(slot.size),
                     slot.to.begin());
      const bool more = slot.size < kMost && slot.to[slot.size] != std::byte{0};
      if (status != 1 || !same || more) return false;
      slot.busy = false;
      ++done_;
    }
    if (idle) std::this_thread::yield();
    return true;
  }

  const std::string path_;
  Random random_;
  std::atomic<std::uint64_t>& done_;
  std::vector<Slot> slots_;
};

// Two processes copy at once, and one of them is killed. The queue is smaller than what both want
// to have in flight.
TEST_F(Serve, AClientThatIsKilledHarmsNobody) {
  constexpr std::uint64_t kOfVictim = 8'000;
  constexpr std::uint64_t kOfSurvivor = 20'000;
  Emulator emulator({"--rates", "--queue", "shared:48"});
  const std::string path = emulator.path("dev/dsa/wq0.0");
  auto* counts = static_cast<std::atomic<std::uint64_t>*>(
      mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(counts, MAP_FAILED);
  const pid_t victim = in_child([&] { return Copier(path, 1, counts[0]).run(~std::uint64_t{0}); });
  const pid_t survivor = in_child([&] { return Copier(path, 2, counts[1]).run(kOfSurvivor); });
  EXPECT_TRUE(test::eventually([&] { return counts[0] >= kOfVictim; })) << counts[0];
  EXPECT_LT(counts[1], kOfSurvivor) << "it ended too early";
  kill(victim, SIGKILL);
  EXPECT_EQ(wait_for(victim), 128 + SIGKILL);
  EXPECT_EQ(wait_for(survivor), 0) << counts[1] << " copies";
  EXPECT_GE(counts[1], kOfSurvivor);
  // Nothing of either is left.
  EXPECT_TRUE(test::eventually([&] { return emulator.attribute("dsa0/wq0.0/clients") == "0"; }));
  EXPECT_TRUE(test::eventually([&] { return emulator.attribute("dsa0/wq0.0/occupancy") == "0"; }));
  {
    const File file(path);
    EXPECT_TRUE(probe(file.number));
  }
  emulator.program().signal(SIGTERM);
  EXPECT_EQ(emulator.program().end(), 0);
  munmap(counts, 4096);
}

// Each with copies in flight, some of them with two files open.
TEST_F(Serve, OfKilledClientsNothingIsKept) {
  Emulator emulator({"--rates", "--queue", "shared:64", "--queue", "dedicated:64"});
  const auto files = [&] {
    const std::filesystem::directory_iterator all(
        fmt::format("/proc/{}/fd", emulator.program().pid()));
    return std::distance(begin(all), end(all));
  };
  const auto before = files();
  for (int i = 0; i < 30; ++i) {
    const pid_t client = in_child([&] {
      const std::vector<std::byte> from(1 << 20, std::byte{3});
      std::vector<std::byte> to(from.size());
      Record record;
      const File shared(emulator.path("dev/dsa/wq0.0"));
      const File dedicated(emulator.path("dev/dsa/wq0.1"));
      submit(shared.number, std::vector<Descriptor>(16, copy(from, to, record)));
      submit(dedicated.number, std::vector<Descriptor>(16, copy(from, to, record)));
      return raise(SIGKILL);
    });
    EXPECT_EQ(wait_for(client), 128 + SIGKILL);
  }
  EXPECT_TRUE(test::eventually([&] {
    return emulator.attribute("dsa0/wq0.0/clients") == "0" &&
           emulator.attribute("dsa0/wq0.1/clients") == "0";
  }));
  EXPECT_TRUE(test::eventually([&] { return files() == before; })) << files() << " " << before;
  const File file(emulator.path("dev/dsa/wq0.1"));
  EXPECT_TRUE(probe(file.number));
}

}  // namespace
}  // namespace headrace::emulator
