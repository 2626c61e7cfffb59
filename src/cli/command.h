#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/option_rules.h"
#include "cli/commands.h"

namespace mnemo::cli {

/// One subcommand of an application, without the parser's own headers (nine seconds to compile). The values are
/// written when the command line is read, so they must outlive the parsing: keep them in a shared_ptr that the action
/// holds.
///
///   auto options = std::make_shared<EvalOptions>();
///   Command(app, "eval", "measures a model on held-out text")
///       .argument("MODEL", options->model, "model folder")
///       .option("--data", options->data, "FILE", "the text")
///       .action([options] { return eval(*options); });
class Command {
 public:
  /// Adds the subcommand, with the options that all have (--threads, --quiet).
  Command(CLI::App& app, const std::string& name, const std::string& about);

  /// A value without a name. Optional ones keep their value.
  Command& argument(const std::string& name, std::string& value, const std::string& about, bool required = true);
  Command& arguments(const std::string& name, std::vector<std::string>& values, const std::string& about,
                     bool required = true);

  /// A program of its own, without subcommands; program() is what run() takes.
  Command(const std::string& program, const std::string& about);
  std::shared_ptr<CLI::App> program() const { return program_; }

  /// An option with one value; `kind` stands for it in the help text ("FILE", "N"). A vector collects every use. A file
  /// or folder must not be empty. Numbers are written as in recipes, and kept to the same kind of rule.
  Command& option(const std::string& names, std::string& value, const std::string& kind, const std::string& about);
  Command& option(const std::string& names, std::optional<std::string>& value, const std::string& kind,
                  const std::string& about);
  Command& option(const std::string& names, int64_t& value, const std::string& kind, const std::string& about,
                  const base::Rule& rule = {});
  Command& option(const std::string& names, std::optional<int64_t>& value, const std::string& kind,
                  const std::string& about, const base::Rule& rule = {});
  Command& option(const std::string& names, std::optional<double>& value, const std::string& kind,
                  const std::string& about);
  Command& option(const std::string& names, std::vector<std::string>& values, const std::string& kind,
                  const std::string& about);
  /// One that help and completion do not show: for this program's own use.
  Command& hidden_option(const std::string& names, std::optional<std::string>& value);
  Command& flag(const std::string& names, bool& value, const std::string& about);

  /// Text below the list of options.
  Command& footer(const std::string& text);
  /// Several ranks of a job may run it together; every other command refuses them. Before action().
  Command& allow_ranks();
  Command& action(std::function<int()> action);

  CLI::App& app() { return *command_; }

 private:
  void add_common();

  std::shared_ptr<CLI::App> program_ = {};  // null: a subcommand
  CLI::App* command_;
  bool allows_ranks_ = false;
};

}  // namespace mnemo::cli
