#pragma once

#include <string>
#include <vector>

#include "base/node.h"

namespace mnemo::bundle {

inline constexpr const char* kClassesFile = "classes.txt";

/// The class names from classes.txt of a model folder, one per line, or from the files of another library; empty if
/// there are neither.
std::vector<std::string> class_names(const std::string& folder);

/// Whether they are the names that transformers gives to classes without any: LABEL_0, LABEL_1 and so on.
bool are_numbered(const std::vector<std::string>& names);

/// Class names of another library's folder, as the text of classes.txt: from `label_names` or `id2label`, if there are
/// as many as the model has classes. A folder of ours keeps the names of the folder that it was converted from. Empty
/// if there are none; warns if there are some that cannot be used.
std::string foreign_class_lines(const std::string& folder);

/// The names of classes in another library's config.json, `label_names` or `id2label`; empty where it has none.
std::vector<std::string> classes_in(const base::Node& config, int64_t num_classes);

/// Puts the names of classes into a config.json of Hugging Face, `id2label` and `label2id`.
void name_classes(base::Node& config, const std::vector<std::string>& classes);

}  // namespace mnemo::bundle
