#pragma once

#include "base/node.h"

namespace mnemo::recipes {

/// Whether a table names a file, a folder or a preset under the key.
bool names_one(const base::Node& table, const char* key);
/// Whether the recipe starts from a published model that has its tokenizer.
bool starts_with_tokenizer(const base::Node& recipe);
/// A recipe whose [model] is that of the folder it starts `from`, under the other keys, with the folder as `init`.
base::Node with_folder(const base::Node& recipe);

}  // namespace mnemo::recipes
