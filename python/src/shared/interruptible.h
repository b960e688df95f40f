// SPDX-License-Identifier: Apache-2.0
// A C++ call that Python's callbacks and signals can stop.
#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>
#include <optional>
#include <utility>

#include "headrace/measure.h"
#include "interpreter.h"

namespace headrace::python {

// Runs an experiment without the GIL, and calls Python's callbacks and signal handlers meanwhile. A
// handler that raises, as Ctrl-C's does by default, stops the experiment, and rethrow() raises its
// exception. A handler that only records the signal makes `stop` return true; the rows so far are
// returned.
class Interruptible {
 public:
  // Either may be None. Both are called by the thread that runs the experiment.
  Interruptible(nb::object stop, nb::object progress)
      : stop_(std::move(stop)), progress_(std::move(progress)) {}

  // True when the work shall end. Called without the GIL.
  bool stop();
  void progress(std::size_t done, std::size_t total);
  ExperimentContext context() {
    return {.stop = [this] { return stop(); },
            .progress = [this](std::size_t done, std::size_t total) { progress(done, total); }};
  }
  // Raises what a callback or a signal handler raised. Requires: the GIL.
  void rethrow();

 private:
  const nb::object stop_;
  const nb::object progress_;
  std::optional<nb::python_error> raised_;  // only the thread that runs the experiment
};

}  // namespace headrace::python
