#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/node.h"
#include "data/answers/listops_set.h"

namespace mnemo::data {

/// One file that was prepared.
struct PreparedPart {
  std::string name;  ///< "train", "valid" or "test"
  std::string path;
  int64_t bytes = 0;
  int64_t documents = 0;
  int64_t tokens = 0;  ///< of the unit that the data set is read in
};

/// A data set ready to be trained on: its parts, and data.toml beside them, a recipe's [data] that a recipe may name as
/// its `base`.
struct Prepared {
  std::string recipe;  ///< path of data.toml
  std::vector<PreparedPart> parts;
};

/// enwik8 (the first 100,000,000 bytes of an English Wikipedia dump), or its first 4,000,000: 90, 5 and 5 % of the
/// bytes, in that order, to the byte. Throws InputError for another size or content, naming file, size expected and
/// found.
Prepared prepare_enwik8(const std::string& file, const std::string& out);

/// WikiText ("wikitext-2" or "wikitext-103", word level): a folder with wiki.train.tokens, wiki.valid.tokens and
/// wiki.test.tokens, or train.txt, valid.txt and test.txt. Words and line ends of each part, and different words of the
/// training part, must be as published (Merity et al. 2016, table 1). Documents are articles.
Prepared prepare_wikitext(const std::string& name, const std::string& folder, const std::string& out);

/// Every file below a folder, in the order of their names, as a text of documents: valid_fraction and test_fraction of
/// the bytes, the last ones, in whole documents. Hidden and empty files are left out. Throws InputError for a file that
/// is no UTF-8.
Prepared prepare_text(const std::string& folder, const std::string& out, double valid_fraction, double test_fraction);

/// Long ListOps in the arena's files: made from the options, or, where `folder` is not empty, checked line by line.
Prepared prepare_listops(const std::string& folder, const std::string& out, const ListOpsOptions& options);

/// The names that `mnemo data prepare` knows, and where a user gets each.
struct DataSource {
  std::string_view name, what, from;
};
const std::vector<DataSource>& data_sources();

/// For a terminal.
std::string to_text(const Prepared& prepared);
base::Node to_node(const Prepared& prepared);

}  // namespace mnemo::data
