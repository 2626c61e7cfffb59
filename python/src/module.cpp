#include <chrono>
#include <csignal>

#include "base/error.h"
#include "base/ignore_target.h"
#include "base/json_value.h"
#include "base/version.h"
#include "binding.h"

namespace mnemo::python {
namespace {

/// Python's class for an error of the library; the most derived comes first.
py::object input_error, shape_error, not_finite;

/// A message with the program's flags as arguments: --segment-size becomes segment_size. Commands to type stay.
std::string with_arguments(std::string_view message) {
  if (message.find("mnemo ") != std::string_view::npos) return std::string(message);
  const auto is_small = [](char letter) { return letter >= 'a' && letter <= 'z'; };
  std::string text;
  bool flag = false;
  for (size_t i = 0; i < message.size(); ++i) {
    const std::string_view rest = message.substr(i);
    const bool begins = i == 0 || message[i - 1] == ' ' || message[i - 1] == '(';
    if (begins && rest.size() > 2 && rest.starts_with("--") && is_small(rest[2])) {
      flag = true;
      ++i;
      continue;
    }
    flag = flag && (message[i] == '-' || is_small(message[i]));
    text += flag && message[i] == '-' ? '_' : message[i];
  }
  return text;
}

void translate(std::exception_ptr thrown) {
  const auto raise = [](const py::object& type, const std::exception& error) {
    PyErr_SetString(type.ptr(), with_arguments(error.what()).c_str());
  };
  try {
    if (thrown) std::rethrow_exception(thrown);
  } catch (const base::NotFinite& error) {
    raise(not_finite, error);
  } catch (const base::ShapeError& error) {
    raise(shape_error, error);
  } catch (const base::InputError& error) {
    raise(input_error, error);
  } catch (const c10::ValueError& error) {
    PyErr_SetString(PyExc_ValueError, error.what_without_backtrace());
  } catch (const c10::TypeError& error) {
    PyErr_SetString(PyExc_TypeError, error.what_without_backtrace());
  } catch (const c10::IndexError& error) {
    PyErr_SetString(PyExc_ValueError, error.what_without_backtrace());
  } catch (const c10::Error& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what_without_backtrace());
  }
}

/// Throws ValueError for text that is not valid Unicode.
std::string string_of(const py::handle& text) {
  Py_ssize_t size = 0;
  const char* bytes = PyUnicode_AsUTF8AndSize(text.ptr(), &size);
  if (bytes == nullptr) throw py::error_already_set();
  return std::string(bytes, static_cast<size_t>(size));
}

py::object add_error(py::module_& m, const char* name, const py::object& base, const char* doc) {
  py::object type = py::reinterpret_steal<py::object>(
      PyErr_NewExceptionWithDoc((std::string("mnemo.") + name).c_str(), doc, base.ptr(), nullptr));
  m.add_object(name, type);
  return type;
}

}  // namespace

int asked_by_signals() {
  using Clock = std::chrono::steady_clock;
  thread_local Clock::time_point last{};
  const Clock::time_point now = Clock::now();
  if (now - last < std::chrono::milliseconds(50)) return 0;
  last = now;
  const py::gil_scoped_acquire gil;
  return PyErr_CheckSignals() == 0 ? 0 : SIGINT;
}

Watch watch() {
  return {.should_stop = asked_by_signals, .log = [](std::string_view line) {
            const py::gil_scoped_acquire gil;
            try {
              py::module_::import("mnemo._log").attr("line")(std::string(line));
            } catch (py::error_already_set& error) {
              error.discard_as_unraisable("mnemo log");
            }
          }};
}

void throw_stopped(const base::Stopped& stopped) {
  if (PyErr_Occurred() != nullptr) throw py::error_already_set();
  PyErr_SetString(PyExc_KeyboardInterrupt, stopped.what());
  throw py::error_already_set();
}

base::Node node_of(const py::handle& value) {
  if (value.is_none()) return {};
  if (py::isinstance<py::bool_>(value)) return value.cast<bool>();
  if (py::isinstance<py::int_>(value)) {
    int overflow = 0;
    const int64_t number = PyLong_AsLongLongAndOverflow(value.ptr(), &overflow);
    if (overflow != 0) throw py::value_error("expected an integer of 64 bits");
    return number;
  }
  if (py::isinstance<py::float_>(value)) return value.cast<double>();
  if (py::isinstance<py::str>(value)) return string_of(value);
  if (py::isinstance<py::dict>(value)) {
    base::Node table = base::Node::table();
    for (const auto& [key, item] : value.cast<py::dict>()) {
      if (!py::isinstance<py::str>(key)) throw py::type_error("expected options with keys of str");
      table.set(string_of(key), node_of(item));
    }
    return table;
  }
  if (py::isinstance<py::list>(value) || py::isinstance<py::tuple>(value)) {
    base::Node list = base::Node::array();
    for (const py::handle& item : value) list.push_back(node_of(item));
    return list;
  }
  throw py::type_error("expected an option of None, bool, int, float, str, list or dict, found " +
                       py::type::of(value).attr("__name__").cast<std::string>());
}

py::object object_of(const base::Node& node) {
  switch (node.kind()) {
    case base::Node::Kind::null:
      return py::none();
    case base::Node::Kind::boolean:
      return py::bool_(node.as_bool());
    case base::Node::Kind::integer:
      return py::int_(node.as_int());
    case base::Node::Kind::real:
      return py::float_(node.as_double());
    case base::Node::Kind::string:
      return text_of(node.as_string());
    case base::Node::Kind::array: {
      py::list list;
      for (const base::Node& item : node.items()) list.append(object_of(item));
      return list;
    }
    case base::Node::Kind::table: {
      py::dict table;
      for (const base::Node::Member& member : node.members()) table[text_of(member.key)] = object_of(member.value);
      return table;
    }
  }
  return py::none();
}

py::str text_of(std::string_view bytes) { return py::str(base::json_text(bytes)); }

}  // namespace mnemo::python

PYBIND11_MODULE(_C, m) {
  namespace py = pybind11;
  using namespace mnemo::python;
  m.doc() = "The C++ half of mnemo.";
  m.attr("__version__") = MNEMO_VERSION;
  m.attr("IGNORE") = mnemo::base::kIgnoreTarget;
  const auto value_error = py::reinterpret_borrow<py::object>(PyExc_ValueError);
  input_error = add_error(m, "InputError", value_error, "Wrong input: what, where, what was expected and found.");
  shape_error = add_error(m, "ShapeError", input_error, "A tensor of the wrong shape.");
  not_finite = add_error(m, "NotFinite", input_error, "A result that is not finite.");
  for (py::object* type : {&input_error, &shape_error, &not_finite}) type->inc_ref();  // until the process ends
  py::register_local_exception_translator(translate);
  add_bundle(m);
  add_detection(m);
  add_modules(m);
  add_training(m);
}
