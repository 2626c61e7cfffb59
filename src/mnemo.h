#pragma once

// The whole library in one header: load and use a model folder, train and compare models from recipes, inspect them. It
// includes nothing of LibTorch. For finer control, `Bundle::parts()` gives access to the classes underneath
// (<mnemo/bundle/bundle.h>, <mnemo/infer/text_session.h>); docs/library.md shows both.
//
// Invalid input throws mnemo::InputError, which says what was wrong, where, what was expected and what was found. It
// refers to options by their command-line names. Any other exception is a bug in the library.

#include <array>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/stop.h"
#include "infer/generate_options.h"

namespace mnemo {

namespace base {
class ConsoleScope;
}
namespace bundle {
struct Bundle;
}
namespace experiment {
struct Inspection;
}
namespace infer {
class EngineCache;
class TextSession;
}  // namespace infer

using base::InputError;
/// A call that ended early because Watch::should_stop asked for it.
using base::Stopped;

/// Sets what decides the speed of the whole process on some machines: MKL takes its fastest instructions on any CPU,
/// and memory of large tensors stays in the process. The first call of main; the program `mnemo` makes it, too. With
/// main's `argv` the process starts itself again, once, with GOMP_SPINCOUNT=1000 in its environment, so that idle
/// threads do not take the time of those they wait for; the same can be set outside. Nothing else of the library
/// belongs to the process but settings of LibTorch: its number of threads, and, once a GPU is named, convolutions in
/// whole float32 (no TF32).
void init(char** argv = nullptr);

/// How far a long call is.
struct Progress {
  std::string_view job;  ///< "train", "compare"
  int64_t done = 0, total = 0;
  std::string_view note;  ///< "loss 2.31"
};

/// Callbacks of a long call. Calls in several threads do not see each other's. A callback must not call the library.
struct Watch {
  /// Asked at least once a step or every 64 rows, in the thread of the call; true, or any number but 0, ends it. A
  /// training and a comparison then end after a checkpoint; other calls throw Stopped.
  base::ShouldStop should_stop = {};
  /// Receives each line of the log ("warning: ..."), also from threads that the call starts; empty: stderr, or what a
  /// Watching of this thread says.
  std::function<void(std::string_view line)> log = {};
  /// Receives the progress of trainings and comparisons; empty: a line of the log every few seconds, and for a training
  /// nothing.
  std::function<void(const Progress&)> progress = {};
};

/// While it lives, log and progress of the calls of this thread go where a watch says, unless their own options say
/// otherwise.
class Watching {
 public:
  explicit Watching(const Watch& watch);
  ~Watching();
  Watching(const Watching&) = delete;
  Watching& operator=(const Watching&) = delete;

