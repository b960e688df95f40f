// SPDX-License-Identifier: Apache-2.0
#include "borrowed.h"

#include <sched.h>

#include <atomic>
#include <chrono>
#include <utility>

#include "interpreter.h"

#if PY_VERSION_HEX < 0x030C0000
extern "C" int _PyEval_AddPendingCall(PyInterpreterState*, int (*)(void*), void*);
#endif

namespace headrace::python {

namespace {

// Py_AddPendingCall() for threads without the GIL. Before Python 3.12 it finds the interpreter
// through the state of the thread that has the GIL, which that thread may free meanwhile.
int add_pending_call(int (*call)(void*)) {
#if PY_VERSION_HEX < 0x030C0000
  return _PyEval_AddPendingCall(PyInterpreterState_Main(), call, nullptr);
#else
  return Py_AddPendingCall(call, nullptr);
#endif
}

// Views left to the interpreter, the last one first.
constinit std::atomic<HeldView*> waiting{nullptr};
// Threads that are telling the interpreter so.
constinit std::atomic<int> telling{0};
constinit std::atomic<bool> ended{false};
constinit thread_local bool no_python = false;

// How long the interpreter's end is held up by threads that are telling it something, which takes
// them microseconds.
constexpr std::chrono::seconds kTelling{1};

void tell_interpreter() {
  telling.fetch_add(1);
  // Refused when too much is pending: then the next release_borrowed() takes it too.
  if (!ended.load()) {
    (void)add_pending_call([](void*) {
      release_borrowed();
      return 0;
    });
  }
  telling.fetch_sub(1);
}

void leave(HeldView* view) {
  HeldView* top = waiting.load();
  do {
    view->next = top;
  } while (!waiting.compare_exchange_weak(top, view));
  tell_interpreter();
}

}  // namespace

Borrowed::~Borrowed() {
  if (!no_python && holds_gil()) {
    release_buffer(held->view);
    return;
  }
  leave(held.release());
}

std::shared_ptr<Borrowed> reference_to(nanobind::handle object) {
  auto held = std::make_unique<HeldView>();
  held->view.obj = nanobind::make_tuple(object).release().ptr();
  return std::make_shared<Borrowed>(std::move(held), NodeId{0});
}

void leave_to_interpreter(std::shared_ptr<void> ours) {
  leave(new HeldView{.ours = std::move(ours)});
}

NoPython::NoPython() : before_(std::exchange(no_python, true)) {}
NoPython::~NoPython() { no_python = before_; }
bool NoPython::here() { return no_python; }

void release_borrowed() {
  if (waiting.load() == nullptr || no_python || GilVisit::here()) return;
  for (HeldView* next = waiting.exchange(nullptr); next != nullptr;) {
    const std::unique_ptr<HeldView> held(std::exchange(next, next->next));
    release_buffer(held->view);
  }
}

void borrowed_until_exit() {
  ended.store(true);
  {
    const GilRelease release;
    const auto end = std::chrono::steady_clock::now() + kTelling;
    while (telling.load() != 0 && std::chrono::steady_clock::now() < end) sched_yield();
  }
  release_borrowed();
}

void borrowed_after_fork() {
  telling.store(0);
  release_borrowed();
}

}  // namespace headrace::python
