#pragma once

// The library in one header: load a model folder and use it, train and compare models from recipes, look into them.
// It includes nothing of LibTorch. Where it is too coarse, `Bundle::parts()` leads to the rooms below
// (<mnemo/bundle/bundle.h>, <mnemo/infer/text_session.h>); docs/library.md shows both.
//
// Wrong input throws mnemo::InputError, which names what was wrong, where, what was expected and what was found;
// options are called there as on the command line. Any other exception is a fault of the library.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"

namespace mnemo {

namespace bundle {
struct Bundle;
}
namespace experiment {
struct Inspection;
}
namespace infer {
class TextSession;
}

using base::InputError;

struct LoadOptions {
  std::string device = "cpu";   ///< "cpu", "cuda" or "cuda:N"
  std::string checkpoint = {};  ///< of a run: "latest", "best" or a step; empty: its model, or before it has one the
                                ///< best checkpoint
};

/// How a text is written. A token is picked from p = softmax(logits / temperature): from the top_k likeliest, and of
/// these from the fewest that hold top_p of the probability.
struct GenerateOptions {
  int64_t max_tokens = 256;
  double temperature = 0.8;    ///< 0: always the likeliest token
  int64_t top_k = 0;           ///< 0: all
  double top_p = 1.0;          ///< 1: all
  int64_t seed = 0;            ///< of the random numbers; the same seed gives the same text
  std::string precision = {};  ///< of the decoding engine's weights: "float32", "bf16" or "int8"; empty: float32 where
                               ///< the engine can run the model, else the model itself
};

/// How a model is measured.
struct EvaluateOptions {
  std::string part = {};       ///< "valid", "test" or "train" of the run's own data, or of a set of images
  std::string documents = {};  ///< of a text, where a document ends: "none", "blank_line", "heading" or "line"
  std::string separator = {};  ///< the line that ends a document, for documents = "line"
  std::string reset = {};      ///< memory starts again at "documents" alone or at "segments"; empty: as it was trained
  std::string precision = {};  ///< by the decoding engine: "float32", "bf16" or "int8"; empty: as it was trained
  std::string task = {};       ///< of a model of images: the head that is measured; empty: "base", or the run's task
  int64_t segment_size = 0;    ///< tokens a segment; 0: the model's
  int64_t batch = 1;           ///< parts of a text, or samples, side by side
};

using Metrics = std::vector<std::pair<std::string, double>>;

/// What a model reaches on data.
struct Evaluation {
  std::string data;         ///< what was measured, in a few words
  int64_t predictions = 0;  ///< targets
  Metrics metrics;  ///< of a text: nll (nats a token), bits_per_character or the like, perplexity; of classes: accuracy
  /// A metric by name. Throws InputError for a name that it does not have.
  double at(std::string_view name) const;
};

struct ClassifyOptions {
  std::vector<std::string> tasks = {};  ///< these heads alone; empty: all
  int64_t top = 5;                      ///< classes of each head
  int64_t batch = 8;                    ///< images run side by side
  bool skip_broken = false;             ///< an image that cannot be read is left out instead of an error
};

struct Label {
  std::string name;
  double probability = 0;
};

/// What one head says of an image.
struct TaskAnswer {
  std::string task;           ///< "base": the model's own head; else an attached task's name
  std::vector<Label> labels;  ///< the likeliest first
};

struct ImageAnswer {
  std::string image;              ///< its path
  std::string error;              ///< why it was skipped; empty: it was not
  std::vector<TaskAnswer> tasks;  ///< a head each
};

/// What is asked of `inspect` beside what can be said without running a model on data.
struct InspectOptions {
  std::vector<std::string> set = {};  ///< "KEY=VALUE" of a recipe
  std::string variant = {};           ///< of a recipe with studies: "VARIANT" or "STUDY/VARIANT"
  std::string text = {};              ///< run through a model of texts, to see where attention looks
  std::string image = {};             ///< a file, run through a model of images
  std::string layers = {};            ///< of these, the layers shown: "0", "0,2" or "0-3"; empty: all
  std::string heads = {};             ///< and the heads
  bool cost = false;                  ///< count FLOPs, parameters and bytes of state part by part
  std::string checkpoint = {};        ///< of a run, as in LoadOptions
};

/// A model's parameters, state and attention.
class Inspection {
 public:
  explicit Inspection(std::shared_ptr<const experiment::Inspection> parts) : parts_(std::move(parts)) {}
  int64_t parameters() const;
  int64_t state_bytes() const;  ///< of one sequence between segments, once its memory is full
  std::string text() const;     ///< for a terminal, as `mnemo inspect` prints it
  std::string json() const;
  std::string html(const std::string& title) const;  ///< a page that works offline
  /// What the input did, or who may attend to whom. Throws InputError where there is nothing to draw.
  std::string svg() const;
  /// Everything in typed form (<mnemo/experiment/inspection.h>).
  const experiment::Inspection& parts() const { return *parts_; }

 private:
  std::shared_ptr<const experiment::Inspection> parts_;
};

/// A model as people keep it: with its tokenizer or its image preprocessing, the names of its classes, and the
/// conventions it was trained with, such as data.reset. Copies share the model. Several threads may generate and
/// classify at once.
class Bundle {
 public:
  explicit Bundle(std::shared_ptr<const bundle::Bundle> parts) : parts_(std::move(parts)) {}

