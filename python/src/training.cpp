#include <csignal>
#include <exception>
#include <memory>
#include <optional>

#include "base/error.h"
#include "binding.h"

namespace mnemo::python {
namespace {

using namespace py::literals;
using Strings = std::vector<std::string>;

/// Python functions that a long call tells of its way. Ctrl-C ends the call after a checkpoint; what else a signal
/// handler or a function raises is raised again once the call has ended.
class Listener {
 public:
  /// f(arguments...) in Python, unless an error is already on its way.
  template <class... Args>
  void tell(const py::object& f, Args&&... args) {
    const py::gil_scoped_acquire gil;
    if (f.is_none() || error_) return;
    try {
      f(std::forward<Args>(args)...);
    } catch (py::error_already_set& error) {
      if (error.matches(PyExc_KeyboardInterrupt))
        interrupted_ = true;
      else
        error_ = std::current_exception();
    }
  }
  int asked() {
    if (!error_ && asked_by_signals() != 0) take_signal();
    return error_ || interrupted_ ? SIGINT : 0;
  }
  /// At the end of the call, with the GIL.
  void raise() {
    if (error_) std::rethrow_exception(error_);
  }

 private:
  void take_signal() {
    const py::gil_scoped_acquire gil;
    if (PyErr_ExceptionMatches(PyExc_KeyboardInterrupt) != 0) {
      PyErr_Clear();
      interrupted_ = true;
      return;
    }
    try {
      throw py::error_already_set();
    } catch (py::error_already_set&) {
      error_ = std::current_exception();
    }
  }

  bool interrupted_ = false;
  std::exception_ptr error_;
};

py::dict dict_of(const Metrics& metrics) {
  py::dict dict;
  for (const auto& [name, value] : metrics) dict[text_of(name)] = value;
  return dict;
}

Watch watch_for(Listener& listener, const py::object& on_step) {
  Watch result = watch();
  result.should_stop = [&listener] { return listener.asked(); };
  if (!on_step.is_none()) {
    result.progress = [&listener, &on_step](const Progress& progress) {
      const py::gil_scoped_acquire gil;
      listener.tell(on_step, progress.done, progress.total, text_of(progress.note));
    };
  }
  return result;
}

py::dict train(const std::string& source, bool resumes, TrainOptions options, const py::object& on_step,
               const py::object& on_eval) {
  Listener listener;
  options.watch = watch_for(listener, on_step);
  if (!on_eval.is_none()) {
    options.on_evaluation = [&](int64_t step, const Metrics& metrics) {
      const py::gil_scoped_acquire gil;
      listener.tell(on_eval, step, dict_of(metrics));
    };
  }
  const Training done = without_gil(
      [&] { return resumes ? resume_training(source, options) : train_model(source, options); });
  listener.raise();
  return py::dict("folder"_a = done.folder, "model"_a = done.model, "task"_a = done.task, "steps"_a = done.steps,
                  "tokens"_a = done.tokens, "parameters"_a = done.parameters, "seconds"_a = done.seconds,
                  "metrics"_a = dict_of(done.metrics), "stopped"_a = done.stopped);
}

py::dict compare(const std::string& recipe, CompareOptions options, const py::object& on_step) {
  Listener listener;
  options.watch = watch_for(listener, on_step);
  const Comparison done = without_gil([&] { return compare_models(recipe, options); });
  listener.raise();
  return py::dict("folder"_a = done.folder, "report"_a = done.report, "text"_a = text_of(done.text),
                  "json"_a = text_of(done.json), "stopped"_a = done.stopped, "complete"_a = done.complete);
}

/// A value as TOML writes it after `key =`.
std::string toml_value(const base::Node& value) {
  const std::string key = "v = ", text = base::to_toml(base::Node::table({{"v", value}}));
  base::require(text.starts_with(key), "set: expected a number, a text, a bool or a list of them");
  return text.substr(key.size(), text.find_last_not_of('\n') + 1 - key.size());
}

}  // namespace

void add_training(py::module_& m) {
  m.def("to_toml", [](const py::dict& table) { return base::to_toml(node_of(table)); });
  m.def("toml_value", [](const py::object& value) { return toml_value(node_of(value)); });
  m.def("train", [](const std::string& source, bool resumes, const std::string& out, const Strings& set,
                    const std::string& variant, const std::string& init, const std::string& device,
                    const py::object& on_step, const py::object& on_eval) {
    return train(source, resumes, {.out = out, .set = set, .variant = variant, .init = init, .device = device}, on_step,
                 on_eval);
  });
  m.def("compare", [](const std::string& recipe, const std::string& out, const Strings& set, int64_t seeds,
                      const std::string& program, int64_t jobs, const std::string& device, const py::object& on_step) {
    return compare(recipe, {.out = out, .set = set, .seeds = seeds, .program = program, .jobs = jobs, .device = device},
                   on_step);
  });
}

}  // namespace mnemo::python
