// SPDX-License-Identifier: Apache-2.0
#include "tests/explore/report.h"

#include <fmt/core.h>
#include <link.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <set>
#include <string_view>
#include <vector>

#include "tests/explore/schedule.h"

namespace headrace::explore {
namespace {

std::string& replay() {
  static std::string& command = *new std::string;
  return command;
}

std::uintptr_t load_address() {
  std::uintptr_t base = 0;
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* to) {
        *static_cast<std::uintptr_t*>(to) = info->dlpi_addr;
        return 1;  // the program itself is first
      },
      &base);
  return base;
}

// "src/cache/structures/hits.cpp:89 headrace::Hits::pin" of each address: the innermost function of
// the project, since std::atomic is inlined into it.
class Places {
 public:
  void ask(const void* at) {
    if (at != nullptr) wanted_.insert(at);
  }
  void find() {
    const std::uintptr_t base = load_address();
    std::string command = fmt::format("addr2line -a -i -f -C -e /proc/{}/exe", getpid());
    for (const void* at : wanted_) {
      command += fmt::format(" {:#x}", reinterpret_cast<std::uintptr_t>(at) - base - 1);
    }
    command += " 2>/dev/null";
    std::FILE* const pipe = popen(command.c_str(), "r");
    if (pipe == nullptr) return;
    std::array<char, 4096> line{};
    std::string function;
    bool in_function = false;
    const void* now = nullptr;
    auto next = wanted_.begin();
    while (std::fgets(line.data(), line.size(), pipe) != nullptr) {
      std::string_view text(line.data());
      if (text.ends_with('\n')) text.remove_suffix(1);
      if (text.starts_with("0x")) {
        if (next == wanted_.end()) break;
        now = *next++;
        in_function = true;
      } else if (in_function) {
        function = text.substr(0, text.find('('));
        in_function = false;
      } else {
        in_function = true;
        add(now, text, function);
      }
    }
    pclose(pipe);
  }
  std::string of(const void* at) const {
    const auto found = names_.find(at);
    return found == names_.end() ? fmt::format("{}", at) : found->second;
  }

 private:
  void add(const void* at, std::string_view place, const std::string& function) {
    if (names_.contains(at) || place.starts_with('?') || place.starts_with("/usr/")) return;
    place = place.substr(0, place.find(" (discriminator"));
    for (const std::string_view folder : {"/src/", "/tests/", "/include/"}) {
      const auto begin = place.rfind(folder);
      if (begin == std::string_view::npos) continue;
      place.remove_prefix(begin + 1);
      if (place.ends_with("/core/mutex.h") || place.substr(0, place.find(':')).ends_with("mutex.h"))
        return;  // who locks it is of interest
      names_.emplace(at, fmt::format("{} {}", place, function));
      return;
    }
  }

  std::set<const void*> wanted_;
  std::map<const void*, std::string> names_;
};

std::string_view state_of(const Thread& thread) {
  if (thread.ended) return "ended";
  if (thread.turns->state != sim::Thread::State::waiting) return "can run";
  switch (thread.sleeps_in) {
    case Op::lock: return "waits for a lock";
    case Op::join: return "waits for the end of a thread";
    case Op::sleep: return "sleeps for a time";
    default: return "waits to be woken";
  }
}

void on_signal(int number) {
  std::signal(number, SIG_DFL);
  Schedule* const schedule = Schedule::running();
  if (schedule == nullptr) {
    std::raise(number);
    return;
  }
  schedule->fail(fmt::format("signal {} ({})", number, sigdescr_np(number)));
}

}  // namespace

void set_replay(std::string command) { replay() = std::move(command); }

void watch_signals() {
  for (const int number : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL}) {
    std::signal(number, on_signal);
  }
}

void report(const Schedule& schedule, const std::string& why) {
  constexpr std::size_t kLast = 150;
  const auto& steps = schedule.steps();
  const char* const wanted = std::getenv("HEADRACE_EXPLORE_STEPS");
  const std::size_t last =
      std::min(steps.size(), wanted == nullptr ? kLast : std::strtoul(wanted, nullptr, 10));
  Places places;
  for (std::size_t i = steps.size() - last; i < steps.size(); ++i) places.ask(steps[i].at);
  for (const Thread* thread : schedule.threads()) {
    places.ask(thread->at);
    for (std::size_t i = 0; i < std::min(thread->depth, thread->calls.size()); ++i) {
      places.ask(thread->calls[i]);
    }
  }
  places.find();
  fmt::print(stderr, "\nFAILED: {}\nafter {} operations; the last {} (thread, operation, place):\n",
             why, steps.size(), last);
  std::map<const volatile void*, std::size_t> objects;
  for (std::size_t i = steps.size() - last; i < steps.size(); ++i) {
    const Step& step = steps[i];
    std::string object;
    if (step.object != nullptr) {
      object = fmt::format("@{}", objects.emplace(step.object, objects.size()).first->second);
    }
    fmt::print(stderr, "{:6} t{} {:11} {:5} {}\n", i, step.thread, to_string(step.op), object,
               step.at == nullptr ? "" : places.of(step.at));
  }
  for (const Thread* thread : schedule.threads()) {
    fmt::print(stderr, "thread {} {}{}\n", thread->number, state_of(*thread),
               thread->stores.empty() ? "" : ", with buffered stores");
    if (thread->ended) continue;
    if (thread->at != nullptr) fmt::print(stderr, "    {}\n", places.of(thread->at));
    for (std::size_t i = std::min(thread->depth, thread->calls.size()); i-- > 0;) {
      const std::string place = places.of(thread->calls[i]);
      if (!place.starts_with("0x")) fmt::print(stderr, "    {}\n", place);
    }
  }
  fmt::print(stderr, "FAILED: {}\nRepeat it with: {}\n", why, replay());
}

}  // namespace headrace::explore