  /// The text that goes on from the prompt, without the prompt.
  std::string generate(std::string_view prompt, const GenerateOptions& options = {}) const;
  /// The same as a stream: on_text gets each piece as it comes, whole characters of UTF-8, and ends the text by
  /// returning false. Returns the number of tokens.
  int64_t generate(std::string_view prompt, const std::function<bool(std::string_view)>& on_text,
                   const GenerateOptions& options = {}) const;
  /// A text that stays open: to feed it more, to fork, rewind or save it. Include <mnemo/infer/text_session.h>.
  infer::TextSession text(const GenerateOptions& options = {}) const;
  /// The same, going on from a file that Session::save wrote.
  infer::TextSession resume_text(const std::string& session_file, const GenerateOptions& options = {}) const;

  /// Measures the model on a text, or one of images on the folder of a set.
  Evaluation evaluate(const std::string& data, const EvaluateOptions& options = {}) const;
  /// Measures the model on held-out data of the run that it lies in.
  Evaluation evaluate(const EvaluateOptions& options = {}) const;

  /// What the heads say of an image file (JPEG or PNG).
  std::vector<TaskAnswer> classify(const std::string& image, const ClassifyOptions& options = {}) const;
  /// The same of many images, in order; a folder stands for the images in it.
  std::vector<ImageAnswer> classify(const std::vector<std::string>& images, const ClassifyOptions& options = {}) const;

  Inspection inspect(const InspectOptions& options = {}) const;

  const std::string& folder() const;
  bool is_images() const;
  bool resets_segments() const;  ///< each segment of a text stands alone (data.reset = "segments")
  std::string format() const;    ///< of its folder: "mnemo", or another library's ("timm_vit")
  /// The names of the classes of a head, "base" or a task; none where they have no names.
  std::vector<std::string> labels(const std::string& task = "base") const;
  /// Everything in typed form: model, tokenizer, preprocessing (<mnemo/bundle/bundle.h>).
  const bundle::Bundle& parts() const { return *parts_; }

 private:
  std::shared_ptr<const bundle::Bundle> parts_;
};

/// Reads a model folder, a run's folder (also of a training that goes on), a checkpoint, or a folder of another library
/// (docs/vision.md).
Bundle load(const std::string& folder, const LoadOptions& options = {});

/// Parameters, state, attention and cost of a model folder, a run's folder, a checkpoint or a recipe.
Inspection inspect_model(const std::string& source, const InspectOptions& options = {});

struct TrainOptions {
  std::string out = {};               ///< the run's folder; empty: runs/NAME of the recipe
  std::vector<std::string> set = {};  ///< "KEY=VALUE" of the recipe
  std::string variant = {};           ///< of a recipe with studies
  std::string init = {};              ///< a model folder whose weights it starts from
  std::string device = "cpu";
  bool stop_at_signals = false;  ///< SIGINT and SIGTERM end the training after a checkpoint
  std::function<void(int64_t step, const Metrics& metrics)> on_evaluation = {};
};

struct Training {
  std::string folder;  ///< of the run: recipe, log, checkpoints
  std::string model;   ///< the model's folder; empty where a signal stopped the training
  std::string task;    ///< the task memory that a fine-tuning wrote; empty: none
  int64_t steps = 0, tokens = 0, parameters = 0;
  double seconds = 0;
  Metrics metrics;  ///< on held-out data, at the end
  int signal = 0;   ///< that stopped it; 0: none
};

/// Trains a model from a recipe (TOML, docs/recipes.md), as `mnemo train` and `mnemo finetune` do. Throws InputError
/// where the run's folder holds a run already.
Training train_model(const std::string& recipe, const TrainOptions& options = {});
/// Goes on with a run from its newest checkpoint, bitwise as if it had not stopped. `out`, `variant` and `init` must be
/// empty; `set` may change the run's recipe.
Training resume_training(const std::string& run, const TrainOptions& options = {});

struct CompareOptions {
  std::string out = {};               ///< the folder of the report and of all runs; empty: runs/NAME of the recipe
  std::vector<std::string> set = {};  ///< "KEY=VALUE" of every recipe, or of a study
  int64_t seeds = 0;                  ///< trainings of each variant; 0: the recipe's
  /// A `mnemo` program, which does each training in a process of its own, `jobs` at a time. Empty: they are done here,
  /// one after the other.
  std::string program = {};
  int64_t jobs = 0;  ///< 0: as many as there are cores
  std::string device = "cpu";
};

struct Comparison {
  std::string folder, report;  ///< report: an HTML page that works offline
  std::string text;            ///< the tables, as `mnemo compare` prints them
  std::string json;            ///< results.json
  int signal = 0;              ///< that stopped it; 0: none
  bool complete = false;       ///< every training came to its end
};

/// Trains the variants of a recipe with studies and compares them. Trainings that the folder holds already are kept.
Comparison compare_models(const std::string& recipe, const CompareOptions& options = {});

/// Part of a golden file, compared with this build.
struct GoldenGroup {
  std::string name;  ///< "outputs", "gradients of parameters", ...
  int64_t tensors = 0;
  double error = 0, tolerance = 0;  ///< largest absolute difference, and what is allowed
  std::string worst;                ///< the tensor with that error
};

struct Verification {
  std::string file, what;
  std::vector<GoldenGroup> groups;
  bool passed = false;
};

/// Runs what a golden file holds, or a model folder with an expect.safetensors, and compares.
Verification verify_golden(const std::string& path, const std::string& device = "cpu");

}  // namespace mnemo
