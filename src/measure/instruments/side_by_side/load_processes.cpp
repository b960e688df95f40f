// SPDX-License-Identifier: Apache-2.0
#include "measure/instruments/side_by_side/load_processes.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <linux/futex.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <fstream>
#include <new>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "core/affinity.h"
#include "core/check.h"
#include "core/fail.h"
#include "core/waiting/patience.h"
#include "headrace/clock.h"
#include "headrace/copy.h"
#include "measure/instruments/buffer_pool.h"
#include "measure/instruments/cpu_share.h"
#include "measure/instruments/worker_pool.h"
#include "memory/memory.h"

namespace headrace::instruments {
namespace {

// Commands to a child, in the low bits of a word whose other bits number the commands.
constexpr std::uint32_t kHold = 0, kWait = 1, kWork = 2;
constexpr std::uint32_t kOrder = 4;
std::uint32_t what(std::uint32_t word) { return word % kOrder; }

constexpr Nanoseconds kLongestAnswer = std::chrono::seconds{30};
// The slowest memory known to be touched.
constexpr double kLeastTouchedPerSecond = 100e6;
constexpr Nanoseconds kLongestGap = std::chrono::seconds{2};
constexpr Nanoseconds kBetweenLooks = std::chrono::milliseconds{50};
constexpr Nanoseconds kBetweenSteps = std::chrono::milliseconds{5};
constexpr std::size_t kPage = 4096;
constexpr std::size_t kLookedAt = 256;  // pages checked per buffer

// Shared by parent and child. On separate lines, since a shared line would itself be traffic.
struct alignas(128) Shared {
  std::atomic<std::uint32_t> command{kHold};
  std::atomic<std::uint32_t> answered{0};  // the last wait command that it obeyed
  alignas(64) std::atomic<double> units{0};
  double cpu_share = 1;  // written by the child before it answers
  int refused = 0;       // errno of move_pages
  int elsewhere = -1;    // a wrong node with pages of its memory
  bool swapped = false;  // pages of its memory are in swap
};

// Not those of core/waiting, whose words belong to one process.
void futex_wait(std::atomic<std::uint32_t>& word, std::uint32_t seen, Nanoseconds most) {
  const timespec time{.tv_sec = most.count() / 1'000'000'000,
                      .tv_nsec = most.count() % 1'000'000'000};
  ::syscall(SYS_futex, &word, FUTEX_WAIT, seen, &time, nullptr, 0);
}
void futex_wake(std::atomic<std::uint32_t>& word) {
  ::syscall(SYS_futex, &word, FUTEX_WAKE, 1, nullptr, nullptr, 0);
}

// All code of a child. It must not allocate, lock or call code that does (signal-safety(7)).
class ChildWork {
 public:
  ChildWork(Shared& shared, const LoadProcess& process, pid_t parent)
      : shared_(shared), process_(process), parent_(parent) {}

  [[noreturn]] void run() {
    settle_in();
    std::uint32_t seen = shared_.command.load();
    bool touched = false;
    for (;;) {
      if (what(seen) == kWork) work(seen);
      if (what(seen) == kWait) {
        if (!touched) touch();
        touched = true;
        look();
        shared_.answered.store(seen);
        futex_wake(shared_.answered);
      }
      while (shared_.command.load() == seen) {
        futex_wait(shared_.command, seen, std::chrono::seconds{1});
        if (::getppid() != parent_) ::_exit(0);
      }
      seen = shared_.command.load();
    }
  }

 private:
  void settle_in() const {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent_) ::_exit(0);  // the parent ended before
    for (int signal = 1; signal < NSIG; ++signal) {
      struct sigaction action{};
      // The terminal signals the whole group; the parent ends its children.
      action.sa_handler = signal == SIGINT ? SIG_IGN : SIG_DFL;
      ::sigaction(signal, &action, nullptr);
    }
    sigset_t none;
    ::sigemptyset(&none);
    ::sigprocmask(SIG_SETMASK, &none, nullptr);
    const int file = ::open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    if (file < 0) return;
    [[maybe_unused]] const ssize_t written = ::write(file, "1000", 4);
    ::close(file);
  }

  void touch() const {
    for (const auto& buffer : process_.memory) {
      for (std::size_t at = 0; at < buffer->bytes().size(); at += kPage) {
        *static_cast<volatile std::byte*>(buffer->bytes().data() + at) = std::byte{1};
      }
    }
  }

  // Checks by evenly spread pages that the memory is on its nodes.
  void look() const {
    for (const auto& buffer : process_.memory) {
      std::array<void*, kLookedAt> pages{};
      std::array<int, kLookedAt> nodes{};
      const std::size_t all = buffer->bytes().size() / kPage;
      const std::size_t count = std::min(all, kLookedAt);
      for (std::size_t i = 0; i < count; ++i) {
        pages[i] = buffer->bytes().data() + all * i / count * kPage;
      }
      const std::int64_t asked = headrace::move_pages({pages.data(), count}, nullptr, nodes.data());
      if (asked < 0) shared_.refused = static_cast<int>(-asked);
      for (std::size_t i = 0; asked >= 0 && i < count; ++i) {
        if (nodes[i] < 0) shared_.swapped = true;
        if (nodes[i] >= 0 && nodes[i] != static_cast<int>(raw(buffer->node()))) {
          shared_.elsewhere = nodes[i];
        }
      }
    }
  }

  void work(std::uint32_t order) const {
    const CpuShare share;
    double units = 0;
    while (shared_.command.load() == order) {
      if (const auto step = process_.load->step()) units += *step;
      shared_.units.store(units);
    }
    shared_.cpu_share = share.now();
  }

  Shared& shared_;
  const LoadProcess& process_;
  const pid_t parent_;
};

// Blocks all signals in a scope: none may reach a handler of the parent in a child.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_{};
};

// Does nothing, in a thread that only keeps the time.
class Watching final : public Load {
 public:
  Result<double> step() override {
    std::this_thread::sleep_for(kBetweenSteps);
    return 1;
  }
};

// As side_by_side, without a load in this process.
Result<SideBySide> watch(const std::vector<Counted>& counted, Nanoseconds time) {
  Watching idle;
  HEADRACE_TRY(SideBySide seen, side_by_side({usable_cpus().front()}, {&idle}, time, counted));
  seen.rates.erase(seen.rates.begin());
  return SideBySide{.rates = std::move(seen.rates)};
}

}  // namespace

