#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/node.h"
#include "data/images/image_options.h"
#include "data/text/corpus.h"
#include "models/make_attention.h"
#include "models/model.h"
#include "tasks/task.h"

namespace mnemo::tasks {

using core::InputKind;

/// What the data ask of a model.
struct DataShape {
  int64_t vocabulary = 0;     ///< different tokens
  int64_t num_classes = 0;    ///< of data that are classified; 0: the answer is tokens
  int64_t answer_length = 1;  ///< in tokens, of the longest one
  int64_t length = 0;  ///< tokens of the longest sample; 0 where a sample is no sequence that memory runs through
  std::optional<int64_t> segment_size = {};  ///< that data.num_segments asks for
  std::vector<std::string> classes = {};     ///< their names, of images
};

/// The number that a study of the task compares.
struct MetricInfo {
  std::string name = "accuracy";
  std::string short_name = "accuracy";      ///< for a terminal's table
  std::string loss_name = "nats a symbol";  ///< unit of the training loss
  bool higher_is_better = true;
  bool percent = true;  ///< shown as a percentage
};

/// The keys of [train] that a task reads.
struct TaskSettings {
  int64_t batch_size = 16;
  int64_t segments_per_step = 1;
  bool shuffle = false;
  int64_t seed = 0;
  int64_t eval_batch_size = 16;
  int64_t eval_samples = 512;  ///< an evaluation measures at most so many
};

/// A task with its data loaded.
struct LoadedTask {
  std::unique_ptr<Task> task;
  DataShape shape;
  int64_t tokens_per_row = 0;                             ///< of a step's batch, through the model; 1 of an image
  std::shared_ptr<const data::Tokenizer> tokenizer = {};  ///< of a text
};

/// What `mnemo data` is asked to show.
struct ShowOptions {
  std::optional<std::string> part =
      {};              ///< "train", "valid" or "test"; none: train, or all parts of what is described whole
  int64_t count = 5;   ///< samples
  int64_t seed = 0;    ///< of samples that are made
  bool check = false;  ///< of images: decode every one
  bool json = false;   ///< fill `json`, not `text`
};
struct Shown {
  std::string text;
  base::Node json;
  bool sound = true;  ///< nothing broken was found
};

/// One type of [data]: its options as written, what they ask of a model, and how they become a Task. Making one reads
/// no data. Each type derives from it in a file of its own under tasks/types/; tasks/registry.cpp names them all. Paths
/// stand under the keys kPathKeys.
class TaskSpec {
 public:
  explicit TaskSpec(const base::Node& table) : table_(table) {}
  virtual ~TaskSpec() = default;
  TaskSpec(const TaskSpec&) = delete;
  TaskSpec& operator=(const TaskSpec&) = delete;

  static constexpr const char* kPathKeys[] = {"train", "valid", "test"};

  /// The registered name: data.type.
  const std::string& type() const { return table_.at("type").as_string(); }
  /// "[data] of type "NAME"", for messages.
  std::string title() const;
  /// What a model of the task reads.
  virtual InputKind input() const { return InputKind::tokens; }
  /// What a training counts: "tokens" or "images".
  std::string counted() const { return input() == InputKind::images ? "images" : "tokens"; }
  /// The text that a model learns to continue, and so can write; null for anything else.
  virtual const data::TextOptions* text() const { return nullptr; }
  /// The images, in the size that `model` sees where the options leave it open. Throws InputError where the task has
  /// none.
  virtual data::ImageOptions images(const models::ModelOptions& model) const;

  /// One sentence for the model card.
  virtual std::string describe() const = 0;
  virtual MetricInfo metric() const { return {}; }
  /// Accuracy of guessing; nothing where that is not known.
  virtual std::optional<double> chance(const models::ModelOptions& model) const;
  /// Whether samples are made on demand, so that an evaluation of "all" has no end.
  virtual bool endless() const { return false; }

  /// Whether `model` leaves something to the data: a vocabulary, a number of classes, a segment size.
  virtual bool completes(const models::ModelOptions& model) const {
    return model.backbone.input() == InputKind::tokens;
  }
  /// Reads no more of the data than that needs.
  virtual DataShape shape(const models::ModelOptions& model) const = 0;
  /// Tokens of a segment that the data ask for, whatever the model; nothing where the model's size decides.
  virtual std::optional<int64_t> segment_size() const { return std::nullopt; }
  /// Refuses, before anything is read, an attention with fewer places than a sequence has tokens. Throws InputError.
  virtual void require_places(const core::RowLimit&, const models::ModelOptions&) const {}

  /// Loads or makes the data. Throws InputError.
  virtual LoadedTask load(const models::ModelOptions& model, const TaskSettings& settings) const = 0;
  /// Refuses a built model that cannot do the task. Throws InputError.
  virtual void check_model(const models::Model&, const DataShape&) const {}
  /// What a model folder needs beside weights and vocabulary to read such data again: file name to content.
  virtual std::map<std::string, std::string> model_files(const models::ModelOptions&) const { return {}; }

  /// A description of the data, or their first samples. Throws InputError for an option that has no meaning here.
  virtual Shown show(const ShowOptions& options) const = 0;

 protected:
  const base::Node& table() const { return table_; }

 private:
  base::Node table_;
};

}  // namespace mnemo::tasks
