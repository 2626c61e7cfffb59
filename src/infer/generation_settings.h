#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bundle/bundle.h"
#include "search/generation_options.h"

namespace mnemo::infer {

/// What a published model's folder says of its search: generation_config.json, or config.json where there is none; in a
/// folder of ours that was converted from one, the same file. Unset: nothing. Throws InputError naming file and key,
/// also for a setting that would make it another search; warns of settings that ask to draw.
std::optional<search::GenerationOptions> generation_settings(const bundle::Bundle& stored);
/// The same of a model of pairs in a folder. published: whether its config.json is another library's.
std::optional<search::GenerationOptions> generation_settings(const std::string& folder, bool published,
                                                             const models::ModelOptions& model);

/// The tokens that end a published model's texts: eos_token_id of generation_config.json, or of config.json where there
/// is none; in a folder of ours that was converted from one, of the same files. Empty: nothing ends them. Throws
/// InputError naming the file for an entry that is neither a number nor a list of them.
std::vector<int64_t> end_tokens(const bundle::Bundle& stored);

}  // namespace mnemo::infer
