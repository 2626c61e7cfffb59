#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace mnemo::cli {

/// Possible values of an option or argument.
struct Values {
  std::vector<std::string> words = {};
  bool files = false, folders = false, keys = false;  ///< keys: KEY= of a recipe
};

struct CompletedOption {
  std::vector<std::string> names;  ///< "--data", "-n"
  std::string about;
  std::string kind = {};  ///< "FILE", "N"
  bool takes_value = false;
  Values values = {};
};

/// A value without a name.
struct CompletedArgument {
  std::string name, about;
  bool required = false, many = false;
};

struct CompletedCommand {
  std::string name, about;
  std::vector<CompletedOption> options;
  Values values = {};  ///< of its arguments
  std::vector<CompletedArgument> arguments = {};
};

/// Completions for a shell, read from the application's own structure and the registries.
struct Completion {
  std::vector<CompletedCommand> commands;
  std::vector<CompletedOption> options;  ///< without a subcommand
  std::vector<std::string> keys;         ///< of a recipe, those that --set takes as they are
};
Completion completion_of(const CLI::App& app);

/// Scripts for these shells that complete subcommands, options, their values and, behind --set, keys of a recipe.
std::string bash_completion(const Completion& completion);
std::string zsh_completion(const Completion& completion);
std::string fish_completion(const Completion& completion);

/// The manual page in troff, for `man mnemo`.
std::string manual_page(const Completion& completion);

}  // namespace mnemo::cli
