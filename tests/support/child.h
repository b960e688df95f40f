// SPDX-License-Identifier: Apache-2.0
// Tests of a child of fork(), and what it may do with its parent's objects.
#pragma once

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>

namespace headrace::test {

// The exit status of a child that runs `body`; 0: `body` returned true. A signal ends a child that
// hangs. The child ends without destructors of statics and without a leak check.
template <class Body>
int status_of_child(Body body) {
  constexpr unsigned kSeconds = 30;
  const pid_t child = fork();
  if (child < 0) {
    std::perror("fork");
    return -1;
  }
  if (child == 0) {
    alarm(kSeconds);
    _exit(body() ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  return status;
}

// Whether a child was killed that still had the result of `make`.
template <class Make>
bool is_killed_with(Make make) {
  const pid_t child = fork();
  if (child == 0) {
    [[maybe_unused]] const auto made = make();
    kill(getpid(), SIGKILL);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFSIGNALED(status);
}

// A child that sleeps until it is killed, at the latest at the end of the scope.
class SleepingChild {
 public:
  SleepingChild() : pid_(fork()) {
    if (pid_ != 0) return;
    for (;;) pause();
  }
  ~SleepingChild() { end(); }
  SleepingChild(const SleepingChild&) = delete;
  SleepingChild& operator=(const SleepingChild&) = delete;
  pid_t pid() const { return pid_; }
  void end() {
    if (ended_) return;
    ended_ = true;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }

 private:
  const pid_t pid_;
  bool ended_ = false;
};

}  // namespace headrace::test
