#pragma once

#include <optional>
#include <string>

#include "data/text/corpus.h"

namespace mnemo::data {

/// How a text for language modelling is read: any file, a pattern, or a folder of texts; nothing for another folder.
///   JSON lines   with the key of the text: a usual name, or the only one that holds a text
///   a folder     with train.txt and valid.txt or test.txt alone: these parts; with at least 64 files: a document each
/// Throws InputError for JSON lines without such a key.
std::optional<TextOptions> find_text(const std::string& path);

/// Throws InputError for a table by its name (.csv, .tsv, also packed), which would become prose with its header and
/// separators; says its first line and how to read it.
void require_no_table(const std::string& path);

}  // namespace mnemo::data
