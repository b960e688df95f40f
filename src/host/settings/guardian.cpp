// SPDX-License-Identifier: Apache-2.0
#include "host/settings/guardian.h"

#include <fcntl.h>
#include <linux/sched.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <new>
#include <optional>
#include <utility>

#include "core/check.h"
#include "core/fail.h"

namespace headrace {
namespace {

constexpr int kLookMilliseconds = 100;
// Checks are counted, not time: on a machine that sleeps no parent counts as silent.
constexpr int kLooksOfSilence = Guardian::kMostSilence.count() / kLookMilliseconds;
// Number of tries to restore a limit after the parent has ended.
constexpr int kLastTries = 50;

bool is_readable(int descriptor, int milliseconds) {
  pollfd watched{.fd = descriptor, .events = POLLIN, .revents = 0};
  return ::poll(&watched, 1, milliseconds) > 0;
}

// As limit_in(); nullopt: the file cannot be read.
std::optional<std::uint64_t> limit_of(const char* file) {
  const int descriptor = ::open(file, O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return std::nullopt;
  std::array<char, 128> text{};
  const ssize_t got = ::read(descriptor, text.data(), text.size());
  ::close(descriptor);
  if (got <= 0) return std::nullopt;
  return limit_in({text.data(), static_cast<std::size_t>(got)});
}

void put(const char* file, const std::string& value) {
  const int descriptor = ::open(file, O_WRONLY | O_TRUNC | O_CLOEXEC);
  if (descriptor < 0) return;
  (void)!::write(descriptor, value.data(), value.size());
  ::close(descriptor);
}

}  // namespace

// Everything from here to the end of run() executes in the child, a copy of a process that may have
// threads: it allocates nothing and takes no lock.

// True: none of the limits is the parent's any more.
bool Guardian::lift() const {
  bool lifting = false;
  bool all = true;
  for (std::size_t i = limits_.size(); i-- > 0;) {
    const Limit& limit = limits_[i];
    const auto& ours = shared_->ours[i];
    const auto is_ours = [&](std::optional<std::uint64_t> said) {
      return said && *said != limit_in(limit.before) &&
             (*said == ours[0].load() || *said == ours[1].load());
    };
    if (!is_ours(limit_of(limit.file.c_str()))) continue;
    if (!std::exchange(lifting, true)) ++shared_->lifts;
    put(limit.file.c_str(), limit.before);
    all = all && !is_ours(limit_of(limit.file.c_str()));
  }
  if (lifting) ++shared_->lifts;
  return all;
}

void Guardian::run(int state, int parent) const {
  ::setsid();  // signals that stop or end the parent's process group must not reach this process
  ::prctl(PR_SET_NAME, "tier-guardian");
  // Closes all descriptors except these two, so that the parent's locks and pipes end with it.
  // These two may be 0 and 1 already, if the parent closed those.
  state = ::fcntl(state, F_DUPFD, 2);
  parent = ::fcntl(parent, F_DUPFD, 2);
  ::dup2(state, 0);
  ::dup2(parent, 1);
  ::syscall(SYS_close_range, 2U, ~0U, 0U);
  std::uint64_t beats = shared_->beats.load();
  int silent = 0;
  while (!is_readable(1, kLookMilliseconds)) {
    if (shared_->stops) ::_exit(0);
    const std::uint64_t now = shared_->beats.load();
    silent = std::exchange(beats, now) == now ? silent + 1 : 0;
    if (silent >= kLooksOfSilence) lift();
  }
  for (int i = 0; i < kLastTries && !lift(); ++i) ::poll(nullptr, 0, kLookMilliseconds);
  ::_exit(0);
}

Result<std::unique_ptr<Guardian>> Guardian::start(const OwnDescriptor& state,
                                                  std::vector<Limit> limits) {
  CHECK(limits.size() <= kMostLimits);
  void* const page =
      ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return fail_errno(errno, "cannot map memory");
  std::unique_ptr<Guardian> guardian(new Guardian(std::move(limits), new (page) Shared));
  for (std::size_t i = 0; i < guardian->limits_.size(); ++i) {
    for (auto& value : guardian->shared_->ours[i]) value = limit_in(guardian->limits_[i].before);
  }
  std::array<int, 2> pipe{};
  if (::pipe2(pipe.data(), O_CLOEXEC) != 0) return fail_errno(errno, "cannot make a pipe");
  const OwnDescriptor parent(pipe[0]);
  guardian->alive_ = OwnDescriptor(pipe[1]);
  // No handler of the parent's signals runs in the child, and none of its signals ends the child.
  sigset_t all;
  sigset_t before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  // A bare clone, without fork()'s handlers, which close the lock on `state`. The child's end sends
  // no signal and is invisible to the program's waits for any child.
  int self = -1;
  const long child = ::syscall(SYS_clone, CLONE_PIDFD, nullptr, &self, nullptr, nullptr);
  if (child == 0) guardian->run(state.get(), parent.get());
  const int error = errno;
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (child < 0) return fail_errno(error, "cannot start the process that guards a limit");
  guardian->self_ = OwnDescriptor(self);
  guardian->pid_ = static_cast<int>(child);
  return guardian;
}

Guardian::~Guardian() {
  if (!origin_.here()) {
    self_.forget();
    alive_.forget();
  } else if (pid_ > 0) {
    // The signal is refused if the parent has dropped its privileges since.
    shared_->stops = true;
    ::syscall(SYS_pidfd_send_signal, self_.get(), SIGKILL, nullptr, 0);
    reap();
  }
  ::munmap(shared_, sizeof(Shared));
}

void Guardian::take_over() {
  alive_ = OwnDescriptor();
  reap();
  pid_ = -1;
}

void Guardian::reap() {
  const bool has_ended = is_readable(self_.get(), 10 * kLookMilliseconds);
  while (has_ended && ::waitpid(pid_, nullptr, __WALL) < 0 && errno == EINTR) {
  }
}

void Guardian::expect(std::size_t limit, std::uint64_t value) {
  auto& ours = shared_->ours[limit];
  if (ours[1].load() == value) return;
  ours[0] = ours[1].load();
  ours[1] = value;
}

void Guardian::beat() { ++shared_->beats; }

bool Guardian::has_lifted() {
  const std::uint64_t lifts = shared_->lifts.load();
  return std::exchange(seen_, lifts) != lifts || lifts % 2 != 0;
}

bool Guardian::is_lifting() const { return shared_->lifts.load() % 2 != 0; }

bool Guardian::ended() const { return is_readable(self_.get(), 0); }

}  // namespace headrace
