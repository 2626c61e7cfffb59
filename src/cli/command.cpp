#include "cli/command.h"

#include <CLI/CLI.hpp>

#include "base/colour.h"
#include "base/error.h"
#include "base/number.h"
#include "cli/application.h"
#include "distributed/launch.h"

namespace mnemo::cli {
namespace {

/// An option whose text becomes a number by `read`.
template <class Value>
CLI::Option* add_number(CLI::App& command, const std::string& names, Value& value, const std::string& kind,
                        const std::string& about, Value (*read)(std::string_view), const base::Rule& rule = {}) {
  const std::string name = names.substr(names.rfind(',') + 1);
  return command
      .add_option_function<std::string>(
          names,
          [&value, name, read, rule](const std::string& text) {
            try {
              value = read(text);
              if constexpr (!std::is_same_v<Value, std::optional<double>>) {
                const std::optional<int64_t> found = value;
                base::require(!rule.holds || !found || rule.holds(base::Node(*found)), "expected {}, found {}",
                              rule.text, found.value_or(0));
              }
            } catch (const base::InputError& error) {
              throw CLI::ValidationError(name, error.what());
            }
          },
          about)
      ->type_name(kind);
}

std::optional<int64_t> whole_number(std::string_view text) { return base::parse_whole_number(text); }
std::optional<double> number(std::string_view text) { return base::parse_number(text); }

void refuse_empty(CLI::Option* option, const std::string& expected) {
  option->check(
      [expected](const std::string& given) {
        return given.empty() ? "expected " + expected + ", found ''" : std::string();
      },
      "");
}

/// Refuses the empty name of a file or folder.
void check_path(CLI::Option* option, const std::string& kind) {
  if (kind == "FILE" || kind == "DIR" || kind == "FOLDER" || kind == "MODEL") refuse_empty(option, "a path");
}

}  // namespace

Command::Command(CLI::App& app, const std::string& name, const std::string& about)
    : command_(app.add_subcommand(name, about)) {
  add_common();
}

Command::Command(const std::string& program, const std::string& about)
    : program_(std::make_shared<CLI::App>(about, program)), command_(program_.get()) {
  add_common();
}

void Command::add_common() {
  Common& common = common_options();
  option("--threads", common.threads, "N",
         "threads per operation (default: one for a small model, else LibTorch's choice)", base::range(1, 1024));
  command_
      ->add_option_function<std::string>(
          "--color",
          [](const std::string& when) {
            base::set_colour(when == "always"  ? base::Colour::always
                             : when == "never" ? base::Colour::never
                                               : base::Colour::automatic);
          },
          "colour messages: auto (on a terminal, unless NO_COLOR is set), always or never")
      ->type_name("WHEN")
      ->check(
          [](const std::string& when) {
            const bool known = when == "auto" || when == "always" || when == "never";
            return known ? std::string() : "expected auto, always or never, found '" + when + "'";
          },
          "");
  command_->add_flag("-q,--quiet", common.quiet, "print only results and warnings, no progress");
}

Command& Command::argument(const std::string& name, std::string& value, const std::string& about, bool required) {
  refuse_empty(command_->add_option(name, value, about)->required(required)->type_name(""), "a path or name");
  return *this;
}

Command& Command::arguments(const std::string& name, std::vector<std::string>& values, const std::string& about,
                            bool required) {
  refuse_empty(command_->add_option(name, values, about)->required(required)->type_name(""), "a path or name");
  return *this;
}

Command& Command::option(const std::string& names, std::string& value, const std::string& kind,
                         const std::string& about) {
  check_path(command_->add_option(names, value, about)->type_name(kind), kind);
  return *this;
}

Command& Command::option(const std::string& names, std::optional<std::string>& value, const std::string& kind,
                         const std::string& about) {
  check_path(command_->add_option(names, value, about)->type_name(kind), kind);
  return *this;
}

Command& Command::option(const std::string& names, int64_t& value, const std::string& kind, const std::string& about,
                         const base::Rule& rule) {
  CLI::Option* added = add_number(*command_, names, value, kind, about, base::parse_whole_number, rule);
  if (value != 0) added->default_str(std::to_string(value));
  return *this;
}

Command& Command::option(const std::string& names, std::optional<int64_t>& value, const std::string& kind,
                         const std::string& about, const base::Rule& rule) {
  add_number(*command_, names, value, kind, about, whole_number, rule);
  return *this;
}

Command& Command::option(const std::string& names, std::optional<double>& value, const std::string& kind,
                         const std::string& about) {
  add_number(*command_, names, value, kind, about, number);
  return *this;
}

Command& Command::option(const std::string& names, std::vector<std::string>& values, const std::string& kind,
                         const std::string& about) {
  command_->add_option(names, values, about)->type_name(kind)->allow_extra_args(false);
  return *this;
}

Command& Command::flag(const std::string& names, bool& value, const std::string& about) {
  command_->add_flag(names, value, about);
  return *this;
}

Command& Command::hidden_option(const std::string& names, std::optional<std::string>& value) {
  command_->add_option(names, value)->group("");
  return *this;
}

Command& Command::footer(const std::string& text) {
  command_->footer(text);
  return *this;
}

Command& Command::allow_ranks() {
  allows_ranks_ = true;
  return *this;
}

Command& Command::action(std::function<int()> action) {
  if (program_ != nullptr || allows_ranks_) {
    set_action(*command_, std::move(action));
    return *this;
  }
  set_action(*command_, [name = command_->get_name(), action = std::move(action)] {
    const std::optional<distributed::Place> place = distributed::place_from();
    base::require(!place || place->size == 1,
                  "{}: this process is rank {} of {} (set in its environment), but {} runs on one process", name,
                  place ? place->rank : 0, place ? place->size : 1, name);
    return action();
  });
  return *this;
}

}  // namespace mnemo::cli
