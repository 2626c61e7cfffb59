#include "cli/completion.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <set>

#include "base/exit_status.h"
#include "base/output.h"
#include "bundle/convert.h"
#include "cli/application.h"
#include "cli/command.h"
#include "cli/recipes.h"
#include "data/prepare/registry.h"
#include "ops/linear/packed_linear.h"
#include "recipes/recipe.h"
#include "tasks/registry.h"
#include "text/train_tokenizer.h"

namespace mnemo::cli {
namespace {

/// Keys that --set takes as they are: not those inside lists, whose place in the list is the user's to say.
std::vector<std::string> recipe_keys() {
  std::set<std::string> keys;
  for (const base::OptionDoc& doc : recipes::recipe_docs()) {
    if (doc.path.find('[') == std::string::npos && !doc.value.empty()) keys.insert(doc.path);
  }
  return {keys.begin(), keys.end()};
}

/// The words that an option of some commands takes: an option of the same name may take other values elsewhere.
struct OptionWords {
  std::vector<std::string> commands;
  std::string option;
  std::vector<std::string> words;
};

const std::vector<OptionWords>& option_words() {
  static const std::vector<OptionWords> all = {
      {{"train", "finetune", "eval", "compare", "generate", "translate", "classify", "detect"},
       "--device",
       {"cpu", "cuda"}},
      {{"eval", "generate", "translate", "classify", "detect", "inspect", "convert"},
       "--checkpoint",
       {"latest", "best"}},
      {{"eval", "generate", "serve", "translate"}, "--precision", ops::precision_names()},
      {{"eval", "generate", "serve"}, "--kv-precision", {"auto", "int8"}},
      {{"data", "eval"}, "--part", {"train", "valid", "test"}},
      {{"data"}, "--unit", {"bytes", "characters", "words"}},
      {{"data"}, "--type", {text::tokenizer_types().begin(), text::tokenizer_types().end()}},
      {{"eval"}, "--documents", {"none", "blank_line", "heading", "line"}},
      {{"eval"}, "--reset", {"documents", "segments"}},
      {{"eval"}, "--memory", {"zeros", "noise"}},
      {{"classify", "detect"}, "--broken", {"stop", "skip"}},
      {{"finetune"},
       "--regime",
       {"head", "head_and_class_token", "memory", "masked_memory", "unmasked_memory", "full", "adapters",
        "memory_and_adapters"}},
      {{"convert"}, "--to", bundle::conversion_names()}};
  return all;
}

Values values_of(const std::string& command, const std::string& name, const std::string& kind) {
  for (const OptionWords& one : option_words()) {
    if (one.option == name && std::ranges::find(one.commands, command) != one.commands.end())
      return {.words = one.words};
  }
  if (name == "--set") return {.keys = true};
  return {.files = kind == "FILE", .folders = kind == "DIR" || kind == "FOLDER" || kind == "MODEL"};
}

/// Possible values of a command's arguments.
Values argument_values(const std::string& command, const std::vector<std::string>& commands) {
  if (command == "help") {
    Values subjects{.words = commands};
    for (const char* word : {"recipe", "presets", "man"}) subjects.words.emplace_back(word);
    return subjects;
  }
  if (command == "completion") return {.words = {"bash", "zsh", "fish"}};
  Values values{.files = true, .folders = true};
  if (command == "data") {
    values.words = tasks::made_words();
    values.words.insert(values.words.end(), {"prepare", "tokenizer"});
    for (const std::string& name : data::data_sets().names()) values.words.push_back(name);
  }
  for (const char* reads : {"train", "finetune", "compare", "inspect", "data"}) {
    if (command != reads) continue;
    for (const std::string& name : recipe_names()) values.words.push_back(name);
  }
  return values;
}

/// Options of a command; of the program for the empty name.
std::vector<CompletedOption> options_of(const CLI::App& app, const std::string& command) {
  std::vector<CompletedOption> options;
  for (const CLI::Option* option :
       app.get_options([](const CLI::Option* one) { return !one->get_group().empty() && one->nonpositional(); })) {
    CompletedOption completed{.names = {}, .about = option->get_description(), .kind = option->get_type_name()};
    for (const std::string& name : option->get_lnames()) completed.names.push_back("--" + name);
    for (const std::string& name : option->get_snames()) completed.names.push_back("-" + name);
    completed.takes_value = option->get_items_expected_max() > 0;
    if (completed.takes_value) completed.values = values_of(command, completed.names.front(), completed.kind);
    options.push_back(std::move(completed));
  }
  return options;
}

std::vector<CompletedArgument> arguments_of(const CLI::App& app) {
  std::vector<CompletedArgument> arguments;
  for (const CLI::Option* option : app.get_options([](const CLI::Option* one) { return one->get_positional(); })) {
    arguments.push_back({option->get_name(true), option->get_description(), option->get_required(),
                         option->get_items_expected_max() > 1});
  }
  return arguments;
}

}  // namespace

Completion completion_of(const CLI::App& app) {
  Completion completion{.commands = {}, .options = options_of(app, ""), .keys = recipe_keys()};
  const auto shown = app.get_subcommands([](const CLI::App* command) { return !command->get_group().empty(); });
  std::vector<std::string> names;
  for (const CLI::App* sub : shown) names.push_back(sub->get_name());
  for (const CLI::App* sub : shown) {
    const std::string& name = sub->get_name();
    completion.commands.push_back(
        {name, sub->get_description(), options_of(*sub, name), argument_values(name, names), arguments_of(*sub)});
  }
  return completion;
}

void add_completion(CLI::App& app) {
  auto shell = std::make_shared<std::string>();
  Command(app, "completion", "print a shell completion script")
      .argument("SHELL", *shell, "bash, zsh or fish")
      .footer(
          "source <(mnemo completion bash)\nmnemo completion zsh > ~/.zfunc/_mnemo\nmnemo completion fish > "
          "~/.config/fish/completions/mnemo.fish")
      .allow_ranks()
      .action([shell] {
        const Completion completion = completion_of(*make_application());
        base::require(*shell == "bash" || *shell == "zsh" || *shell == "fish",
                      "completion: expected bash, zsh or fish, found '{}'", *shell);
        base::print(*shell == "bash"  ? bash_completion(completion)
                    : *shell == "zsh" ? zsh_completion(completion)
                                      : fish_completion(completion));
        return base::kDone;
      });
}

}  // namespace mnemo::cli
