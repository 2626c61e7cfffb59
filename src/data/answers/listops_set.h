#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/option_rules.h"
#include "base/options.h"
#include "data/answers/labelled.h"
#include "data/answers/listops.h"

namespace mnemo::data {

/// `[data] type = "listops"`: files of Long Range Arena, or made expressions. The defaults are the arena's.
struct ListOpsOptions {
  std::string train;
  std::string valid;
  std::string test;
  int64_t train_samples = 96000;
  int64_t valid_samples = 2000;
  int64_t test_samples = 2000;
  int64_t max_depth = 10;
  int64_t max_args = 10;
  int64_t min_length = 500;
  int64_t max_length = 2000;
  int64_t seed = 0;
  std::string pad = "max_length";
  std::string loss = "last";

  template <class V>
  void visit(V&& v) {
    v("train", train,
      "path of the training expressions (basic_train.tsv); empty: all three parts are made, from `seed`");
    v("valid", valid, "path of those that are measured while training; empty, where `train` is a file: none");
    v("test", test, "path of those of the part test; empty, where `train` is a file: none");
    v("train_samples", train_samples, "made expressions to train on", base::range(1, 1 << 24));
    v("valid_samples", valid_samples, "made expressions to measure while training", base::range(0, 1 << 24));
    v("test_samples", test_samples, "made expressions of the part test", base::range(0, 1 << 24));
    v("max_depth", max_depth, "made: operators inside one another, and one", base::range(1, 64));
    v("max_args", max_args, "made: arguments of an operator, at most", base::range(2, 1024));
    v("min_length", min_length, "made: tokens of an expression without parentheses are more than this",
      base::range(0, 1 << 20));
    v("max_length", max_length, "made: and fewer than this; of a file: an expression's first tokens that are read",
      base::range(2, 1 << 20));
    v("seed", seed, "of made expressions: another seed is another data set", base::at_least(0));
    v("pad", pad,
      "where a document is one segment: up to max_length, as the arena does, or up to the longest one of a batch",
      base::one_of("max_length", "batch"));
    v("loss", loss, "where a document is several segments: the label is asked after the last, or after every one",
      base::one_of("last", "every"));
  }
  void validate(const base::Where& where) const;

  ListOpsShape shape() const { return {max_depth, max_args, min_length, max_length}; }
};

/// Calls `use` with made expressions, none twice: train_samples, then valid_samples, then test_samples, until it
/// returns false. Throws InputError where there are not so many of that shape.
void make_listops(const ListOpsOptions& options, const std::function<bool(Part, const ListOpsExpression&)>& use);

/// Calls `use` with the expressions of a file: the arena's, below a line "Source<TAB>Target", or the first authors',
/// "value<TAB>expression". Throws InputError naming file, line and column.
void read_listops(const std::string& path, const std::function<void(const ListOpsExpression&)>& use);

/// The documents that the options speak of; the label is the value.
LabelledSets load_listops(const ListOpsOptions& options);

}  // namespace mnemo::data
