#pragma once

#include "data/prepare/data_set.h"

namespace mnemo::data {

/// WikiText, word level (Merity et al. 2016): a folder with wiki.train.tokens, wiki.valid.tokens and wiki.test.tokens,
/// or train.txt, valid.txt and test.txt. The number of words and line ends of each part, and of distinct words in the
/// training part, must match table 1. Documents are articles.
DataSet wikitext_2();
DataSet wikitext_103();

}  // namespace mnemo::data
