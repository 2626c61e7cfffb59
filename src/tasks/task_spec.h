#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/node.h"
#include "core/input.h"
#include "data/images/image_options.h"
#include "data/pairs/pair_vocabulary.h"
#include "data/text/corpus.h"
#include "search/generation_options.h"
#include "tasks/task.h"

namespace mnemo::models {
class Model;
struct ModelOptions;
}  // namespace mnemo::models
namespace mnemo::core {
struct RowLimit;
}

namespace mnemo::tasks {

using core::InputKind;

/// Sizes of the data that a model must match.
struct DataShape {
  int64_t vocabulary = 0;     ///< number of distinct tokens
  int64_t num_classes = 0;    ///< for classification; 0: answers are tokens
  int64_t answer_length = 1;  ///< of the longest answer, in tokens
  int64_t length = 0;         ///< tokens of the longest sample; 0 if samples are not sequences processed with memory
  std::optional<int64_t> segment_size = {};  ///< required by data.num_segments
  std::vector<std::string> classes = {};     ///< class names of images
  int64_t source_vocabulary = 0;             ///< of the source of pairs
  bool whole_vocabulary = false;             ///< the model has no other tokens
};

/// The metric that a study of the task compares.
struct MetricInfo {
  std::string name = "accuracy";
  std::string short_name = "accuracy";      ///< for tables in the terminal
  std::string loss_name = "nats a symbol";  ///< unit of the training loss
  bool higher_is_better = true;
  bool percent = true;   ///< shown as a percentage
  bool share = percent;  ///< the share of an evaluation's predictions that are right, so its sampling error is known

  /// Its name in an evaluation: "bits_per_character".
  std::string key() const;
};

/// The keys of [train] used by a task.
struct TaskSettings {
  int64_t batch_size = 16;
  int64_t segments_per_step = 1;
  bool shuffle = false;
  int64_t seed = 0;
  int64_t eval_batch_size = 16;
  int64_t eval_samples = 512;              ///< maximum number of evaluation samples
  int64_t eval_context = 0;                ///< of a text: tokens in front of the scored ones
  int64_t eval_train_samples = 0;          ///< of images: training images that evaluations measure too
  std::optional<int64_t> translated = {};  ///< of pairs: how many an evaluation translates; unset: as the data say
  /// Pairs: the search of a published model, instead of the data's. Called when pairs are translated.
  std::function<std::optional<search::GenerationOptions>()> generation = {};
  int64_t replay = 0;  ///< of a text: segments of earlier steps that a step begins with
  /// Pairs: the vocabularies of a trained model, instead of the data's own. Called when pairs are read.
  std::function<data::PairVocabularies()> vocabularies = {};
};

/// A task with its data loaded.
struct LoadedTask {
  std::unique_ptr<Task> task;
  DataShape shape;
  int64_t tokens_per_row = 0;                             ///< of a step's batch; 1 for images
  std::shared_ptr<const text::Tokenizer> tokenizer = {};  ///< for text
  std::map<std::string, std::string> files = {};          ///< made of the data, for the model folder: name to content
  std::vector<std::string> notices = {};  ///< sentences that a training says once: samples left out and the like
};

/// Options of `mnemo data`.
struct ShowOptions {
  std::optional<std::string> part =
      {};              ///< "train", "valid" or "test"; unset: train, or all parts for data described as a whole
  int64_t count = 5;   ///< samples
  int64_t seed = 0;    ///< for generated samples
  bool check = false;  ///< for images: decode all of them
  bool json = false;   ///< fill `json`, not `text`
};
struct Shown {
  std::string text;
  base::Node json;
  bool sound = true;  ///< false if anything broken was found
};

/// One type of [data]: its options, its requirements on a model, and how to create its Task. Constructing one reads no
/// data. Each type is a derived class in its own file in tasks/types/ and is registered in tasks/registry.cpp. The keys
/// kPathKeys contain paths.
class TaskSpec {
 public:
  explicit TaskSpec(const base::Node& table) : table_(table) {}
  virtual ~TaskSpec() = default;
  TaskSpec(const TaskSpec&) = delete;
  TaskSpec& operator=(const TaskSpec&) = delete;

  static constexpr const char* kPathKeys[] = {"train",        "valid",       "test",      "train_target",
                                              "valid_target", "test_target", "tokenizer", "target_tokenizer"};

