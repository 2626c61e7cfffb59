#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/node.h"
#include "bundle/convert.h"
#include "models/model.h"

namespace mnemo::bundle {

/// A table of a recipe from one argument: "recurrent_tokens,num_mem_tokens=16" is {type = "recurrent_tokens",
/// num_mem_tokens = 16}. Throws InputError that names `option` and the part that is not KEY=VALUE.
base::Node table_of_argument(const std::string& argument, const std::string& option);

/// Adds memories to a trained model of texts, or another attention in place of its own: every weight that both have
/// stays as it is, the others are drawn from `seed`. Throws InputError for what does not fit the model.
Converted add_memory(const ConvertOptions& options);

/// The complete [model] table of the model in a folder.
base::Node model_table(const std::string& folder);
/// Fills `model` with the weights of the model in a folder, by our names, and with the memory that belongs to it (GRC's
/// cache); returns the names of the weights that the folder lacks.
/// Throws InputError naming a tensor of another shape.
std::vector<std::string> take_weights(const std::string& folder, models::Model& model);

/// Files of a published text model beside configuration, weights and card: its tokenizer, and its config.json as
/// source_config.json.
std::map<std::string, std::string> text_files_of(const std::string& folder);

}  // namespace mnemo::bundle
