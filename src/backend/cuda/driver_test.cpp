// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/driver.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "tests/support/child.h"
#include "tests/support/fake_cuda/fake_library.h"

namespace headrace::cuda {
namespace {

TEST(CudaDriver, IsFoundByItsName) {
  const FakeCudaLibrary library;
  const auto found = driver();
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_EQ((*found)->library, library.path());
  EXPECT_EQ((*found)->version, 13000);
  EXPECT_NE((*found)->cuMemcpyBatchAsync_v2, nullptr);
  EXPECT_EQ(*driver(), *found) << "opened once";
}

TEST(CudaDriver, DoesWithoutWhatIsOptional) {
  const FakeCudaLibrary library("", "12.2");
  const auto found = driver();
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_EQ((*found)->cuMemcpyBatchAsync, nullptr);
  EXPECT_EQ((*found)->cuMemcpyBatchAsync_v2, nullptr);
}

TEST(CudaDriver, SaysWhatAnOldOneLacks) {
  const auto found = load_driver("libm.so.6");
  ASSERT_FALSE(found);
  EXPECT_EQ(found.error().code, ErrorCode::unsupported);
  EXPECT_EQ(found.error().message,
            "the driver lacks cuInit (libm.so.6, CUDA 0.0); install one for CUDA 12.2 or newer");
}

TEST(CudaDriver, SaysWhyThereIsNone) {
  const ScopedVariable named("HEADRACE_LIBCUDA", "/nowhere/libcuda.so");
  const auto missing = driver();
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, ErrorCode::absent);
  const std::string why = load_driver("libno-such-driver.so").error().message;
  EXPECT_NE(why.find("cannot open shared object"), std::string::npos);
  EXPECT_EQ(why.find("libno-such-driver.so"), why.rfind("libno-such-driver.so")) << why;
  const ScopedVariable unwanted("HEADRACE_LIBCUDA", "");
  const auto none = driver();
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().message, "HEADRACE_LIBCUDA is empty, so no CUDA driver is used; unset it");
}

// A container without the driver's library and without the GPUs of its host.
TEST(CudaDriver, SaysThatAContainerHasNoDeviceFiles) {
  namespace files = std::filesystem;
  const files::path root = testing::TempDir() + "headrace-root-" + std::to_string(getpid());
  files::create_directories(root / "proc/driver/nvidia");
  files::create_directories(root / "dev");
  std::ofstream(root / "proc/driver/nvidia/version") << "NVRM version\n";
  const auto shut_out = load_driver("libno-such-driver.so.1", root);
  std::ofstream(root / "dev/nvidiactl") << "";
  const auto without = load_driver("libno-such-driver.so.1", root);
  files::remove_all(root);
  ASSERT_FALSE(shut_out || without);
  EXPECT_EQ(shut_out.error().code, ErrorCode::absent);
  EXPECT_NE(shut_out.error().message.find("no /dev/nvidia*: pass the devices through"),
            std::string::npos)
      << shut_out.error().message;
  EXPECT_EQ(without.error().message.find("pass the devices"), std::string::npos)
      << without.error().message;
}

TEST(CudaDriver, OpensNoPipe) {
  const std::string pipe = testing::TempDir() + "headrace-" + std::to_string(getpid()) + ".so";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  const auto none = load_driver(pipe);  // a normal open would wait for a writer
  ::unlink(pipe.c_str());
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, ErrorCode::absent);
  EXPECT_NE(none.error().message.find(pipe + ": no regular file); correct it"), std::string::npos)
      << none.error().message;
}

TEST(CudaDriver, SaysThatNoGpuIsVisible) {
  const FakeCudaLibrary library("devices=0");
  const ScopedVariable hidden("CUDA_VISIBLE_DEVICES", "-1");
  const auto none = driver();
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, ErrorCode::absent);
  EXPECT_TRUE(none.error().message.starts_with("no GPU is visible: ")) << none.error().message;
}

TEST(CudaDriver, ServesNoChild) {
  const FakeCudaLibrary library;
  ASSERT_TRUE(driver());
  EXPECT_EQ(test::status_of_child([] {
              const auto refused = driver();
              return !refused && refused.error().code == ErrorCode::unsupported;
            }),
            0);
}

TEST(CudaDriver, ServesNoChildOfAProcessWhereOthersUseIt) {
  const FakeCudaLibrary library;
  const auto loaded = load_driver(library.path());
  ASSERT_TRUE(loaded);
  ASSERT_EQ(loaded->cuInit(0), CUDA_SUCCESS);
  EXPECT_EQ(test::status_of_child([] {
              const auto refused = driver();
              return !refused && refused.error().code == ErrorCode::unsupported &&
                     refused.error().message.find("fork()") != std::string::npos;
            }),
            0);
}

// A child that was forked during the search crashed now and then in its own search, because the
// loader's cache was just being unmapped. The test opens one library, slowly, since ThreadSanitizer
// keeps 1.6 MiB for each dlopen().
TEST(CudaDriver, IsLookedForInAChildForkedWhileAThreadOpensOne) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const ScopedVariable told("HEADRACE_FAKE_CUDA_OPENED", std::to_string(ends[1]));
  std::atomic<bool> forked = false;  // ThreadSanitizer warns in a child of threads to be joined
  std::jthread opening([&] {
    EXPECT_TRUE(load_driver(HEADRACE_FAKE_CUDA_STEM ".so"));
    forked.wait(false);
  });
  char what = 0;
  EXPECT_EQ(::read(ends[0], &what, 1), 1);
  EXPECT_EQ(what, 'b');
  EXPECT_EQ(test::status_of_child([&] {
              pollfd over{ends[0], POLLIN, 0};
              return ::poll(&over, 1, 0) == 1 && !load_driver("libno-such-driver.so.1");
            }),
            0);
  forked = true;
  forked.notify_all();
  opening.join();
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST(CudaDriver, ResultsAreNamed) {
  const FakeCudaLibrary library;
  const Driver& used = **driver();
  const Error failed = fail_cuda(used, CUDA_ERROR_OUT_OF_MEMORY, "cannot copy").error();
  EXPECT_EQ(failed.code, ErrorCode::exhausted);
  EXPECT_TRUE(failed.message.starts_with("cannot copy: CUDA_ERROR_OUT_OF_MEMORY ("))
      << failed.message;
  EXPECT_EQ(fail_cuda(used, static_cast<CUresult>(12345), "x").error().code, ErrorCode::io);
  EXPECT_EQ(version_text(12080), "12.8");
}

}  // namespace
}  // namespace headrace::cuda