  /// The registered name: data.type.
  const std::string& type() const { return table_.at("type").as_string(); }
  /// "[data] of type "NAME"", for error messages.
  std::string title() const;
  /// The kind of model that it needs.
  virtual InputKind input() const { return InputKind::tokens; }
  /// Whether its samples are images with one class each.
  virtual bool classifies_images() const { return false; }
  /// Whether it finds objects in images, which takes a detector.
  virtual bool detects() const { return false; }
  bool suits(const models::ModelOptions& model) const;
  /// Whether train.segments_per_step says how much of each sequence a training step reads; otherwise whole samples.
  virtual bool takes_segments_per_step() const { return true; }
  /// What runs through the model: "tokens" or "images".
  virtual std::string counted() const { return "tokens"; }
  /// Rows that one of them brings to the layers, roughly.
  virtual int64_t rows_of_each() const { return 1; }
  /// Unit the loss is averaged over; counted() by default.
  virtual std::string targets() const { return counted(); }
  /// The text of a language-modelling task, whose model can generate text; null for other tasks.
  virtual const data::TextOptions* text() const { return nullptr; }
  /// The image options, with the size that `model` requires if they leave it open. Throws InputError if the task has no
  /// images.
  virtual data::ImageOptions images(const models::ModelOptions& model) const;

  /// Whether a training may measure samples that it trains on (train.eval_train_samples).
  virtual bool measures_training_samples() const { return false; }
  /// Whether show() can check every sample.
  virtual bool can_check() const { return false; }
  /// Whether show() prints samples; other data are described as a whole.
  virtual bool shows_samples() const { return text() == nullptr; }
  /// One sentence for the model card.
  virtual std::string describe() const = 0;
  virtual MetricInfo metric() const { return {}; }
  /// Other metrics of its evaluations that a study may compare instead ([[study]] metric).
  virtual std::vector<MetricInfo> more_metrics() const { return {}; }
  /// The metric with that name in an evaluation ("result_accuracy"); metric() for an empty one. Throws InputError,
  /// naming all there are.
  MetricInfo metric_named(const std::string& key) const;
  /// Accuracy of guessing; nothing if unknown.
  virtual std::optional<double> chance(const models::ModelOptions& model) const;
  /// The recipe in recipes/ to begin with for the user's own data ("text"); empty: none.
  virtual std::string starting_recipe() const { return {}; }
  /// Whether it makes its samples where data.train is empty.
  virtual bool makes_samples() const { return false; }
  /// Throws InputError that names the key and the remedy if data.train is a path where nothing is, or is empty though
  /// the task makes no samples.
  void require_data() const;
  /// Whether samples are generated on demand, so that an evaluation of "all" would never end.
  virtual bool endless() const { return false; }

  /// Whether `model` takes a setting from the data: vocabulary, number of classes or segment size.
  virtual bool completes(const models::ModelOptions& model) const;
  /// What data of this kind often have, for a recipe that names none; nothing where it names some, or where there is no
  /// usual answer.
  virtual std::optional<DataShape> usual_shape() const { return {}; }
  /// Reads only as much of the data as needed.
  virtual DataShape shape(const models::ModelOptions& model) const = 0;
  /// Segment size required by the data for any model; nothing if the model's size is used.
  virtual std::optional<int64_t> segment_size() const { return std::nullopt; }
  /// Checks, before reading anything, that the attention supports as many rows as a sequence has tokens. Throws
  /// InputError.
  virtual void require_places(const core::RowLimit&, const models::ModelOptions&) const {}

  /// Loads or generates the data. Throws InputError.
  virtual LoadedTask load(const models::ModelOptions& model, const TaskSettings& settings) const = 0;
  /// Checks that a built model supports the task. Throws InputError.
  virtual void check_model(const models::Model&, const DataShape&) const {}
  /// Files that a model folder needs in addition to weights and vocabulary to read such data again: file name to
  /// content.
  virtual std::map<std::string, std::string> model_files(const models::ModelOptions&) const { return {}; }

  /// A description of the data, or their first samples. Throws InputError for an option that does not apply.
  virtual Shown show(const ShowOptions& options) const = 0;

 protected:
  const base::Node& table() const { return table_; }

 private:
  base::Node table_;
};

}  // namespace mnemo::tasks
