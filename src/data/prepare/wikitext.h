#pragma once

#include "data/prepare/data_set.h"

namespace mnemo::data {

/// WikiText, word level (Merity et al. 2016): a folder with wiki.train.tokens, wiki.valid.tokens and wiki.test.tokens,
/// or train.txt, valid.txt and test.txt. Words and line ends of each part, and different words of the training part,
/// must be as in table 1. Documents are articles.
DataSet wikitext_2();
DataSet wikitext_103();

}  // namespace mnemo::data
