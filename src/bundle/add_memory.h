#pragma once

#include <map>
#include <string>

#include "base/node.h"
#include "bundle/convert.h"
#include "bundle/load.h"

namespace mnemo::bundle {

/// A table of a recipe from one argument: "recurrent_tokens,num_mem_tokens=16" is {type = "recurrent_tokens",
/// num_mem_tokens = 16}. Throws InputError that names `option` and the part that is not KEY=VALUE.
base::Node table_of_argument(const std::string& argument, const std::string& option);

/// The model in a folder with the additions of the options, of which a file of LoRA records those of its training. The
/// weights of the file are not merged.
AnyModel model_with_additions(const std::string& folder, const ConvertOptions& options);

/// Adds memories to a trained model of texts, or another attention in place of its own: every weight that both have
/// stays as it is, the others are drawn from `seed`. Throws InputError for what does not fit the model.
Converted add_memory(const ConvertOptions& options);

/// The complete [model] table of the model in a folder.
base::Node model_table(const std::string& folder);

/// Files of a published text model beside configuration, weights and card: its tokenizer, its config.json as
/// source_config.json, the names of its classes, and how it wants to be searched.
std::map<std::string, std::string> text_files_of(const std::string& folder);

}  // namespace mnemo::bundle
