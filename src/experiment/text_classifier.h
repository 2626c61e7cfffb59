#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "base/stop.h"
#include "bundle/bundle.h"
#include "data/answers/labelled_text.h"
#include "infer/class_shares.h"
#include "recipes/recipe.h"
#include "tasks/classification.h"

namespace mnemo::experiment {

/// A stored classifier of texts. The recipe of its run sets how many tokens of a text it reads, and which segments may
/// be short. Without a run it reads the whole text if the model has a memory, else the first segment.
class TextClassifier {
 public:
  /// recipe: that of its run. Throws InputError "WHO: ..." for a model of another kind, and for one without a
  /// vocabulary.
  TextClassifier(const bundle::Bundle& stored, const std::optional<recipes::Recipe>& recipe, std::string_view who);

  /// Its classes; without names, or with LABEL_0 and so on, they are numbers.
  const bundle::ModelHead& head() const { return head_; }
  /// The columns of its run's tables.
  const data::LabelledTextOptions& columns() const { return columns_; }
  /// How documents are divided into segments.
  tasks::ClassificationOptions segments() const;
  /// Texts as the model reads them. Throws InputError that names file and line for a text without tokens, invalid UTF-8
  /// and a pair without a token for what is between its texts.
  data::LabelledSets encode(const data::LabelledTextSets& sets) const;

  /// The `top` most likely classes of each text, whose labels do not count. Texts that were read are added to `count`.
  /// should_stop: asked before each segment; then throws base::Stopped.
  struct ReadCount {
    int64_t words = 0, unknown = 0, cut = 0;
  };
  std::vector<std::vector<infer::ClassShare>> operator()(data::LabelledTextList texts, int64_t top, ReadCount& count,
                                                         const base::ShouldStop& should_stop = {}) const;
  /// Warns of texts that were cut and of words that the vocabulary lacks; `where`: of what.
  void report_left_out(const ReadCount& count, const std::string& where) const;

 private:
  std::shared_ptr<const models::Model> model_;
  std::shared_ptr<const text::Tokenizer> tokenizer_;
  bundle::ModelHead head_;
  data::LabelledTextOptions columns_;
  int64_t max_length_ = 0;
};

}  // namespace mnemo::experiment
