// Gradients of every configuration of the conformance suite: parameters, rows, and the initial state.
#include "base/ignore_target.h"
#include "models/text_model.h"
#include "tests/conformance/suite.h"
#include "tests/gradcheck/check.h"

namespace mnemo::test {
namespace {

/// The configuration as a layer stack from rows to rows, without embedding and head.
std::unique_ptr<models::Model> stack_of(const Configuration& configuration) {
  models::ModelOptions options = configuration.options;
  options.kind = models::ModelOptions::Kind::layer_stack;
  return make_model(options);
}

bool is_relu(const Configuration& c) { return c.name.find("relu") != std::string::npos; }

/// Linear attention with rotary positions divides turned sums by sums that are not turned: where these are small, the
/// quotient bends more in a step.
bool divides_turned_sums(const Configuration& c) { return c.name.starts_with("linear_rotary"); }

/// The step of the differences. The features elu(x) + 1 bend at 0, which a key of linear_grc crosses in a longer one.
double step_of(const Configuration& c) { return divides_turned_sums(c) || c.name == "linear_grc" ? 5e-5 : 3e-4; }

/// With features that are relus (T2R) such a divisor may even be zero.
bool may_divide_by_zero(const Configuration& c) {
  return divides_turned_sums(c) && c.name.find("t2r") != std::string::npos;
}

/// A hash jumps if a step crosses the boundary of two buckets, so differences mean nothing. (tests/unit/ops compares
/// its gradients with the naive reference, and with differences for a single output.)
bool jumps(const Configuration& c) { return c.attention() == "lsh"; }

/// A token count, which all controls of ABC except mlp keep in addition to their slots: a constant, as in the golden
/// files.
bool is_count(const Configuration& c, const std::string& path) {
  return c.attention() == "abc" && path.ends_with(".z") &&
         c.options.backbone.stack().attention.table().at("control").at("type").as_string() != "mlp";
}

class ModelGradient : public Conformance {
 protected:
  void SetUp() override {
    model_ = stack_of(config());
    const core::State warm = warm_state(*model_, 2);
    Numbers numbers(5);
    rows_ = leaf(numbers, {2, 3, 8});
    weights_ = numbers.normal({2, 3, 8});
    // Fields that take a gradient according to the options are leaves; the others are constants.
    state_ = warm.map([&](const core::Field& field, const at::Tensor& tensor) {
      if (!tensor.is_floating_point() || model_->bptt_depth(field.path) == 0 || is_count(config(), field.path))
        return tensor;
      at::Tensor mine = tensor.clone();
      // An unwritten slot of a relu control is read as 0 / (0 + eps), where differences say nothing about the gradient.
      if (is_relu(config()) && field.path.ends_with(".z")) mine.add_(1.0);
      mine.set_requires_grad(true);
      fields_.emplace_back(field.path, mine);
      return mine;
    });
  }
  Inputs parameters() const {
    Inputs inputs;
    for (const auto& [name, tensor] : model_->parameters().named()) inputs.emplace_back(name, tensor);
    return inputs;
  }
  static Inputs joined(Inputs a, const Inputs& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
  }

