#include <torch/version.h>

#include <algorithm>
#include <memory>

#include "base/exit_status.h"
#include "base/log.h"
#include "base/options.h"
#include "base/output.h"
#include "base/text_format.h"
#include "base/text_table.h"
#include "cli/application.h"
#include "cli/command.h"
#include "cli/completion.h"
#include "cli/recipe_folder.h"
#include "cli/recipes.h"
#include "experiment/device.h"
#include "models/model.h"
#include "models/presets.h"
#include "ops/cuda.h"
#include "recipes/recipe.h"
#include "study/summary.h"

namespace mnemo::cli {
namespace {

/// Every preset with its parameters, counted here and as published.
std::string preset_help() {
  using Align = base::TextTable::Align;
  base::TextTable table({"preset", "parameters", "published", "what"},
                        {Align::left, Align::right, Align::right, Align::left});
  std::string figures;
  for (const models::Preset& preset : models::presets()) {
    base::Node named = base::Node::table({{"preset", preset.name}});
    if (preset.vocab_size > 0) named.set("embedding", base::Node::table({{"vocab_size", preset.vocab_size}}));
    const int64_t parameters = models::count_parameters(models::read_model_options(named));
    table.add_row({std::string(preset.name), base::grouped(parameters),
                   preset.published > 0 ? fmt::format("{:g} M", preset.published) : "", std::string(preset.about)});
    if (!preset.figure.empty()) figures += fmt::format("  {}: {}.\n", preset.name, preset.figure);
  }
  return "[model] preset = \"NAME\" selects a published model; other keys of [model] override it.\n\n" +
         table.text(base::output_columns()) +
         "\nParameters counted with the vocabulary of the original data set; published numbers:\n" + figures;
}

/// Answers to command lines that depend on this build alone, as recipe_folder.h has them for the program that users
/// start.
std::string all_answers() {
  constexpr size_t kColumns = 80;
  const Completion completion = completion_of(*make_application());
  const std::string of_all = help_text("");
  std::vector<std::pair<std::string, std::string>> answers = {
      {kMarkOfRecipes, mark_of_files(recipe_folder())},
      {"--help", of_all},
      {"-h", of_all},
      {"help", of_all},
      {"recipes", recipes_text(std::string(1, kFolderHere))},
      {"completion bash", bash_completion(completion)},
      {"completion zsh", zsh_completion(completion)},
      {"completion fish", fish_completion(completion)},
      {"help man", manual_page(completion)},
      {"help presets", preset_help()},
      {"help recipe", recipes::recipe_help(recipes::recipe_docs(), kColumns)}};
  for (const CompletedCommand& command : completion.commands) {
    const std::string text = help_text(command.name);
    answers.emplace_back(command.name + " --help", text);
    answers.emplace_back(command.name + " -h", text);
    answers.emplace_back("help " + command.name, text);
  }
  if (!ops::cuda::compiled())
    answers.emplace_back(kOfBuild, std::string(TORCH_VERSION "\n") + experiment::describe_cuda());
  std::string all;
  for (const auto& [words, text] : answers) all += fmt::format("{}\n{}\n{}", words, text.size(), text);
  return all;
}

}  // namespace

void add_help(CLI::App& app) {
  struct Options {
    std::string subject;
    std::vector<std::string> words;
    bool markdown = false;
  };
  auto options = std::make_shared<Options>();
  Command(app, "help", "explain a subcommand, all recipe keys, or the presets")
      .argument(
          "SUBJECT", options->subject,
          "a subcommand, `recipe` (all keys with type, default and meaning), `presets` (published models) or `man` "
          "(the manual page, in troff)",
          false)
      .arguments("WORD", options->words, "with recipe: only keys with these words in their name or meaning", false)
      .flag("--markdown", options->markdown, "with recipe: print Markdown tables")
      .allow_ranks()
      .action([options] {
        base::require(options->words.empty() || options->subject == "recipe",
                      "help: a WORD to search for goes with: mnemo help recipe");
        base::require(!options->markdown || options->subject == "recipe",
                      "help: --markdown goes with: mnemo help recipe");
        if (options->subject == "recipe") {
          const auto docs = recipes::find_recipe_docs(options->words);
          base::print(options->markdown ? base::option_markdown(docs)
                                        : recipes::recipe_help(docs, std::max<size_t>(base::terminal_columns(), 20)));
        } else if (options->subject == "presets") {
          base::print(preset_help());
        } else if (options->subject == "answers") {
          base::print(all_answers());
        } else if (options->subject == "man") {
          base::print(manual_page(completion_of(*make_application())));
        } else {
          base::print(help_text(options->subject));
        }
        return base::kDone;
      });
}

}  // namespace mnemo::cli
