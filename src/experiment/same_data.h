#pragma once

#include <string>
#include <vector>

#include "base/node.h"
#include "bundle/bundle.h"
#include "recipes/recipe.h"
#include "tasks/task.h"
#include "text/tokenizer.h"

// Whether the data of a run are still those that its model was trained on.
namespace mnemo::experiment {

/// Throws InputError for data whose classes are no longer the model's.
void require_same_classes(const std::vector<std::string>& found, const bundle::Bundle& stored);

/// Throws InputError for data whose vocabulary is not the model's any more. found: null for data without one.
void require_same_tokens(const text::Tokenizer* found, const bundle::Bundle& stored);

/// A detector's recipe with the classes of the model, by whose names annotations are matched.
recipes::Recipe with_own_classes(recipes::Recipe recipe, const bundle::Bundle& stored);

/// Warns where the run's training data have changed and `part` is drawn from them: it may then hold samples that the
/// model was trained on. Knows nothing of plain texts, whose position has no fingerprint. data: the recipe's.
void warn_of_changed_data(const tasks::Task& task, const base::Node& data, data::Part part,
                          const bundle::Bundle& stored);

}  // namespace mnemo::experiment
