#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bundle/bundle.h"
#include "search/generation_options.h"

namespace mnemo::infer {

/// The search of a published model's folder, or of ours converted from one: from generation_config.json, else
/// config.json. Unset if there is neither file. Throws InputError naming file and key, also for an unsupported search;
/// warns about settings for sampling.
std::optional<search::GenerationOptions> generation_settings(const bundle::Bundle& stored);
/// The search of a folder with a translation model. published: whether its config.json is another library's.
std::optional<search::GenerationOptions> generation_settings(const std::string& folder, bool published,
                                                             const models::ModelOptions& model);

/// The tokens that end a published model's texts: eos_token_id of generation_config.json, or of config.json where there
/// is none; in a folder of ours that was converted from one, of the same files. Empty: nothing ends them. Throws
/// InputError naming the file for an entry that is neither a number nor a list of them.
std::vector<int64_t> end_tokens(const bundle::Bundle& stored);

}  // namespace mnemo::infer
