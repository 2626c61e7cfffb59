#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/option_rules.h"
#include "base/options.h"
#include "data/answers/labelled.h"
#include "data/answers/labelled_files.h"
#include "text/tokenizer.h"

namespace mnemo::data {

/// `[data] type = "text_classification"`: texts, or pairs of texts, with one label each.
struct LabelledTextOptions {
  std::string train, valid, test;
  double valid_fraction = 0.0, test_fraction = 0.0;
  int64_t folds = 0, fold = 0;
  int64_t seed = 0;
  std::string text_column, second_column, label_column = "label";
  std::vector<std::string> labels;
  std::string tokenizer;
  std::string unit = "words";
  int64_t min_count = 1, max_vocabulary = 0;
  int64_t max_length = 0;
  enum class Align { right, left };
  Align align = Align::right;
  enum class Loss { last, every };
  Loss loss = Loss::last;
  enum class Metric { accuracy, f1, macro_f1, matthews };
  Metric metric = Metric::accuracy;

  template <class V>
  void visit(V&& v) {
    v("train", train,
      "training texts: a table of GLUE (SST-2, CoLA, MRPC, RTE, QNLI, QQP, MNLI) or one of your own (tab-separated "
      "columns, .csv or JSON lines), a folder with a folder of .txt files for each label (IMDB), or Hyperpartisan's "
      "articles-NAME.xml beside its ground-truth-NAME.xml");
    v("valid", valid,
      "validation texts, or a .json file that lists, under \"dev\" or \"valid\", the ids of training articles held out "
      "for validation; empty: valid_fraction of the training texts");
    v("test", test,
      "test texts, or a .json file that lists them under \"test\"; empty: test_fraction of the training texts");
    v("valid_fraction", valid_fraction, "fraction of the training texts used for validation if `valid` is empty",
      base::half_open_range(0, 1));
    v("test_fraction", test_fraction, "fraction of the training texts used for testing if `test` is empty",
      base::half_open_range(0, 1));
    v("folds", folds,
      "cross-validation: the training texts are dealt into so many parts by `seed`, and part `fold` is the validation "
      "text; 0: none",
      base::range(0, 1000));
    v("fold", fold, "cross-validation: which part, from 0", base::range(0, 999));
    v("seed", seed, "seed of the random choice of validation and test texts", base::at_least(0));
    v("text_column", text_column,
      "a table of your own: the column with the text, by its name in the first line, or its key in JSON lines; empty: "
      "a "
      "table of GLUE");
    v("second_column", second_column, "a table of your own: the column with the second text of a pair; empty: none");
    v("label_column", label_column, "a table of your own: the column with the label", base::not_empty());
    v("labels", labels,
      "the labels, in the order of their classes; empty: those of the format, or of the training texts, sorted",
      base::not_empty());
    v("tokenizer", tokenizer,
      "folder of a pretrained model's tokenizer, which also sets the special tokens around a text; empty: a vocabulary "
      "of the training texts");
    v("unit", unit, "without `tokenizer`: what a token is: a byte, a Unicode character, or a word",
      base::one_of("bytes", "characters", "words"));
    v("min_count", min_count, "characters and words that occur less often than this become <unk>", base::at_least(1));
    v("max_vocabulary", max_vocabulary, "maximum vocabulary size for characters or words; 0: no limit",
      base::at_least(0));
    v("max_length", max_length,
      "maximum tokens of a text, special tokens included unless a memory adds its own; longer texts lose their end, in "
      "a pair the longer one first; 0: model.segment_size",
      base::range(0, 1 << 24));
    v("align", align, "texts of several segments: which of them may be short: right: the first, left: the last",
      base::one_of("right", "left"));
    v("loss", loss, "texts of several segments: predict the label after the last or after every segment",
      base::one_of("last", "every"));
    v("metric", metric, "the metric that decides which evaluation is the best; f1: that of the second of two labels",
      base::one_of("accuracy", "f1", "macro_f1", "matthews"));
  }
  void validate(const base::Where& where) const;
};

/// The texts of all parts, and the labels in the order of their classes.
struct LabelledTextSets {
  LabelledTextList train, valid, test;
  std::vector<std::string> labels;

  const LabelledTextList& part(Part part) const {
    return part == Part::train ? train : part == Part::valid ? valid : test;
  }
};

/// Reads one file, or folder, in the columns of the options. Throws InputError if it has no text.
LabelledTexts read_labelled_file(const std::string& path, const LabelledTextOptions& options);

/// All labels of the file's format, else the different ones of its texts: numbers by value, others by their bytes.
std::vector<std::string> labels_of(const LabelledTexts& read);

/// Reads all parts. Throws InputError that names file and line for a label that is none of the labels.
LabelledTextSets read_labelled_texts(const LabelledTextOptions& options);

/// The pretrained tokenizer, or one made of the training texts.
std::shared_ptr<const text::Tokenizer> tokenizer_of(const LabelledTextOptions& options, const LabelledTextSets& sets);

/// How texts become documents.
struct LabelledTextShape {
  bool special_tokens = true;  ///< false: a memory puts its own around the tokens, in place of the outer ones
  bool token_types = false;    ///< the model tells the texts of a pair apart by types
  int64_t max_length = 0;
};

/// The texts as tokens. Throws InputError that names file and line for a text without tokens or invalid UTF-8.
LabelledSets encode_labelled_texts(const LabelledTextSets& sets, const text::Tokenizer& tokenizer,
                                   const LabelledTextShape& shape);

}  // namespace mnemo::data
