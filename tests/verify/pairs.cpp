#include <torch/types.h>

#include <torch/csrc/autograd/autograd.h>

#include <regex>

#include "base/error.h"
#include "core/backbone.h"
#include "models/model.h"
#include "models/source_side.h"
#include "ops/label_smoothing.h"
#include "search/beam_search.h"
#include "tests/verify/golden_file.h"

namespace mnemo::verify {
namespace {

/// The model options of a golden file: its names for the head and for one memory are others than ours.
base::Node pair_config(const GoldenFile& file) {
  base::Node config = file.config();
  for (const char* key : {"loss", "search"}) config.erase(key);
  if (base::Node* head = config.find("head"); head != nullptr && head->is_table()) head->set("type", "language_model");
  base::Node* backbone = config.find("backbone");
  base::Node* encoder = backbone == nullptr ? nullptr : backbone->find("encoder");
  base::Node* memory = encoder == nullptr ? nullptr : encoder->find("memory");
  if (memory != nullptr && memory->is_table()) {
    base::Node one = *memory;
    // qkv_bias applies to both branches.
    const base::Node* attention = encoder->find("attention");
    if (const base::Node* bias = attention == nullptr ? nullptr : attention->find("qkv_bias"))
      one.set("qkv_bias", *bias);
    encoder->set("memory", base::Node::array({one}));
  }
  return config;
}

/// The name of a state field in a golden file; empty if such files do not have it.
std::string pair_state_name(const std::string& path) {
  static const std::regex of_decoder(R"(layers\.backbone\.(decoder\.layers\.\d+)\.attn\.(.+))");
  static const std::regex of_cache(
      R"(source\.encoder\.layers\.(backbone\.encoder\.layers\.\d+)\.attn\.(grc\.)?(cache))");
  std::smatch match;
  if (std::regex_match(path, match, of_decoder)) {
    const std::string field = match[2];
    return fmt::format("{}.{}{}", match[1].str(), field.size() == 1 ? "abc." : "", field);
  }
  if (std::regex_match(path, match, of_cache)) return match[1].str() + ".grc.cache";
  constexpr std::string_view kEncoded = "source.encoded.";
  return path.starts_with(kEncoded) ? path.substr(kEncoded.size()) : "";
}

/// The file's name of a parameter: there GRC's parameters are next to the attention.
std::string pair_parameter_name(const std::string& name) {
  static const std::regex of_grc(R"((encoder\.layers\.\d+)\.attn\.grc\.)");
  return std::regex_replace(name, of_grc, "$1.grc.");
}

struct PairStep {
  core::Segment segment;
  at::Tensor target, encoder_valid;
  core::StepResult result;
  at::Tensor logits, seen;  ///< seen [B,M]: which rows of the target so far are real
  ops::SmoothedLoss loss;
};

class Pairs {
 public:
  explicit Pairs(const GoldenFile& file);
  GoldenReport report();

 private:
  void run();
  void compare_step(size_t k);
  void compare_search();
  void compare(const std::string& group, const std::string& name, const at::Tensor& found, const at::Tensor& real = {});

