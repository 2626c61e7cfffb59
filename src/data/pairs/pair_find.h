#pragma once

#include <optional>
#include <string>

#include "data/pairs/pair_text.h"

namespace mnemo::data {

/// Recognises a table of sentences and their translations by its first lines, or a folder of such tables; nothing if
/// the path has other data. Source and target are the first two columns of words; a first line with names of columns or
/// languages is a header. CSV has to have such a header, or two columns alone.
std::optional<PairTextOptions> find_pairs(const std::string& path);

}  // namespace mnemo::data
