#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/exit_status.h"
#include "base/file_io.h"
#include "base/machine.h"
#include "base/nearest.h"
#include "base/output.h"
#include "base/text_format.h"
#include "bundle/foreign_images.h"
#include "bundle/load.h"
#include "bundle/model_folder.h"
#include "cli/command.h"
#include "cli/commands.h"
#include "experiment/experiment.h"
#include "models/build.h"
#include "models/convert.h"
#include "models/presets.h"
#include "study/summary.h"
#include "weights/foreign.h"
#include "weights/model_tensors.h"

namespace mnemo::cli {
namespace {

struct ConvertArguments {
  std::string model, to, out;
  std::optional<int64_t> features;
  int64_t seed = 0;
};

std::string last_name(const std::string& folder) {
  const std::filesystem::path path = std::filesystem::path(folder).lexically_normal();
  return (path.has_filename() ? path : path.parent_path()).filename().string();
}

int to_t2r(const ConvertArguments& options) {
  base::require(!options.features || *options.features >= 1, "convert: --features: expected at least 1, found {}",
                options.features.value_or(0));
  base::require(options.seed >= 0, "convert: --seed: expected at least 0, found {}", options.seed);
  const std::string folder = experiment::model_folder(options.model);
  const experiment::StoredModel stored = experiment::read_model(folder);
  const auto made = models::to_t2r(models::require_language_model(*stored.model, "convert: --to t2r"), options.features,
                                   static_cast<uint64_t>(options.seed));
  bundle::ModelFolder content;
  content.config = base::to_json(base::write_options(made->options())) + "\n";
  content.weights.tensors = weights::model_tensors(*made);
  if (stored.tokenizer) content.vocabulary = stored.tokenizer->save();
  content.card = fmt::format(
      "---\nlibrary_name: mnemo\n---\n\n# T2R of {0}\n\n{1} parameters. The weights of `{0}`, a softmax model, with "
      "linear attention in place of its own: "
      "the feature maps are fresh, so train it on before use.\n\nMade with Mnemo {2}:\n\n    mnemo convert {0} --to "
      "t2r --out FOLDER\n",
      last_name(folder), base::grouped(made->parameters().count()), base::this_machine().mnemo);
  bundle::write_model_folder(options.out, content);
  base::print(fmt::format("{}: {} parameters, {} of them fresh\n", options.out,
                          base::grouped(made->parameters().count()),
                          base::grouped(made->parameters().count() - stored.model->parameters().count())));
  return base::kDone;
}

std::string card_of(const ConvertArguments& options, const core::Model& model, const std::string& folder) {
  return fmt::format(
      "---\nlibrary_name: {3}\n---\n\n# {0}\n\n{1} parameters. The weights of `{0}` under {4} names.\n\nMade with "
      "Mnemo {2}:\n\n"
      "    mnemo convert {0} --to {5} --out FOLDER\n",
      last_name(folder), base::grouped(model.parameters().count()), base::this_machine().mnemo,
      options.to == "mnemo" ? "mnemo" : "other", options.to == "mnemo" ? "Mnemo's" : "another library's", options.to);
}

/// Throws InputError naming the first option of ours that another library's config.json has lost.
void require_said(const base::Node& ours, const base::Node& said, const std::string& path, const std::string& who) {
  // How fresh weights are drawn; what the shapes of tensors say; what other keys have been filled in from.
  static const std::set<std::string> kNotNeeded = {"init_std", "mlp_ratio", "preset"};
  for (const auto& [key, value] : ours.members()) {
    const base::Node* other = said.find(key);
    const std::string at = path.empty() ? key : path + "." + key;
    if (kNotNeeded.contains(key)) continue;
    if (value.is_table() && other != nullptr && other->is_table()) {
      require_said(value, *other, at, who);
      continue;
    }
    const std::string can = other == nullptr ? "nothing" : base::to_json(*other, -1);
    base::require(
        other != nullptr && value == *other,
        "{}: the format cannot say '{}': expected {}, found {}; change it in config.json of a folder of --to mnemo if "
        "that is meant",
        who, at, can, base::to_json(value, -1));
  }
}

/// config.json of a model in another library's format: its own one if it came from there and says the same, else made
/// anew. `files` get what belongs beside it.
std::string config_for(const weights::ForeignFormat& format, const bundle::AnyModel& loaded, const std::string& folder,
                       std::map<std::string, std::string>& files) {
  const models::ModelOptions& options = models::options_of(*loaded.model);
  const std::string who = fmt::format("{}: convert: --to {}", folder, format.name);
  const auto read_back = [&](const base::Node& config) {
    return base::write_options(models::read_model_options(format.options(config)));
  };
  const std::optional<bundle::ImagePreprocessing> facts = bundle::ImagePreprocessing::find(folder);
  const std::vector<std::string> classes = bundle::class_names(folder);
  const int64_t num_classes = options.head.at("num_classes").as_int();
  base::require(classes.empty() || static_cast<int64_t>(classes.size()) == num_classes,
                "{}: expected {} lines, as many as the head has classes, found {}",
                base::join_path(folder, bundle::kClassesFile), num_classes, classes.size());
  base::Node config = format.config(options);
  require_said(base::write_options(options), read_back(config), "", who);
  files = bundle::add_image_facts(config, format, facts, classes,
                                  base::join_path(folder, bundle::ImagePreprocessing::kFile));
  const std::string beside = base::join_path(folder, bundle::kSourceConfig);
  const std::string source = loaded.format != nullptr    ? loaded.config
                             : base::path_exists(beside) ? base::read_file(beside, size_t{16} << 20)
                                                         : std::string();
  if (!source.empty()) {
    const base::Node before = weights::parse_model_config(source, bundle::kSourceConfig);
    const bool same = format.claims(before) && read_back(before) == base::write_options(options) &&
                      bundle::says_image_facts(before, format, facts, classes);
    if (same) return source;
  }
  return base::to_json(config) + "\n";
}

/// Between Mnemo's names and those of other libraries; weights stay as they are.
int to_format(const ConvertArguments& options) {
  const bool ours = options.to == "mnemo";
  const weights::ForeignFormat* format = ours ? nullptr : &weights::foreign_format(options.to);
  base::require(!options.features && options.seed == 0, "convert: --features and --seed go with --to t2r");
  const std::string folder = experiment::model_folder(options.model);
  const bundle::AnyModel loaded = bundle::load_any(folder);
  const models::ModelOptions& found = models::options_of(*loaded.model);
  bundle::ModelFolder content;
  content.card = card_of(options, *loaded.model, folder);
  if (ours) {
    content.config = base::to_json(base::write_options(found)) + "\n";
    content.weights.tensors = weights::model_tensors(*loaded.model);
    content.vocabulary = loaded.format != nullptr ? bundle::image_files_of(folder) : experiment::files_beside(folder);
  } else {
    base::require(found.backbone.type == format->backbone,
                  "convert: --to {}: expected a model of backbone.type = \"{}\", found \"{}\"", options.to,
                  format->backbone, found.backbone.type);
    content.config = config_for(*format, loaded, folder, content.vocabulary);
    content.weights.tensors = weights::to_theirs(*format, weights::model_tensors(*loaded.model));
    content.weights.metadata = format->metadata;
  }
  bundle::write_model_folder(options.out, content);
  base::print(fmt::format("{}: {} parameters under {} names\n", options.out,
                          base::grouped(loaded.model->parameters().count()), options.to));
  return base::kDone;
}

int convert(const ConvertArguments& options) {
  std::vector<std::string> known = {"t2r", "mnemo"};
  for (const weights::ForeignFormat& format : weights::foreign_formats()) known.emplace_back(format.name);
  base::require(!options.to.empty(), "convert: --to: expected one of {}, found none", fmt::join(known, ", "));
  base::require(std::find(known.begin(), known.end(), options.to) != known.end(), "convert: --to: unknown kind '{}'{}",
                options.to, base::suggestion(options.to, known));
  base::require(!options.out.empty(), "convert: --out: expected a folder, found none");
  return options.to == "t2r" ? to_t2r(options) : to_format(options);
}

std::string kinds_text() {
  std::string text =
      "t2r: replace softmax attention by linear attention with learned features; mnemo: import a folder of another "
      "library (detected from its config.json)";
  for (const weights::ForeignFormat& format : weights::foreign_formats())
    text += fmt::format("; {}: {}", format.name, format.about);
  return text;
}

}  // namespace

void add_convert(CLI::App& app) {
  auto options = std::make_shared<ConvertArguments>();
  Command(app, "convert", "convert a trained model to another attention, or from and to the format of another library")
      .argument("MODEL", options->model, "model folder or run folder")
      .option("--to", options->to, "KIND", kinds_text())
      .option("--out", options->out, "FOLDER", "folder for the new model")
      .option("--features", options->features, "N", "features per head (default 32)")
      .option("--seed", options->seed, "N", "seed of the new feature maps (default 0)")
      .footer(
          "mnemo convert vit_small_patch16_224 --to mnemo --out vit\n"
          "mnemo convert runs/mine --to t2r --out runs/t2r\n"
          "mnemo train recipes/text.toml --init runs/t2r --set "
          "'model.backbone.attention={type=\"linear\",feature_map=\"t2r\"}'")
      .action([options] { return convert(*options); });
}

}  // namespace mnemo::cli