  const GoldenFile& file_;
  GoldenComparison comparison_;
  models::ModelOptions options_;
  std::unique_ptr<models::Model> model_;
  double epsilon_ = 0.0;
  std::vector<PairStep> steps_;
};

Pairs::Pairs(const GoldenFile& file)
    : file_(file), comparison_(file), options_(base::read_options<models::ModelOptions>(pair_config(file))) {
  model_ = models::build(options_, 0, at::kDouble, file.budget());
  file.load_parameters(model_->parameters(), pair_parameter_name);
  if (const base::Node* loss = file.config().find("loss")) {
    const base::Node* type = loss->find("type");
    base::require(type != nullptr && type->is_string() && type->as_string() == "label_smoothing",
                  "{}: expected loss.type = \"label_smoothing\"", file.path());
    epsilon_ = loss->at("epsilon").as_double();
  }
  const core::State fresh = model_->initial_state(1);
  model_->commit(fresh.map([&](const core::Field& field, const at::Tensor& tensor) {
    const at::Tensor stored = field.per_sequence() ? at::Tensor() : file.find("buffer." + pair_state_name(field.path));
    return stored.defined() ? stored : tensor;
  }));
}

/// Compares, if the file has the tensor, where `real` [B,rows] is true: rows of padding are not defined.
void Pairs::compare(const std::string& group, const std::string& name, const at::Tensor& found,
                    const at::Tensor& real) {
  const at::Tensor expected = file_.find(name);
  if (!expected.defined()) return;
  if (!real.defined() || !found.defined() || expected.sizes() != found.sizes()) {
    comparison_.compare(group, name, expected, found);
    return;
  }
  at::Tensor rows = real;  // [B,..,rows,..]: the batch first, the rows last but one
  while (rows.dim() < expected.dim() - 1) rows = rows.unsqueeze(1);
  rows = rows.unsqueeze(-1);
  comparison_.compare(group, name, expected * rows, found * rows);
}

void Pairs::run() {
  const models::SpecialTokens& special = options_.tokens;
  const int64_t count = file_.num_steps();
  const base::Node modes = file_.metadata("steps");
  base::require(modes.is_array() && static_cast<int64_t>(modes.size()) == count,
                "{}: expected metadata 'steps' with {} modes, one for each step", file_.path(), count);
  core::State state;
  at::Tensor encoder_valid, seen, scalar;
  for (int64_t k = 0; k < count; ++k) {
    PairStep step;
    core::Segment& segment = step.segment;
    segment.tokens = file_.step(k, "input.previous");
    base::require(segment.tokens.defined() && segment.tokens.dim() == 2, "{}: expected step.{}.input.previous [B,U]",
                  file_.path(), k);
    segment.source = file_.step(k, "input.source");
    segment.valid = segment.tokens != special.pad;
    segment.mode = modes.items()[static_cast<size_t>(k)].as_string() == "train" ? core::Mode::train
                                                                                : core::Mode::evaluate;
    const bool whole = file_.step(k, "input.target").defined();
    segment.part = {segment.source.defined(), whole};
    if (segment.source.defined()) {
      segment.source_valid = encoder_valid = segment.source != special.pad;
      state = model_->initial_state(segment.tokens.size(0));
      seen = at::Tensor();
    }
    step.target = file_.step(k, "input.target");
    step.encoder_valid = encoder_valid;
    step.result = model_->forward(segment, state);
    step.logits = model_->logits(step.result.hidden);
    step.seen = seen = seen.defined() ? at::cat({seen, segment.valid}, 1) : segment.valid;
    const auto add = [&](const at::Tensor& part) { scalar = scalar.defined() ? scalar + part : part; };
    if (const at::Tensor cotangent = file_.step(k, "cotangent.logits"); cotangent.defined())
      add((cotangent * step.logits).sum());
    if (step.target.defined()) {
      step.loss = ops::label_smoothing(step.logits, step.target, epsilon_, special.pad);
      if (const at::Tensor weight = file_.step(k, "cotangent.loss"); weight.defined())
        add(weight * step.loss.smoothed.sum() / (step.target != special.pad).sum());
    }
    state = step.result.state;
    if (segment.mode == core::Mode::train) model_->commit(state);
    steps_.push_back(std::move(step));
  }
  if (scalar.defined()) scalar.backward();
}

void Pairs::compare_step(size_t k) {
  const at::NoGradGuard no_grad;
  const PairStep& step = steps_[k];
  const auto named = [&](const std::string& rest) { return fmt::format("step.{}.{}", k, rest); };
  const at::Tensor& real = step.segment.valid;
  compare("outputs", named("output.hidden"), step.result.hidden, real);
  compare("outputs", named("output.logits"), step.logits, real);
  compare("outputs", named("output.nll"), step.loss.nll);
  compare("outputs", named("output.smoothed"), step.loss.smoothed);
  if (step.target.defined())
    compare("outputs", named("output.loss"), step.loss.smoothed.sum() / (step.target != options_.tokens.pad).sum());
  compare("outputs", named("output.encoder_output"), models::SourceSide::output(step.result.state.child("source")).rows,
          step.encoder_valid);
  compare("states", named("state.position"), step.seen.sum(1));
  for (const auto& [field, tensor] : step.result.state.fields()) {
    const std::string name = pair_state_name(field.path);
    if (name.empty()) continue;
    const bool keys = field.dim("M") == 2, rows = field.dim("D") == 2;
    compare("states", named((field.per_sequence() ? "state." : "buffer.") + name), tensor,
            keys   ? step.seen
            : rows ? step.encoder_valid
                   : at::Tensor());
  }
}

void Pairs::compare_search() {
  const base::Node* given = file_.config().find("search");
  if (given == nullptr) return;
  const auto options = base::read_options<search::BeamSearchOptions>(*given);
  const at::Tensor source = file_.step(0, "input.source"), expected = file_.step(0, "output.hypotheses");
  base::require(source.defined() && expected.defined() && expected.dim() == 3,
                "{}: expected step.0.input.source and step.0.output.hypotheses [B,k,L]", file_.path());
  const auto found = search::beam_search(*model_, options_.tokens, source, source != options_.tokens.pad, options);
  at::Tensor tokens = at::full_like(expected, options_.tokens.pad),
             scores = at::zeros({expected.size(0), expected.size(1)}, at::kDouble);
  for (size_t b = 0; b < found.size(); ++b) {
    base::require(static_cast<int64_t>(found[b].size()) == expected.size(1), "{}: expected {} hypotheses, found {}",
                  file_.path(), expected.size(1), found[b].size());
    for (size_t k = 0; k < found[b].size(); ++k) {
      const auto length = static_cast<int64_t>(found[b][k].tokens.size());
      const at::Tensor row = tokens[static_cast<int64_t>(b)][static_cast<int64_t>(k)];
      row.narrow(0, 0, std::min(length, expected.size(2)))
          .copy_(at::tensor(found[b][k].tokens, at::kLong).narrow(0, 0, std::min(length, expected.size(2))));
      scores[static_cast<int64_t>(b)][static_cast<int64_t>(k)] = found[b][k].score;
    }
  }
  compare("search", "step.0.output.hypotheses", tokens);
  compare("search", "step.0.output.scores", scores);
}

GoldenReport Pairs::report() {
  if (file_.config().contains("search")) {
    compare_search();
    return comparison_.take();
  }
  run();
  for (size_t k = 0; k < steps_.size(); ++k) compare_step(k);
  for (const auto& parameter : model_->parameters().all()) {
    compare("gradients of parameters", "grad.param." + pair_parameter_name(parameter.name), parameter.tensor.grad());
  }
  return comparison_.take();
}

}  // namespace

GoldenReport verify_pairs(const GoldenFile& file) { return Pairs(file).report(); }

}  // namespace mnemo::verify
