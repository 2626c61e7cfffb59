#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <set>

#include "base/exit_status.h"
#include "base/output.h"
#include "cli/application.h"
#include "cli/command.h"
#include "experiment/recipe.h"

namespace mnemo::cli {
namespace {

std::string joined(const std::vector<std::string>& words) { return fmt::format("{}", fmt::join(words, " ")); }

std::vector<std::string> option_words(const CLI::App& app) {
  std::vector<std::string> words;
  for (const CLI::Option* option :
       app.get_options([](const CLI::Option* shown) { return !shown->get_group().empty(); })) {
    for (const std::string& name : option->get_lnames()) words.push_back("--" + name);
  }
  return words;
}

/// Keys that --set takes as they are: not those inside lists, whose place in the list is the user's to say.
std::vector<std::string> recipe_keys() {
  std::set<std::string> keys;
  for (const base::OptionDoc& doc : experiment::recipe_docs()) {
    if (doc.path.find('[') == std::string::npos && !doc.value.empty()) keys.insert(doc.path);
  }
  return {keys.begin(), keys.end()};
}

}  // namespace

std::string bash_completion(const CLI::App& app) {
  std::vector<std::string> commands;
  std::string cases;
  for (const CLI::App* sub :
       app.get_subcommands([](const CLI::App* command) { return !command->get_group().empty(); })) {
    commands.push_back(sub->get_name());
    cases += fmt::format("    {}) options=\"{}\" ;;\n", sub->get_name(), joined(option_words(*sub)));
  }
  return fmt::format(R"(# bash completion of mnemo; load it with: source <(mnemo completion bash)
_mnemo() {{
  local word="${{COMP_WORDS[COMP_CWORD]}}" before="${{COMP_WORDS[COMP_CWORD-1]}}" command="${{COMP_WORDS[1]}}" options=""
  COMPREPLY=()
  if [ "$COMP_CWORD" -eq 1 ]; then
    COMPREPLY=($(compgen -W "{} {}" -- "$word"))
    return
  fi
  if [ "$before" = "--set" ]; then
    COMPREPLY=($(compgen -S = -W "{}" -- "$word"))
    compopt -o nospace 2>/dev/null
    return
  fi
  case "$command" in
{}  esac
  if [ "$command" = "help" ]; then
    COMPREPLY=($(compgen -W "{} recipe presets $options" -- "$word"))
    return
  fi
  if [[ "$word" == -* ]]; then
    COMPREPLY=($(compgen -W "$options" -- "$word"))
  else
    compopt -o default 2>/dev/null
  fi
}}
complete -F _mnemo mnemo
)",
                     joined(commands), joined(option_words(app)), joined(recipe_keys()), cases, joined(commands));
}

void add_completion(CLI::App& app) {
  auto shell = std::make_shared<std::string>();
  Command(app, "completion", "print a shell completion script")
      .argument("SHELL", *shell, "bash")
      .footer("source <(mnemo completion bash)")
      .action([shell] {
        base::require(*shell == "bash", "completion: expected bash, found '{}'", *shell);
        base::print(bash_completion(*make_application()));
        return base::kDone;
      });
}

}  // namespace mnemo::cli
