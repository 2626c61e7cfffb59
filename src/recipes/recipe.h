#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/node.h"
#include "base/node_merge.h"
#include "base/options.h"
#include "infer/generate_options.h"
#include "models/finetune.h"
#include "models/options.h"
#include "recipes/recipe_study.h"
#include "tasks/registry.h"
#include "train/options.h"

namespace mnemo::recipes {

/// `[generate]`: options of `generate` and of the samples of a comparison.
struct Writing {
  std::string prompt = "\n";
  int64_t sample_every = 0;
  infer::GenerateOptions options;

  template <class V>
  void visit(V&& v) {
    v("prompt", prompt, "the prompt", base::not_empty());
    options.visit_text(v);
    v("sample_every", sample_every, "steps between samples while training (samples.jsonl and report.html); 0: none",
      base::at_least(0));
    v("sampling", options, "how tokens are sampled");
  }
};

/// One training, as `mnemo train` reads it from a TOML file.
struct Recipe {
  std::string name;
  std::string about;
  base::Node data;  ///< of one of tasks::TaskTypes
  models::ModelOptions model;
  std::optional<std::string> init = {};             ///< set by `[model] from` too
  std::optional<models::FinetuneOptions> finetune;  ///< from a trained model, which [model] must be where it is written
  train::TrainOptions train;
  Writing generate;

  template <class V>
  void visit(V&& v) {
    v("name", name, "a title");
    v("about", about, "description");
    v("data", data, "data and task", base::poly(tasks::TaskTypes::all().options));
    v("model", model,
      "the model; from = \"FOLDER\": a stored model (Mnemo's or a published text model) with its weights");
    v("init", init, "folder of a model whose weights are the initial ones; [model] from sets it");
    v("finetune", finetune, "fine-tune a trained image model on a new task (mnemo finetune)");
    v("train", train, "the training");
    v("generate", generate,
      "texts that a training (sample_every) and compare write; mnemo generate has options of its own");
  }
  Recipe();
  /// The task of [data].
  std::unique_ptr<const tasks::TaskSpec> task() const { return tasks::task_spec(data); }
  /// The keys of [train] that its task reads.
  tasks::TaskSettings task_settings() const;
};

/// A recipe file, with `--set` carried out.
///
/// Beside the keys of a Recipe a file may hold studies, for `compare`:
///
///     [model] …                      common to all
///     [[study]]
///     name = "Held-out text"         and, if need be, study.data, study.model, study.train, study.generate
///     [[study.variant]]
///     name = "no memory"
///     [[study.variant]]
///     name = "segment cache"
///     model.memory = [{ type = "segment_cache", mem_len = 24 }]
///
/// A variant's recipe is the file's, over it the study's tables, over these the variant's, over these a point of the
/// sweep and what is tied to it. Tables are merged key by key; lists, and tables of another `type`, are replaced. Keys
/// set on the command line win over all of them, unless they begin with `study` or `sweep`, which changes the study
/// itself. A file with [sweep] and no study is one study of one variant. `base = "other.toml"` puts a whole other file
/// underneath, and `set = ["key=value", …]` changes keys of it, those of lists too. Relative paths in a file start from
/// its folder, those set on the command line from the current one.
class RecipeFile {
 public:
  /// Throws InputError naming file, line and key. If a `variant` is named, as of `recipe`, the assignments are of it
  /// alone, so the others need not agree with them.
  static RecipeFile read(const std::string& path, const std::vector<std::string>& assignments = {},
                         const std::optional<std::string>& variant = {});

  /// Makes a recipe that is not in a file; messages call it `name`.
  static RecipeFile of(base::Node root, const std::string& name, const std::vector<std::string>& assignments,
                       const std::optional<std::string>& variant = {});

  /// The one recipe of a file without studies, or one variant: "VARIANT" or "STUDY/VARIANT", with a sweep "VARIANT,
  /// POINT" as `compare` shows it. Throws InputError where the file has studies and no variant is named, or the name is
  /// unknown or that of several.
  base::Node recipe(const std::optional<std::string>& variant = {}) const;

  /// Leaves the variants of these names alone, "VARIANT" or "STUDY/VARIANT", at every point of their sweep, and drops
  /// studies without any. Throws InputError for a name that no variant has.
  void keep_only(const std::vector<std::string>& names);

  const std::string& path() const { return path_; }
  const base::Node& root() const { return root_; }
  std::string name() const;
  std::string about() const;
  const std::vector<RecipeStudy>& studies() const { return studies_; }

 private:
  std::string path_;
  base::Node root_;  ///< as written, with assignments
  base::Node base_;  ///< without studies
  std::vector<RecipeStudy> studies_;
};

/// Checks a recipe and fills in every default.
Recipe read_recipe(const base::Node& node);
/// The one recipe of a file, or its `variant` with the assignments of it alone. Throws InputError as RecipeFile does.
Recipe read_recipe_file(const std::string& path, const std::vector<std::string>& assignments = {},
                        const std::optional<std::string>& variant = {});

/// Every key of a recipe, studies included.
std::vector<base::OptionDoc> recipe_docs();
/// The entries whose key, meaning, type or group has all the words, ignoring case. Throws InputError if there are none.
std::vector<base::OptionDoc> find_recipe_docs(const std::vector<std::string>& words);
/// For a terminal of `width` columns; 0: lines are not broken.
std::string recipe_help(const std::vector<base::OptionDoc>& docs, size_t width);

}  // namespace mnemo::recipes
