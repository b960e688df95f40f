// SPDX-License-Identifier: Apache-2.0
// What tests of the whole program share: starting it on a directory of its own, and ending it so
// that nothing stays mounted, whatever the test did. Every wait has a bound.
#pragma once

#include <fcntl.h>
#include <fmt/core.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace headrace::emulator::test {

inline constexpr std::chrono::seconds kPatience{60};

// Why the program cannot serve here; nothing: it can.
inline std::optional<std::string> obstacle() {
#ifndef HEADRACE_DSA_SIM
  return "built without fuse3: headrace-dsa-sim was not tested";
#else
  if (geteuid() != 0) return "not root: headrace-dsa-sim was not tested";
  if (access("/dev/fuse", R_OK | W_OK) != 0) return "no /dev/fuse: headrace-dsa-sim was not tested";
  return std::nullopt;
#endif
}

inline std::string program() {
#ifdef HEADRACE_DSA_SIM
  return HEADRACE_DSA_SIM;
#else
  return "";
#endif
}

// True as soon as `done` is, false after kPatience.
inline bool eventually(const std::function<bool()>& done) {
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (!done()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds{2});
  }
  return true;
}

// The exit status of a child, 128 + N for signal N; nothing: it did not end, and was killed.
inline std::optional<int> wait_for(pid_t pid) {
  int status = 0;
  if (!eventually([&] { return waitpid(pid, &status, WNOHANG) == pid; })) {
    kill(pid, SIGKILL);
    waitpid(pid, &status, 0);
    return std::nullopt;
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// `body` in a child; its result is the child's exit status. Killed after kPatience.
inline pid_t in_child(const std::function<int()>& body) {
  const pid_t pid = fork();
  if (pid != 0) return pid;
  alarm(static_cast<unsigned>(kPatience.count()));
  _exit(body());
}

// A run of the program.
class Program {
 public:
  explicit Program(const std::vector<std::string>& arguments) {
    EXPECT_EQ(pipe2(out_.data(), O_CLOEXEC), 0);
    pid_ = fork();
    if (pid_ != 0) {
      close(out_[1]);
      return;
    }
    prctl(PR_SET_PDEATHSIG, SIGTERM);  // it unmounts even if the test crashes
    dup2(out_[1], 1);
    dup2(out_[1], 2);
    std::vector<std::string> words = {"headrace-dsa-sim"};
    words.insert(words.end(), arguments.begin(), arguments.end());
    std::vector<char*> pointers;
    for (std::string& word : words) pointers.push_back(word.data());
    pointers.push_back(nullptr);
    execv(program().c_str(), pointers.data());
    _exit(127);
  }
  ~Program() {
    if (pid_ != 0) kill(pid_, SIGKILL);
    end();
    close(out_[0]);
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  pid_t pid() const { return pid_; }
  void signal(int number) const { kill(pid_, number); }
  // Its exit status.
  std::optional<int> end() {
    if (pid_ == 0) return std::nullopt;
    const pid_t pid = std::exchange(pid_, 0);
    return wait_for(pid);
  }
  // Returns the next line that the program printed.
  std::string line() {
    std::string text;
    pollfd waits{.fd = out_[0], .events = POLLIN, .revents = 0};
    char byte = 0;
    while (poll(&waits, 1, 1000 * static_cast<int>(kPatience.count())) == 1 &&
           read(out_[0], &byte, 1) == 1 && byte != '\n') {
      text += byte;
    }
    return text;
  }

 private:
  std::array<int, 2> out_{};
  pid_t pid_ = 0;
};

// A directory that is gone, with what is mounted on it, at the end.
class Directory {
 public:
  Directory() {
    std::string pattern = std::filesystem::temp_directory_path() / "headrace-dsa-sim-XXXXXX";
    EXPECT_NE(mkdtemp(pattern.data()), nullptr);
    path_ = pattern;
  }
  ~Directory() {
    umount2(path_.c_str(), MNT_DETACH);
    rmdir(path_.c_str());
  }
  Directory(const Directory&) = delete;
  Directory& operator=(const Directory&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// The program, serving.
class Emulator {
 public:
  explicit Emulator(std::vector<std::string> options = {})
      : program_(with(std::move(options), directory_.path())), said_(program_.line()) {
    EXPECT_TRUE(said_.starts_with("serving ")) << said_;
  }

  Program& program() { return program_; }
  const std::string& said() const { return said_; }
  std::string path(const std::string& below) const {
    return fmt::format("{}/{}", directory_.path(), below);
  }
  std::string sysfs(const std::string& below) const {
    return path(fmt::format("sys/bus/dsa/devices/{}", below));
  }
  // A file of sysfs, without the end of its line.
  std::string attribute(const std::string& below) const {
    std::ifstream file(sysfs(below));
    std::string line;
    std::getline(file, line);
    return line;
  }
  // status() reads the file `control`; control() writes to it and returns 0 or an errno value.
  std::string status() const {
    std::ifstream file(path("control"));
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
  }
  int control(const std::string& command) const {
    const int file = open(path("control").c_str(), O_WRONLY | O_TRUNC);
    if (file < 0) return errno;
    const ssize_t written = write(file, command.data(), command.size());
    const int error = written < 0 ? errno : 0;
    close(file);
    return error;
  }

 private:
  static std::vector<std::string> with(std::vector<std::string> options, std::string path) {
    options.push_back(std::move(path));
    return options;
  }

  Directory directory_;  // unmounted after the program ended
  Program program_;
  std::string said_;
};

}  // namespace headrace::emulator::test
