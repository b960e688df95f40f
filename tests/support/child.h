// SPDX-License-Identifier: Apache-2.0
// Tests of a child of fork(), and what it may do with its parent's objects.
#pragma once

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

}  // namespace headrace::test