 private:
  std::unique_ptr<base::ConsoleScope> scope_;
};

struct LoadOptions {
  std::string device = "cpu";   ///< "cpu", "cuda" or "cuda:N"
  std::string checkpoint = {};  ///< of a run: "latest", "best" or a step; empty: its model, or before it has one the
                                ///< best checkpoint
  Watch watch = {};             ///< for its log
};

/// How text is generated: max_tokens, temperature, stop, seed, precision and more.
using infer::GenerateOptions;

/// How a model is evaluated.
struct EvaluateOptions {
  std::string part = {};       ///< "valid", "test" or "train" of the run's own data, or of an image set
  std::string documents = {};  ///< for a text, where a document ends: "none", "blank_line", "heading" or "line"
  std::string separator = {};  ///< the line that ends a document, for documents = "line"
  std::string reset = {};      ///< reset memory at "documents" only or at "segments"; empty: as in training
  /// Use the decoding engine: "float32", "bf16", "int8", "w8a8", "int4" or "int4_offset"; empty: as in training.
  std::string precision = {};
  std::string kv_precision = {};  ///< the same, with keys and values in "int8"; empty: as GenerateOptions
  std::string task = {};          ///< for image models, the head to evaluate; empty: "base", or the run's task
  int64_t segment_size = 0;       ///< tokens per segment; 0: the model's
  int64_t batch = 1;              ///< parallel parts of a text, or samples per batch
  Watch watch = {};
};

/// A token of a given text.
struct TokenScore {
  int64_t id = 0;
  std::string text;
  double log_probability = 0;  ///< in nats, given the text before it; NaN if there is none
};

using Metrics = std::vector<std::pair<std::string, double>>;

/// The result of an evaluation.
struct Evaluation {
  std::string data;         ///< a short description of the data
  int64_t predictions = 0;  ///< number of targets
  Metrics
      metrics;  ///< for text: nll (nats per token), bits_per_character or similar, perplexity; for classes: accuracy
  /// A metric by name. Throws InputError if there is none with that name.
  double at(std::string_view name) const;
  /// The metrics in order: `for (auto& [name, value] : model.evaluate("other.txt"))`.
  Metrics::const_iterator begin() const { return metrics.begin(); }
  Metrics::const_iterator end() const { return metrics.end(); }
};

struct ClassifyOptions {
  std::vector<std::string> tasks = {};  ///< only these heads; empty: all
  int64_t top = 5;                      ///< number of classes to return per head
  int64_t batch = 8;                    ///< images per batch
  bool skip_broken = false;             ///< skip images that cannot be read instead of throwing
  Watch watch = {};
};

struct Label {
  std::string name;
  double probability = 0;
};

/// The prediction of one head for an image.
struct TaskAnswer {
  std::string task;           ///< "base": the model's own head; else an attached task's name
  std::vector<Label> labels;  ///< most likely first
};

struct ImageAnswer {
  std::string image;              ///< its path
  std::string error;              ///< why it was skipped; empty: it was not skipped
  std::vector<TaskAnswer> tasks;  ///< one per head
};

struct DetectOptions {
  double threshold = 0.5;  ///< objects of a lower score are left out
  int64_t top = 100;       ///< at most so many objects of an image
  bool masks = true;       ///< where the detector has them
};

/// An object that a detector has found.
struct FoundObject {
  std::string label;
  double score = 0;
  std::array<double, 4> box = {};  ///< x1, y1, x2, y2 in pixels, after EXIF's orientation
  std::vector<uint8_t> mask = {};  ///< height x width of the image, row by row, 0 or 1; empty: none
};

/// The objects in an image, by falling score.
struct ImageObjects {
  int64_t height = 0, width = 0;
  std::vector<FoundObject> objects;
  std::string svg;  ///< the image with masks, boxes and labels
};

/// Options of inspect(). Without any, nothing is run on data.
struct InspectOptions {
  std::vector<std::string> set = {};  ///< "KEY=VALUE" overrides of a recipe
  std::string variant = {};           ///< for a recipe with studies: "VARIANT" or "STUDY/VARIANT"
  std::string text = {};              ///< run through a text model, to see where it attends
  std::string image = {};             ///< file to run through an image model
  std::string layers = {};            ///< layers to show for text or image: "0", "0,2" or "0-3"; empty: all
  std::string heads = {};             ///< likewise heads
  bool cost = false;                  ///< count FLOPs, parameters and state bytes of each part
  std::string checkpoint = {};        ///< for a run, as in LoadOptions
};

/// A model's parameters, state and attention.
class Inspection {
 public:
  explicit Inspection(std::shared_ptr<const experiment::Inspection> parts) : parts_(std::move(parts)) {}
  int64_t parameters() const;
  int64_t state_bytes() const;  ///< per sequence between segments, once its memory is full
  std::string text() const;     ///< for a terminal, as `mnemo inspect` prints it
  std::string json() const;
  std::string html(const std::string& title) const;  ///< one HTML file that works offline
  /// A picture of the attention over the input, or of the attention mask. Throws InputError if there is neither.
  std::string svg() const;
  /// All results in typed form (<mnemo/experiment/inspection.h>).
  const experiment::Inspection& parts() const { return *parts_; }

 private:
  std::shared_ptr<const experiment::Inspection> parts_;
};

/// A complete model: with its tokenizer or image preprocessing, class names, and the conventions it was trained with,
/// such as data.reset. Copies share the model, and its weights as they were last packed for generation. Several threads
/// may generate and classify at once.
class Bundle {
 public:
  explicit Bundle(std::shared_ptr<const bundle::Bundle> parts);

  /// Continues the prompt; the result does not include the prompt.
  std::string generate(std::string_view prompt, const GenerateOptions& options = {}) const;
  /// Streaming version: on_text receives each piece as it is generated, always whole UTF-8 characters, and stops the
  /// generation by returning false. Returns the number of tokens.
  int64_t generate(std::string_view prompt, const std::function<bool(std::string_view)>& on_text,
                   const GenerateOptions& options = {}) const;
  /// How likely the model finds each token of a text, after the prompt. Sampling options do not matter.
  std::vector<TokenScore> score(std::string_view text, std::string_view prompt = {}, const Watch& watch = {}) const;
  /// An open text that can be continued, forked, rewound and saved, with the sampling and precision of `options`.
  /// Include <mnemo/infer/text_session.h>.
  infer::TextSession text(const GenerateOptions& options = {}) const;
  /// Same, continuing from a file written by Session::save, with its sampling and the precisions of `options`;
  /// session().set_sampling() changes the sampling.
  infer::TextSession resume_text(const std::string& session_file, const GenerateOptions& options = {}) const;

  /// Evaluates the model on a text, or an image model on the folder of an image set.
  Evaluation evaluate(std::string_view data, const EvaluateOptions& options = {}) const;
  /// Evaluates the model on held-out data of the run that contains it.
  Evaluation evaluate(const EvaluateOptions& options = {}) const;