  std::unique_ptr<models::Model> model_;
  core::State state_;
  at::Tensor rows_, weights_;
  Inputs fields_;
};

TEST_P(ModelGradient, OfTheOutputIsThatOfDifferences) {
  for (const Plan& plan : {whole(3), in_parts(config(), {2, 1})}) {
    expect_gradients([&] { return (run(*model_, rows_, plan, state_, core::Mode::train).hidden * weights_).sum(); },
                     joined({{"rows", rows_}}, joined(fields_, parameters())),
                     {.most_elements = 0, .directions = 1, .step = step_of(config()), .tolerance = 2e-8});
  }
}

TEST_P(ModelGradient, OfTheNextStateIsThatOfDifferences) {
  // A GRC cache is a constant inside its own update: gradients cross one boundary, no more.
  Inputs inputs = joined({{"rows", rows_}}, parameters());
  for (const auto& field : fields_) {
    if (!field.first.ends_with("grc.cache")) inputs.push_back(field);
  }
  if (fields_.empty() || jumps(config())) return;
  const auto scalar = [&] {
    Numbers numbers(6);
    at::Tensor sum = at::zeros({}, at::kDouble);
    for (const auto& [field, tensor] : run(*model_, rows_, whole(3), state_, core::Mode::train).state.fields()) {
      if (!tensor.is_floating_point() || model_->bptt_depth(field.path) == 0 || is_count(config(), field.path))
        continue;
      sum = sum + (tensor * numbers.normal(tensor.sizes())).sum();
    }
    // Memory that no token reaches (mt_authors) depends only on the parameters.
    return sum + 0.0 * rows_.sum();
  };
  expect_gradients(scalar, inputs, {.most_elements = 0, .directions = 1, .step = step_of(config()), .tolerance = 2e-8});
}

// If rows are as similar as the read and write rows of RMT, a difference step changes which of them are selected.
INSTANTIATE_TEST_SUITE_P(All, ModelGradient, testing::ValuesIn([] {
                           std::vector<Configuration> chosen;
                           for (const Configuration& c :
                                configurations_where([](const Configuration& one) { return !may_divide_by_zero(one); }))
                             chosen.push_back(
                                 models::as<models::TextModel>(*stack_of(c), "test").memories().sequences().empty()
                                     ? c
                                     : selecting_all(c));
                           return chosen;
                         }()),
                         name_of);
// Recurrent tokens of an encoder have special tokens, so they do not fit into a layer stack: see ClassifierGradient.
INSTANTIATE_TEST_SUITE_P(Encoders, ModelGradient, testing::ValuesIn([] {
                           std::vector<Configuration> chosen;
                           std::copy_if(encoders().begin(), encoders().end(), std::back_inserter(chosen),
                                        [](const Configuration& c) {
                                          return !c.has("recurrent_tokens") && c.attention() != "lsh";
                                        });
                           return chosen;
                         }()),
                         name_of);

/// From tokens to the loss of two segments, with some padding; one sequence is absent from the first segment.
class ClassifierGradient : public Conformance {};

TEST_P(ClassifierGradient, OfTheParametersIsThatOfDifferences) {
  const auto model = make_model(config().options);
  Numbers numbers(5);
  const at::Tensor tokens = numbers.tokens({3, 7}, kVocab), weights = numbers.normal({3, 2});
  const at::Tensor lengths = at::tensor({2, 0, 4}, at::kLong).unsqueeze(1),
                   labels = at::tensor(std::vector<int64_t>{0, 1, base::kIgnoreTarget, 2, 1, 1}).view({3, 2});
  const at::Tensor valid = at::cat({at::arange(4).unsqueeze(0) < lengths, at::ones({3, 3}, at::kBool)}, 1);
  Inputs inputs;
  for (const auto& [name, tensor] : model->parameters().named()) inputs.emplace_back(name, tensor);
  expect_gradients(
      [&] {
        // In evaluation: after an update, a GRC cache is a constant for the second segment.
        const Outcome found = run(*model, tokens, segments({4, 3}), model->initial_state(3), core::Mode::evaluate,
                                  valid);
        return (model->nll(found.hidden, labels) * weights).sum();
      },
      inputs, {.most_elements = 0, .directions = 1, .step = 2e-4, .tolerance = 5e-8});
}

INSTANTIATE_TEST_SUITE_P(All, ClassifierGradient, testing::ValuesIn(classifiers()), name_of);

/// Whether gradients end where a segment does, in some field that the next one reads.
bool cuts(const Configuration& c) {
  const auto model = stack_of(c);
  const auto fields = model->initial_state(1).fields();
  return std::any_of(fields.begin(), fields.end(), [&](const auto& entry) {
    return entry.second.is_floating_point() && model->bptt_depth(entry.first.path) == 0;
  });
}

/// Two segments in one graph, with nothing detached between them.
class TwoSegments : public Conformance {};

TEST_P(TwoSegments, GradientIsThatOfDifferences) {
  const auto model = stack_of(config());
  Numbers numbers(5);
  const at::Tensor rows = leaf(numbers, {2, 5, 8}), weights = numbers.normal({2, 5, 8});
  Inputs inputs = {{"rows", rows}};
  for (const auto& [name, tensor] : model->parameters().named()) inputs.emplace_back(name, tensor);
  expect_gradients(
      [&] {
        return (run(*model, rows, segments({3, 2}), model->initial_state(2), core::Mode::train).hidden * weights).sum();
      },
      inputs, {.most_elements = 0, .directions = 1, .step = 2e-4, .tolerance = 5e-8});
}

INSTANTIATE_TEST_SUITE_P(All, TwoSegments, testing::ValuesIn(configurations_where([](const Configuration& c) {
                           // A relu control jumps where an empty memory gets its first weight; T2R's features are
                           // relus, too.
                           return !cuts(c) && !is_relu(c) && c.name.find("t2r") == std::string::npos && !jumps(c);
                         })),
                         name_of);

}  // namespace
}  // namespace mnemo::test
