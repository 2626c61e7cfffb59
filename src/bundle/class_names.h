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

/// What another library's folder calls its classes, as the text of classes.txt: `label_names` or `id2label`, if they
/// are as many as the model's classes; of a folder of ours that was converted from one, what that said. Empty where
/// nothing is said that can be honoured, then with a warning.
std::string foreign_class_lines(const std::string& folder);

/// The names of classes in another library's config.json, `label_names` or `id2label`; empty where it has none.
std::vector<std::string> classes_in(const base::Node& config);

/// Puts the names of classes into a config.json of Hugging Face, `id2label` and `label2id`.
void name_classes(base::Node& config, const std::vector<std::string>& classes);

}  // namespace mnemo::bundle
