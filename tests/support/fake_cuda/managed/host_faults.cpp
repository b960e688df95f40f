// SPDX-License-Identifier: Apache-2.0
// The host's touches of managed memory, seen as faults: the page is brought back and the touch is
// repeated. All other faults go to the previous handler.
#include <signal.h>
#include <ucontext.h>

#include <cerrno>
#include <mutex>

#include "support/fake_cuda/driver.h"
#include "support/fake_cuda/managed/managed.h"

namespace headrace::cuda::fake {
namespace {

struct sigaction previous;

bool is_write([[maybe_unused]] const void* context) {
#if defined(__x86_64__)
  return (static_cast<const ucontext_t*>(context)->uc_mcontext.gregs[REG_ERR] & 2) != 0;
#else
  return true;
#endif
}

void pass_on(int signal, siginfo_t* info, void* context) {
  if ((previous.sa_flags & SA_SIGINFO) != 0) {
    previous.sa_sigaction(signal, info, context);
  } else if (previous.sa_handler != SIG_DFL && previous.sa_handler != SIG_IGN) {
    previous.sa_handler(signal);
  } else {
    sigaction(signal, &previous, nullptr);  // the repeated touch ends the process
  }
}

void on_fault(int signal, siginfo_t* info, void* context) {
  const auto address = as_address(info->si_addr);
  const auto range = info->si_code == SEGV_ACCERR ? driver().memory.find(address) : nullptr;
  if (range == nullptr || range->kind != Kind::managed) {
    pass_on(signal, info, context);
    return;
  }
  const int error = errno;
  range->pages->host_access(address - range->address, is_write(context));
  errno = error;
}

}  // namespace

void watch_host() {
  static std::once_flag once;
  std::call_once(once, [] {
    struct sigaction action = {};
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK;
    sigemptyset(&action.sa_mask);
    sigaction(SIGSEGV, &action, &previous);
  });
}

}  // namespace headrace::cuda::fake
