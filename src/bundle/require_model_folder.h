#pragma once

#include <string>

namespace mnemo::bundle {

/// Throws InputError unless there is a folder. For a name as in a hub of models ("gpt2") it says that Mnemo downloads
/// none, and how to get the folder.
void require_model_folder(const std::string& path);

}  // namespace mnemo::bundle
