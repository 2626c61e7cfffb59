#pragma once

#include <string>

#include "data/answers/labelled_files.h"

namespace mnemo::data {

/// The news articles of SemEval-2019 task 4 (Kiesel et al. 2019) as published: articles-NAME.xml, and beside it
/// ground-truth-NAME.xml with the labels "false" and "true" of hyperpartisan. A text is the article's characters
/// without tags; white space is one space. Throws InputError that names file, line and column for XML that is not
/// well-formed or declares a document type, and for an article without a label.
LabelledTexts read_hyperpartisan(const std::string& articles);

}  // namespace mnemo::data
