#include "cli/command.h"

#include <CLI/CLI.hpp>

#include "cli/application.h"

namespace mnemo::cli {

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
  command_->add_option("--threads", common.threads, "threads per operation (default: LibTorch's choice)")
      ->type_name("N");
  command_->add_flag("-q,--quiet", common.quiet, "print only results and warnings, no progress");
}

Command& Command::argument(const std::string& name, std::string& value, const std::string& about, bool required) {
  command_->add_option(name, value, about)->required(required)->type_name("");
  return *this;
}

Command& Command::arguments(const std::string& name, std::vector<std::string>& values, const std::string& about,
                            bool required) {
  command_->add_option(name, values, about)->required(required)->type_name("");
  return *this;
}

Command& Command::option(const std::string& names, std::string& value, const std::string& kind,
                         const std::string& about) {
  command_->add_option(names, value, about)->type_name(kind);
  return *this;
}

Command& Command::option(const std::string& names, std::optional<std::string>& value, const std::string& kind,
                         const std::string& about) {
  command_->add_option(names, value, about)->type_name(kind);
  return *this;
}

Command& Command::option(const std::string& names, int64_t& value, const std::string& kind, const std::string& about) {
  command_->add_option(names, value, about)->type_name(kind)->capture_default_str();
  return *this;
}

Command& Command::option(const std::string& names, std::optional<int64_t>& value, const std::string& kind,
                         const std::string& about) {
  command_->add_option(names, value, about)->type_name(kind);
  return *this;
}

Command& Command::option(const std::string& names, std::optional<double>& value, const std::string& kind,
                         const std::string& about) {
  command_->add_option(names, value, about)->type_name(kind);
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

Command& Command::action(std::function<int()> action) {
  set_action(*command_, std::move(action));
  return *this;
}

}  // namespace mnemo::cli