class LoadProcesses::Child {
 public:
  Child(LoadProcess process, Shared* shared) : process_(std::move(process)), shared_(shared) {}
  ~Child() {
    kill();
    AttendedTime waited(system_clock(), kLongestGap);
    while (!is_gone() && waited.now() < kLongestAnswer) {
      std::this_thread::sleep_for(std::chrono::milliseconds{1});
    }
    ::munmap(shared_, sizeof(Shared));
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  static Result<std::unique_ptr<Child>> make(LoadProcess process) {
    void* const page =
        ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) return fail_errno(errno, "cannot map memory for two processes");
    auto child = std::make_unique<Child>(std::move(process), new (page) Shared);
    HEADRACE_TRY_STATUS(child->fork());
    return child;
  }

  Status fork() {
    const pid_t parent = ::getpid();
    {
      const SignalsBlocked blocked;
      id_ = ::fork();
      if (id_ == 0) ChildWork(*shared_, process_, parent).run();
    }
    if (id_ < 0) {
      return fail(ErrorCode::exhausted,
                  "cannot start a process ({}); measure with fewer or raise the limit on processes "
                  "(ulimit -u)",
                  std::generic_category().message(errno));
    }
    if (pin_process(id_, {&process_.cpu, 1})) return {};
    return fail(ErrorCode::denied,
                "cannot run a process on CPU {}; is it offline, outside the cpuset, or does the "
                "container forbid sched_setaffinity?",
                process_.cpu);
  }

  // Once the child was collected, its number may belong to another process.
  void kill() {
    if (!is_gone()) ::kill(id_, SIGKILL);
  }

  void order(std::uint32_t kind) {
    if (kind == kWork) shared_->units.store(0);
    shared_->command.store((shared_->command.load() / kOrder + 1) * kOrder + kind);
    futex_wake(shared_->command);
  }

  // Waits until the child waits as commanded, and checks its memory's place.
  Status wait(Nanoseconds longest) {
    const std::uint32_t asked = shared_->command.load();
    AttendedTime waited(system_clock(), kLongestGap);
    for (std::uint32_t seen = shared_->answered.load(); seen != asked;
         seen = shared_->answered.load()) {
      if (is_gone()) return ended();
      if (waited.now() > longest) {
        return fail(ErrorCode::timed_out, "a process did not answer; is the machine busy?");
      }
      futex_wait(shared_->answered, seen, kBetweenLooks);
    }
    return check_memory();
  }

  Status check_there() { return is_gone() ? ended() : Status{}; }

  Nanoseconds longest_touching() const {
    double bytes = 0;
    for (const auto& buffer : process_.memory) bytes += static_cast<double>(buffer->bytes().size());
    return kLongestAnswer +
           Nanoseconds{static_cast<std::int64_t>(bytes / kLeastTouchedPerSecond * 1e9)};
  }

  Counted counted() const { return &shared_->units; }
  double cpu_share() const { return shared_->cpu_share; }
  pid_t id() const { return id_; }
  BufferPool::Memories memory() const {
    BufferPool::Memories all;
    for (const auto& buffer : process_.memory) all.push_back(buffer->bytes());
    return all;
  }

