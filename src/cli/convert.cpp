#include <fmt/format.h>

#include <filesystem>
#include <memory>

#include "base/error.h"
#include "cli/command.h"
#include "cli/commands.h"
#include "cli/machine.h"
#include "cli/output.h"
#include "cli/summary.h"
#include "cli/workbench.h"
#include "models/convert.h"
#include "weights/model_folder.h"
#include "weights/model_tensors.h"

namespace mnemo::cli {
namespace {

struct ConvertArguments {
  std::string model, to, out;
  std::optional<int64_t> features;
  int64_t seed = 0;
};

int convert(const ConvertArguments& options) {
  base::require(options.to == "t2r", "convert: --to: expected \"t2r\", found \"{}\"", options.to);
  base::require(!options.out.empty(), "convert: --out: expected a folder, found none");
  base::require(!options.features || *options.features >= 1, "convert: --features: expected at least 1, found {}", options.features.value_or(0));
  base::require(options.seed >= 0, "convert: --seed: expected at least 0, found {}", options.seed);
  const std::string folder = model_folder(options.model);
  const StoredModel stored = read_model(folder);
  const auto made = models::to_t2r(models::require_language_model(*stored.model, "convert: --to t2r"), options.features, static_cast<uint64_t>(options.seed));
  weights::ModelFolder content;
  content.config = base::to_json(base::write_options(made->options())) + "\n";
  content.weights.tensors = weights::model_tensors(*made);
  if (stored.tokenizer) content.vocabulary = stored.tokenizer->save();
  content.card = fmt::format(
      "---\nlibrary_name: mnemo\n---\n\n# T2R of {0}\n\n{1} parameters. The weights of `{0}`, a softmax model, with linear attention in place of its own: "
      "the feature maps are fresh, so train it on before use.\n\nMade with Mnemo {2}:\n\n    mnemo convert {0} --to t2r --out FOLDER\n",
      std::filesystem::path(folder).lexically_normal().filename().string(), grouped(made->parameters().count()), this_machine().mnemo);
  weights::write_model_folder(options.out, content);
  print(fmt::format("{}: {} parameters, {} of them fresh\n", options.out, grouped(made->parameters().count()),
                    grouped(made->parameters().count() - stored.model->parameters().count())));
  return kDone;
}

}  // namespace

void add_convert(CLI::App& app) {
  auto options = std::make_shared<ConvertArguments>();
  Command(app, "convert", "makes a model of another kind from a trained one")
      .argument("MODEL", options->model, "a model folder, or a run's folder")
      .option("--to", options->to, "KIND", "t2r: linear attention with learned features, from softmax attention")
      .option("--out", options->out, "FOLDER", "the new model's folder")
      .option("--features", options->features, "N", "features of a head (32)")
      .option("--seed", options->seed, "N", "of the fresh feature maps (0)")
      .footer("mnemo convert runs/mine --to t2r --out runs/t2r\n"
              "mnemo train recipes/text.toml --init runs/t2r --set 'model.backbone.attention={type=\"linear\",feature_map=\"t2r\"}'")
      .action([options] { return convert(*options); });
}

}  // namespace mnemo::cli
