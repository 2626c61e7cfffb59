#pragma once

#include <optional>
#include <string>

#include "data/answers/labelled_files.h"

namespace mnemo::data {

/// Recognises labelled texts, and the columns to read them with; nothing if the path has other data.
///   a table     its header (its keys in JSON lines) names a label and a text, or two texts of a pair, or a text
///               beside one column of few values; tables of GLUE
///   a folder    of at least two folders, none of them a part (train, test), with at least two .txt files each and
///               nothing else
///   a file      articles-NAME.xml (Hyperpartisan), or a folder with one that has its ground-truth-NAME.xml beside it
/// Throws InputError for a table that has texts and labels but no header line, and says how to read it.
std::optional<LabelledColumns> find_labelled(const std::string& path);

/// The only articles-NAME.xml of a folder that has its ground-truth-NAME.xml beside it; nothing for none or several.
std::optional<std::string> find_articles(const std::string& folder);

}  // namespace mnemo::data
