#pragma once

#include <torch/csrc/utils/pybind.h>

#include <functional>
#include <string>
#include <utility>

#include "base/node.h"
#include "base/stop.h"
#include "mnemo.h"

namespace mnemo::python {

namespace py = pybind11;

/// Runs Python's signal handlers, at most every 50 ms; not 0 when one of them raised, which ends the call. For
/// should_stop of every long call.
int asked_by_signals();

/// Log lines go to Python's logger "mnemo", Ctrl-C ends the call.
Watch watch();

/// The exception of a signal handler that ended the call.
[[noreturn]] void throw_stopped(const base::Stopped& stopped);

/// Calls f without the GIL, logging to Python. Ctrl-C raises KeyboardInterrupt.
template <class F>
auto without_gil(F&& f) {
  try {
    const py::gil_scoped_release release;
    const Watching watching(watch());
    return f();
  } catch (const base::Stopped& stopped) {
    throw_stopped(stopped);
  }
}

/// None, bool, int, float, str, list, tuple or dict. Throws TypeError for others.
base::Node node_of(const py::handle& value);
py::object object_of(const base::Node& node);

/// Bytes of a token as text; invalid ones as \xNN.
py::str text_of(std::string_view bytes);

void add_bundle(py::module_& m);
void add_detection(py::module_& m);
void add_modules(py::module_& m);
void add_training(py::module_& m);

}  // namespace mnemo::python
