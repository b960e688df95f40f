// SPDX-License-Identifier: Apache-2.0
// A block device over a file of a test. It has a problem() without root or loop devices.
#pragma once

#include <fcntl.h>
#include <fmt/core.h>
#include <linux/loop.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <string>
#include <system_error>

namespace headrace::test {

// The kernel releases the device when nobody has it open any more, also after a kill. The file must
// have whole logical blocks, of `block` bytes each. The device is read-only with O_RDONLY.
class LoopDevice {
 public:
  LoopDevice(const std::filesystem::path& path, std::uint32_t block, int access = O_RDWR)
      : access_(access) {
    const int control = ::open("/dev/loop-control", O_RDWR | O_CLOEXEC);
    const int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
    if (control < 0 || file < 0) problem_ = "needs root and loop devices: " + last_error();
    // Another process may take the number that the kernel gave.
    for (int i = 0; i < 10 && fd_ < 0 && control >= 0 && file >= 0; ++i) {
      configure(ioctl(control, LOOP_CTL_GET_FREE), file, block);
    }
    if (control >= 0) close(control);
    if (file >= 0) close(file);
  }
  ~LoopDevice() {
    if (fd_ >= 0) close(fd_);
  }
  LoopDevice(const LoopDevice&) = delete;
  LoopDevice& operator=(const LoopDevice&) = delete;

  // Empty if there is a device.
  const std::string& problem() const { return problem_; }
  const std::filesystem::path& path() const { return path_; }
  // After the file has grown or shrunk.
  bool take_size() const { return ioctl(fd_, LOOP_SET_CAPACITY, 0) == 0; }

 private:
  static std::string last_error() { return std::generic_category().message(errno); }

  void configure(int number, int file, std::uint32_t block) {
    path_ = fmt::format("/dev/loop{}", number);
    fd_ = number < 0 ? -1 : ::open(path_.c_str(), access_ | O_CLOEXEC);
    loop_config config{};
    config.fd = static_cast<std::uint32_t>(file);
    config.block_size = block;
    config.info.lo_flags = LO_FLAGS_AUTOCLEAR;
    if (fd_ >= 0 && ioctl(fd_, LOOP_CONFIGURE, &config) == 0) return problem_.clear();
    problem_ = "no free loop device: " + last_error();
    if (fd_ >= 0) close(fd_);
    fd_ = -1;
  }

  const int access_;
  int fd_ = -1;
  std::filesystem::path path_;
  std::string problem_;
};

}  // namespace headrace::test
