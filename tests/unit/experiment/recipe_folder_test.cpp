#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "base/error.h"
#include "experiment/experiment.h"
#include "models/model.h"
#include "recipes/recipe.h"
#include "train/optimiser.h"
#include "train/schedule.h"

// Tests the recipes in recipes/.
namespace mnemo::experiment {
namespace {

const std::filesystem::path kFolder = std::filesystem::path(MNEMO_SOURCE_DIR) / "recipes";

std::vector<std::string> names() {
  std::vector<std::string> found;
  for (const auto& entry : std::filesystem::directory_iterator(kFolder)) found.push_back(entry.path().stem().string());
  std::sort(found.begin(), found.end());
  return found;
}

/// Reduced recipes around a published model, which users bring with its tokenizer and texts.
const std::set<std::string> kPublished = {"hyperpartisan_small", "abc_masked_text_small"};

recipes::RecipeFile file_of(const std::string& name) {
  return recipes::RecipeFile::read((kFolder / (name + ".toml")).string());
}

bool reads_images(const recipes::Recipe& recipe) { return recipe.task()->input() == tasks::InputKind::images; }
bool writes_text(const recipes::Recipe& recipe) { return recipe.task()->text() != nullptr; }

/// The model of an image recipe whose data is not available: with ten classes if the recipe leaves them to the data or
/// trains another task.
models::ModelOptions image_model(const recipes::Recipe& recipe) {
  if (recipe.finetune) {
    models::FinetuneOptions finetune = *recipe.finetune;
    finetune.sees.clear();  // they are attached to the model in its folder
    return models::plan_finetuning(recipe.model, finetune, std::vector<std::string>(10, "class")).options;
  }
  models::ModelOptions model = recipe.model;
  if (model.num_classes() == 0) model.set_num_classes(10);
  return model;
}

/// The number of parameters from the declarations alone, with a vocabulary if the recipe leaves that to a text.
int64_t parameters_of(const recipes::Recipe& recipe) {
  if (reads_images(recipe)) return models::count_parameters(image_model(recipe));
  models::ModelOptions model = recipe.model;
  if (recipe.data.contains("tokenizer")) {  // a text that is not here
    if (model.embedding.vocab_size == 0)
      model.embedding.vocab_size = recipe.data.at("unit").as_string() == "bytes" ? 256 : 500;
    if (model.num_classes() == 0) model.set_num_classes(2);
  } else if (recipe.task()->completes(recipe.model)) {
    const tasks::DataShape shape = recipe.task()->shape(recipe.model);
    model.embedding.vocab_size = shape.vocabulary;
    if (shape.segment_size) model.segment_size = *shape.segment_size;
    if (shape.num_classes > 0) model.set_num_classes(shape.num_classes);
  }
  return models::count_parameters(model);
}

void for_each_recipe(const std::string& name,
                     const std::function<void(const std::string&, const recipes::Recipe&)>& visit) {
  const recipes::RecipeFile file = file_of(name);
  if (file.studies().empty()) return visit(name, recipes::read_recipe(file.recipe()));
  for (const recipes::RecipeStudy& study : file.studies()) {
    for (const recipes::RecipeVariant& variant : study.variants) {
      for (size_t p = 0; p < study.points.size(); ++p) {
        if (variant.recipes[p])
          visit(study.name + "/" + study.title(variant, p), recipes::read_recipe(*variant.recipes[p]));
      }
    }
  }
}

int64_t parameters_of(const std::string& name, const std::string& variant) {
  return parameters_of(recipes::read_recipe(file_of(name).recipe(variant)));
}

TEST(RecipeFolder, EveryRecipeMakesAModelAnOptimiserAndASchedule) {
  const layers::ParameterSet nothing;
  for (const std::string& name : names()) {
    size_t count = 0;
    for_each_recipe(name, [&](const std::string& variant, const recipes::Recipe& recipe) {
      ++count;
      try {
        EXPECT_GT(parameters_of(recipe), 1000) << name << ": " << variant;
        // Groups of parameters need the names of a model's.
        const base::Node* groups = recipe.train.optimiser.find("param_groups");
        const std::shared_ptr<core::Model> grouped = groups != nullptr && groups->size() > 0
                                                         ? models::build(image_model(recipe))
                                                         : nullptr;
        train::make_optimiser(recipe.train.optimiser, grouped ? grouped->parameters().all() : nothing.all());
        train::make_schedule(recipe.train.schedule, recipe.train.steps);
      } catch (const std::exception& error) {
        ADD_FAILURE() << name << ": " << variant << ": " << error.what();
      }
    });
    EXPECT_GT(count, 0u) << name;
  }
}

// Built, not only counted: a model that fits on a CPU must also pass the checks that need a whole model.
TEST(RecipeFolder, EveryReducedModelCanBeBuilt) {
  for (const std::string& name : names()) {
    if (!name.ends_with("_small") || kPublished.contains(name)) continue;
    for_each_recipe(name, [&](const std::string& variant, const recipes::Recipe& recipe) {
      recipes::Recipe small = recipe;
      if (writes_text(small) && small.model.embedding.vocab_size == 0) small.model.embedding.vocab_size = 300;
      try {
        const std::shared_ptr<core::Model> model = reads_images(small) ? models::build(image_model(small))
                                                                       : build_model(small);
        EXPECT_LT(model->parameters().count(), 2'000'000) << name << ": " << variant;
      } catch (const std::exception& error) {
        ADD_FAILURE() << name << ": " << variant << ": " << error.what();
      }
      EXPECT_LE(recipe.train.steps, 4000) << name << ": " << variant;
    });
  }
}

TEST(RecipeFolder, EveryPapersExperimentHasAReducedOneBesideIt) {
  const std::vector<std::string> all = names();
  const std::set<std::string> known(all.begin(), all.end());
  for (const char* paper : {"rmt_algorithmic", "rmt_quadratic", "rmt_wt103", "rmt_enwik8", "abc_wt103", "grc_wt103",
                            "grc_listops", "learnable_memory", "abc_translation", "abc_documents", "grc_translation"}) {
    for (const std::string& name : {std::string(paper), std::string(paper) + "_small"}) {
      ASSERT_TRUE(known.contains(name)) << name;
      const recipes::RecipeFile file = file_of(name);
      for (const recipes::RecipeStudy& study : file.studies()) {
        EXPECT_FALSE(study.sweep.seeds.empty()) << name << ": " << study.name;
        if (name.ends_with("_small")) {
          EXPECT_GE(study.sweep.seeds.size(), 3u) << name << ": " << study.name;
        }
        // Figure 11 of the paper is a picture without numbers.
        const bool no_numbers = study.name == "Segments of 512 bytes" || study.name.ends_with("half the memory");
        EXPECT_FALSE(study.paper.empty() && !no_numbers) << name << ": " << study.name;
      }
    }
  }
}

TEST(RecipeFolder, FullSizesAreThePapers) {
  EXPECT_EQ(parameters_of("rmt_wt103", "Segments of 150 words/Tr-XL 150"), 151'107'538);  // published: 151 M
  EXPECT_EQ(parameters_of("grc_wt103", "Base/Transformer-XL"), 151'107'538);
  EXPECT_EQ(parameters_of("abc_wt103", "16 layers/softmax, slots 32"), 246'932'928);  // published: 247 M
  // One control for all layers adds 8 heads of 32 slots, each 1,024 wide.
  EXPECT_EQ(parameters_of("abc_wt103", "16 layers/ABC-MLP, slots 32") -
                parameters_of("abc_wt103", "16 layers/softmax, slots 32"),
            8 * 32 * 1024);
}

}  // namespace
}  // namespace mnemo::experiment
