#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/option_rules.h"
#include "base/options.h"
#include "data/answers/labelled.h"
#include "data/answers/listops.h"

namespace mnemo::data {

/// `[data] type = "listops"`: files of Long Range Arena, or generated expressions. The defaults are those of Long Range
/// Arena.
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
  enum class Pad { max_length, batch } pad = Pad::max_length;
  enum class Loss { last, every } loss = Loss::last;

  template <class V>
  void visit(V&& v) {
    v("train", train, "training file (basic_train.tsv); empty: generate all three parts from `seed`");
    v("valid", valid, "validation file; empty, if `train` is a file: none");
    v("test", test, "test file; empty, if `train` is a file: none");
    v("train_samples", train_samples, "number of generated training expressions", base::range(1, 1 << 24));
    v("valid_samples", valid_samples, "number of generated validation expressions", base::range(0, 1 << 24));
    v("test_samples", test_samples, "number of generated test expressions", base::range(0, 1 << 24));
    v("max_depth", max_depth, "generated: maximum nesting depth of operators, plus one", base::range(1, 64));
    v("max_args", max_args, "generated: maximum number of arguments of an operator", base::range(2, 1024));
    v("min_length", min_length, "generated: expressions have more tokens than this, not counting parentheses",
      base::range(0, 1 << 20));
    v("max_length", max_length,
      "generated: expressions have fewer tokens than this; from a file: expressions are truncated to this many tokens",
      base::range(2, 1 << 20));
    v("seed", seed, "seed of the generated expressions", base::at_least(0));
    v("pad", pad,
      "if a document is one segment, pad it to max_length (as the Long Range Arena does) or to the longest of the "
      "batch",
      base::one_of("max_length", "batch"));
    v("loss", loss, "if a document has several segments, predict the label after the last or after every segment",
      base::one_of("last", "every"));
  }
  void validate(const base::Where& where) const;

  ListOpsShape shape() const { return {max_depth, max_args, min_length, max_length}; }
};

/// Calls `use` with generated expressions without duplicates: train_samples, then valid_samples, then test_samples,
/// until it returns false. Throws InputError if there are not enough different expressions of that size.
void make_listops(const ListOpsOptions& options, const std::function<bool(Part, const ListOpsExpression&)>& use);

/// Calls `use` with the expressions of a file: Long Range Arena's, after a line "Source<TAB>Target", or the original
/// authors', "value<TAB>expression". Throws InputError that names file, line and column.
void read_listops(const std::string& path, const std::function<void(const ListOpsExpression&)>& use);

/// The documents described by the options; the label is the value.
LabelledSets load_listops(const ListOpsOptions& options);

}  // namespace mnemo::data