 private:
  // It may have been collected elsewhere, or automatically (SIGCHLD ignored).
  bool is_gone() {
    if (id_ <= 0) return true;
    const pid_t found = ::waitpid(id_, &status_, WNOHANG);
    if (found == id_ || (found < 0 && errno == ECHILD)) id_ = 0;
    return id_ == 0;
  }

  Status ended() const {
    const std::string how = WIFSIGNALED(status_) ? fmt::format("signal {}", WTERMSIG(status_))
                                                 : fmt::format("status {}", WEXITSTATUS(status_));
    return fail(ErrorCode::io, "a process that was to work beside ended ({}); is memory short?",
                how);
  }

  Status check_memory() const {
    const int node =
        process_.memory.empty() ? 0 : static_cast<int>(raw(process_.memory[0]->node()));
    if (shared_->elsewhere >= 0) {
      return fail(ErrorCode::io,
                  "memory of node {} has pages on node {}; is numa_balancing on, or the node full "
                  "or going offline?",
                  node, shared_->elsewhere);
    }
    if (shared_->swapped) {
      return fail(ErrorCode::io, "memory of node {} was swapped out; free some memory", node);
    }
    // On one node it is always in place; containers often forbid the question.
    if (shared_->refused == 0 || read_host_memory().nodes.size() == 1) return {};
    return fail_errno(shared_->refused, "cannot ask where pages are (move_pages)");
  }

  const LoadProcess process_;
  Shared* const shared_;
  pid_t id_ = 0;
  int status_ = 0;
};

Result<std::shared_ptr<Buffer>> untouched(const Machine& machine, NodeId node, Bytes bytes) {
  Placement placement = Placement::on(node);
  placement.pages = PageSize::transparent;
  placement.touch = false;
  placement.reason = "an experiment";
  return allocate_for_cpus(machine, whole_huge_pages(bytes), placement);
}

LoadProcesses::LoadProcesses() = default;
LoadProcesses::~LoadProcesses() {
  for (const auto& child : children_) child->kill();  // then wait for each in turn
}

namespace {

// Makes the choices of the first copy (kernel, time of loads) before a child copies, since a child
// may not allocate.
void find_out_how_to_copy() {
  constexpr std::size_t kBytes = 256 << 10;
  const std::vector<std::byte> from(kBytes);
  std::vector<std::byte> to(kBytes);
  copy_bytes(to.data(), from.data(), kBytes);
  (void)chosen_copy_kernel();
}

}  // namespace

Result<std::unique_ptr<LoadProcesses>> LoadProcesses::start(std::vector<LoadProcess> all) {
  find_out_how_to_copy();
  std::unique_ptr<LoadProcesses> made(new LoadProcesses);
  for (LoadProcess& process : all) {
    HEADRACE_TRY(auto child, Child::make(std::move(process)));
    made->children_.push_back(std::move(child));
  }
  for (const auto& child : made->children_) child->order(kWait);
  for (const auto& child : made->children_) {
    HEADRACE_TRY_STATUS(child->wait(child->longest_touching()));
  }
  return made;
}

Status LoadProcesses::stop(std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) children_[i]->order(kWait);
  Status all;
  for (std::size_t i = 0; i < count; ++i) {
    if (Status one = children_[i]->wait(kLongestAnswer); !one && all) all = std::move(one);
  }
  return all;
}

Result<SideBySide> LoadProcesses::beside(const CpuSet& cpus, const std::vector<Load*>& loads,
                                         Nanoseconds time, std::size_t count) {
  CHECK(count <= children_.size() && loads.size() + count > 0);
  std::vector<Counted> counted;
  for (std::size_t i = 0; i < count; ++i) {
    HEADRACE_TRY_STATUS(children_[i]->check_there());
    counted.push_back(children_[i]->counted());
  }
  for (std::size_t i = 0; i < count; ++i) children_[i]->order(kWork);
  auto seen = loads.empty() ? watch(counted, time) : side_by_side(cpus, loads, time, counted);
  // An ended process says more than a failed start.
  HEADRACE_TRY_STATUS(stop(count));
  for (std::size_t i = 0; seen && i < count; ++i) {
    seen->cpu_share = std::min(seen->cpu_share, children_[i]->cpu_share());
  }
  return seen;
}

double LoadProcesses::huge_part() const {
  double least = 1;
  for (const auto& child : children_) {
    std::ifstream smaps(fmt::format("/proc/{}/smaps", child->id()));
    least = std::min(least, std::ranges::min(BufferPool::huge_parts(child->memory(), smaps)));
  }
  return least;
}

std::vector<pid_t> LoadProcesses::ids() const {
  std::vector<pid_t> all;
  for (const auto& child : children_) all.push_back(child->id());
  return all;
}

}  // namespace headrace::instruments
