#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/node.h"
#include "data/pairs/pair_text.h"

namespace mnemo::data {

/// Recognises a table of sentences and their translations by its first lines, or a folder of such tables; nothing if
/// the path has other data. Source and target are the first two columns of words; a first line with names of columns or
/// languages is a header. CSV has to have such a header, or two columns alone. JSON lines have pair_keys().
std::optional<PairTextOptions> find_pairs(const std::string& path);

/// Where the objects of JSON lines have source and target: keys for member_at().
struct PairKeys {
  std::string source, target;
};

/// The keys of an object whose texts are a pair, {"source": .., "target": ..}, {"src": .., "tgt": ..},
/// {"translation": {"en": .., "de": ..}} and their like; nothing for others.
std::optional<PairKeys> pair_keys(const base::Node& record);

/// The member of an object with that key, or at "KEY.KEY" inside one of its objects; null if there is none.
const base::Node* member_at(const base::Node& record, std::string_view key);

/// The keys of an object, for messages.
std::string key_names(const base::Node& record);

}  // namespace mnemo::data
