#pragma once

#include <string>
#include <vector>

#include "base/node.h"
#include "bundle/bundle.h"
#include "recipes/recipe.h"
#include "tasks/task.h"

// Whether the data of a run are still those that its model was trained on.
namespace mnemo::experiment {

/// Throws InputError for data whose classes are no longer the model's.
void require_same_classes(const std::vector<std::string>& found, const bundle::Bundle& stored);

/// The recipe; a detector's with the classes of the model, by whose names annotations are matched.
recipes::Recipe with_own_classes(recipes::Recipe recipe, const bundle::Bundle& stored);

/// Warns where the run's training data have changed: a part that is drawn from them then holds samples that the model
/// was trained on. data: the recipe's.
void warn_of_changed_data(const tasks::Task& task, const base::Node& data, const bundle::Bundle& stored);

}  // namespace mnemo::experiment
