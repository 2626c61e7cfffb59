#include <algorithm>
#include <memory>

#include "base/log.h"
#include "cli/application.h"
#include "cli/command.h"
#include "cli/output.h"
#include "cli/recipe.h"

namespace mnemo::cli {

void add_help(CLI::App& app) {
  struct Options {
    std::string subject;
    bool markdown = false;
  };
  auto options = std::make_shared<Options>();
  Command(app, "help", "explains a subcommand, or every key of a recipe")
      .argument("SUBJECT", options->subject, "a subcommand, or recipe: all keys with type, default and meaning", false)
      .flag("--markdown", options->markdown, "recipe: as Markdown tables")
      .action([options] {
        if (options->subject == "recipe") {
          print(options->markdown ? recipe_help_markdown() : recipe_help(std::max<size_t>(base::terminal_columns(), 60)));
        } else {
          base::require(!options->markdown, "help: --markdown goes with: mnemo help recipe");
          print(help_text(options->subject));
        }
        return kDone;
      });
}

}  // namespace mnemo::cli