  /// The predictions of all heads for an image file (JPEG or PNG).
  std::vector<TaskAnswer> classify(const std::string& image, const ClassifyOptions& options = {}) const;
  /// Same for many images, in order; a folder stands for the images in it.
  std::vector<ImageAnswer> classify(const std::vector<std::string>& images, const ClassifyOptions& options = {}) const;
  /// Same for images listed in braces: classify({"a.png", "b.png"}).
  std::vector<ImageAnswer> classify(std::initializer_list<std::string> images,
                                    const ClassifyOptions& options = {}) const;

  /// The objects that a detector finds in an image file (JPEG or PNG). Throws InputError for another model.
  ImageObjects detect(const std::string& image, const DetectOptions& options = {}) const;

  Inspection inspect(const InspectOptions& options = {}) const;

  const std::string& folder() const;
  bool is_images() const;
  bool resets_segments() const;  ///< memory is reset at every segment of a text (data.reset = "segments")
  std::string format() const;    ///< format of its folder: "mnemo", or another library's ("timm_vit")
  /// The class names of a head, "base" or a task; empty if the classes have no names.
  std::vector<std::string> labels(const std::string& task = "base") const;
  /// All components in typed form: model, tokenizer, preprocessing (<mnemo/bundle/bundle.h>).
  const bundle::Bundle& parts() const { return *parts_; }

 private:
  std::shared_ptr<const bundle::Bundle> parts_;
  std::shared_ptr<infer::EngineCache> engines_;
};

/// Loads a model folder, a run folder (also while the training is running), a checkpoint, or a model folder of another
/// library (docs/vision.md).
Bundle load(const std::string& folder, const LoadOptions& options = {});

/// Writes a model with its tokenizer or preprocessing, class names and conventions as a model folder, which load()
/// reads. A folder that holds another model of its kind is replaced. Throws InputError for a model in another library's
/// format (mnemo convert), and for a folder that holds anything else.
void save_model(const std::string& folder, const Bundle& model);

/// Parameters, state, attention and cost of a model folder, a run folder, a checkpoint or a recipe.
Inspection inspect_model(const std::string& source, const InspectOptions& options = {});

struct TrainOptions {
  std::string out = {};               ///< the run folder; empty: runs/NAME of the recipe's file
  std::vector<std::string> set = {};  ///< "KEY=VALUE" overrides of the recipe
  std::string variant = {};           ///< for a recipe with studies
  std::string init = {};              ///< model folder with the initial weights
  std::string device = "cpu";
  Watch watch = {};
  std::function<void(int64_t step, const Metrics& metrics)> on_evaluation = {};
};

struct Training {
  std::string folder;  ///< the run folder: recipe, log, checkpoints
  std::string model;   ///< the model folder; empty if the training was stopped
  std::string task;    ///< the task memory written by fine-tuning; empty: none
  int64_t steps = 0, tokens = 0, parameters = 0;
  double seconds = 0;
  Metrics metrics;       ///< on held-out data, at the end of training
  bool stopped = false;  ///< watch.should_stop ended it, after a checkpoint
};

/// Trains a model from a recipe (TOML, docs/recipes.md), like `mnemo train` and `mnemo finetune`. Throws InputError if
/// the run folder already contains a run.
Training train_model(const std::string& recipe, const TrainOptions& options = {});
/// Resumes a run from its newest checkpoint, bitwise as if it had never stopped. `out`, `variant` and `init` must be
/// empty; `set` may change the run's recipe.
Training resume_training(const std::string& run, const TrainOptions& options = {});

struct CompareOptions {
  std::string out = {};               ///< folder for the report and all runs; empty: runs/NAME of the recipe's file
  std::vector<std::string> set = {};  ///< "KEY=VALUE" overrides for every recipe, or for a study
  int64_t seeds = 0;                  ///< number of seeds for each variant; 0: the recipe's
  /// Path of a `mnemo` program that runs each training in a separate process, `jobs` at a time. Empty: train in this
  /// process, one after the other.
  std::string program = {};
  int64_t jobs = 0;  ///< 0: number of cores
  std::string device = "cpu";
  Watch watch = {};
};

struct Comparison {
  std::string folder, report;  ///< report: an HTML file that works offline
  std::string text;            ///< the tables, as `mnemo compare` prints them
  std::string json;            ///< results.json
  bool stopped = false;        ///< watch.should_stop ended it; the trainings that are done are kept
  bool complete = false;       ///< all trainings finished
};

/// Trains the variants of a recipe with studies and compares them. Trainings already in the folder are kept.
Comparison compare_models(const std::string& recipe, const CompareOptions& options = {});

}  // namespace mnemo
