// The attention-reconstruction loss of a compressive memory: its value, which parameters it trains, and that it does.
#include <gtest/gtest.h>
#include <torch/types.h>

#include <cmath>

#include "base/file_io.h"
#include "models/model.h"
#include "tests/support/numbers.h"
#include "tests/support/small_training.h"
#include "tests/support/temporary_folder.h"

namespace mnemo::train::compressive_test {
namespace {

using test::difference;
using test::Numbers;

std::unique_ptr<models::Model> model_of(const std::vector<std::string>& assignments) {
  base::Node node = base::parse_toml(
      "kind = \"layer_stack\"\n[backbone]\nnum_layers = 2\ndim = 8\nnum_heads = 2\nffn_dim = 12\ninit_std = 0.4\n"
      "[[memory]]\ntype = \"compressive\"\nmem_len = 3\ncompressed_len = 4\ncompression_rate = 2\n",
      "test");
  for (const std::string& assignment : assignments) base::set_value(node, assignment);
  return models::build(base::read_options<models::ModelOptions>(node), 3, at::kDouble);
}

core::Segment segment_of(const at::Tensor& rows, core::Mode mode = core::Mode::train) {
  core::Segment segment;
  segment.rows = rows;
  segment.mode = mode;
  return segment;
}

bool of_compression(const std::string& name) { return name.starts_with("memory.compression."); }

/// Content-based softmax attention, head by head.
at::Tensor attend(const models::Model& model, int64_t layer, const at::Tensor& queries, const at::Tensor& rows,
                  bool pre) {
  const std::string at_layer = "backbone.layers." + std::to_string(layer);
  const auto parameter = [&](const std::string& name) { return model.parameters().find(at_layer + name).detach(); };
  const auto normed = [&](const at::Tensor& x) {
    return pre ? at::layer_norm(x, {8}, parameter(".norm1.weight"), parameter(".norm1.bias"), 1e-5) : x;
  };
  const auto heads = [&](const at::Tensor& x, const char* map) {
    at::Tensor y = at::matmul(normed(x), parameter(std::string(".attn.") + map + ".weight").t());
    if (const at::Tensor bias = model.parameters().find(at_layer + ".attn." + map + ".bias"); bias.defined())
      y = y + bias.detach();
    return y.view({x.size(0), x.size(1), 2, 4}).transpose(1, 2);
  };
  return at::matmul(at::softmax(at::matmul(heads(queries, "q"), heads(rows, "k").transpose(-1, -2)) / 2.0, -1),
                    heads(rows, "v"));
}

TEST(CompressiveLoss, IsTheReconstructionOfAttention) {
  for (const std::string norm : {"post", "pre"}) {
    for (const std::string attention : {"softmax", "relative"}) {
      const auto model = model_of({"backbone.norm=" + norm, "backbone.attention.type=" + attention});
      const at::NoGradGuard no_grad;
      Numbers numbers(4);
      const auto first = model->forward(segment_of(numbers.normal({2, 3, 8})), model->initial_state(2));
      EXPECT_TRUE(model->auxiliary_losses(first).empty()) << "nothing has left the memory";
      const at::Tensor rows = numbers.normal({2, 4, 8});
      const auto second = model->forward(segment_of(rows), first.state);
      const auto losses = model->auxiliary_losses(second);
      ASSERT_EQ(losses.size(), 1U);
      EXPECT_EQ(losses[0].weight, 1.0);
      // Seven rows, of which three may stay: the first four leave as two blocks. The last row of the old memory and
      // those of the segment stay.
      at::Tensor expected = at::zeros({2}, at::kDouble);
      for (int64_t layer = 0; layer < 2; ++layer) {
        const auto tensor = [&](const core::State& state) {
          for (const auto& [field, value] : state.fields()) {
            if (field.path == "compressive.layers." + std::to_string(layer)) return value;
          }
          return at::Tensor();
        };
        const at::Tensor before = tensor(first.state), after = tensor(second.state);
        ASSERT_EQ(after.sizes(), at::IntArrayRef({2, 5, 8}));
        // after = [2 compressed; 3 plain]; the plain ones are the last three rows that entered the layer.
        const at::Tensor compressed = after.narrow(1, 0, 2), plain = after.narrow(1, 2, 3);
        if (layer == 0) {
          const at::Tensor old = at::cat({before, rows.narrow(1, 0, 1)}, 1);
          const std::string own = "memory.compression.layers.0.";
          const at::Tensor made = at::matmul(old.reshape({2, 2, 16}), model->parameters().find(own + "weight").t()) +
                                  model->parameters().find(own + "bias");
          EXPECT_LE(difference(compressed, made), 1e-13);
          EXPECT_TRUE(at::equal(plain, rows.narrow(1, 1, 3)));
          expected += (attend(*model, 0, rows, old, norm == "pre") - attend(*model, 0, rows, made, norm == "pre"))
                          .square()
                          .mean(at::IntArrayRef({1, 2, 3}));
        }
      }
      // The second layer's part on its own: the loss of a one-layer model is only the first layer's.
      EXPECT_GT(test::largest(losses[0].values - expected), 0.0);
      const auto one = model_of(
          {"backbone.norm=" + norm, "backbone.attention.type=" + attention, "backbone.num_layers=1"});
      for (const auto& [name, value] : one->parameters().named())
        at::Tensor(value).copy_(model->parameters().find(name));
      core::State state = one->forward(segment_of(Numbers(4).normal({2, 3, 8})), one->initial_state(2)).state;
      EXPECT_LE(difference(one->auxiliary_losses(one->forward(segment_of(rows), state)).at(0).values, expected), 1e-14);
    }
  }
}

TEST(CompressiveLoss, ReachesTheCompressionAndNothingElse) {
  for (const std::string function : {"conv", "dilated_conv"}) {
    for (const std::string norm : {"post", "pre"}) {
      const auto model = model_of({"memory[0].compression=" + function, "backbone.norm=" + norm});
      Numbers numbers(5);
      const at::Tensor first = numbers.normal({2, 4, 8}).set_requires_grad(true),
                       second = numbers.normal({2, 5, 8}).set_requires_grad(true);
      const auto before = model->forward(segment_of(first), model->initial_state(2));
      const auto step = model->forward(segment_of(second), before.state);
      model->auxiliary_losses(step).at(0).values.sum().backward();
      EXPECT_FALSE(first.grad().defined());
      EXPECT_FALSE(second.grad().defined());
      for (const auto& [name, tensor] : model->parameters().named()) {
        EXPECT_EQ(tensor.grad().defined() && test::largest(tensor.grad()) > 0, of_compression(name)) << name;
      }
      // And the task's loss, which reads compressed rows in the third segment, does not reach the compression.
      model->parameters().zero_grad();
      model->forward(segment_of(numbers.normal({2, 4, 8})), step.state).hidden.square().sum().backward();
      for (const auto& [name, tensor] : model->parameters().named()) {
        EXPECT_FALSE(of_compression(name) && tensor.grad().defined()) << name;
      }
    }
  }
}

TEST(CompressiveLoss, OfASequenceIsItsOwnWhoeverRunsBesideIt) {
  const auto model = model_of({});
  const at::NoGradGuard no_grad;
  const at::Tensor rows = Numbers(6).normal({3, 9, 8}), lengths = at::tensor({9, 3, 7}, at::kLong);
  core::Segment segment = segment_of(rows);
  segment.valid = at::arange(9).unsqueeze(0) < lengths.unsqueeze(1);
  const at::Tensor together = model->auxiliary_losses(model->forward(segment, model->initial_state(3))).at(0).values;
  ASSERT_EQ(together.sizes(), at::IntArrayRef({3}));
  EXPECT_EQ(together[1].item<double>(), 0.0) << "three rows may stay";
  for (const int64_t row : {0, 2}) {
    const auto step = model->forward(segment_of(rows.narrow(0, row, 1).narrow(1, 0, lengths[row].item<int64_t>())),
                                     model->initial_state(1));
    EXPECT_LE(difference(together.narrow(0, row, 1), model->auxiliary_losses(step).at(0).values), 1e-14) << row;
  }
}

TEST(CompressiveLoss, IsOfTrainingAndOfFunctionsThatLearn) {
  const auto loss = [](const std::vector<std::string>& assignments, core::Mode mode) {
    const auto model = model_of(assignments);
    const at::NoGradGuard no_grad;
    return !model
                ->auxiliary_losses(
                    model->forward(segment_of(Numbers(4).normal({1, 9, 8}), mode), model->initial_state(1)))
                .empty();
  };
  EXPECT_TRUE(loss({}, core::Mode::train));
  EXPECT_FALSE(loss({}, core::Mode::evaluate));
  EXPECT_FALSE(loss({"memory[0].loss_weight=0"}, core::Mode::train));
  for (const char* function : {"mean_pooling", "max_pooling", "most_used"}) {
    EXPECT_FALSE(loss({std::string("memory[0].compression=") + function}, core::Mode::train)) << function;
  }
}

TEST(CompressiveMemory, MostUsedKeepsWhatIsAttendedTo) {
  const auto model = model_of(
      {"memory[0].compression=most_used", "backbone.num_layers=1", "backbone.attention.type=softmax"});
  const at::NoGradGuard no_grad;
  Numbers numbers(4);
  const at::Tensor rows = numbers.normal({1, 9, 8});
  const auto step = model->forward(segment_of(rows), model->initial_state(1));
  const at::Tensor kept = step.state.fields().front().second;
  ASSERT_EQ(kept.size(1), 6);  // 3 from the 6 rows that left, plus 3
  const auto heads = [&](const char* map) {
    const std::string name = std::string("backbone.layers.0.attn.") + map;
    return (at::matmul(rows, model->parameters().find(name + ".weight").t()) + model->parameters().find(name + ".bias"))
        .view({1, 9, 2, 4})
        .transpose(1, 2);
  };
  const at::Tensor usage = at::softmax(at::matmul(heads("q"), heads("k").narrow(2, 0, 6).transpose(-1, -2)) / 2.0, -1)
                               .mean(at::IntArrayRef({0, 1, 2}));
  const at::Tensor most = std::get<0>(std::get<1>(usage.topk(3)).sort());
  EXPECT_TRUE(at::equal(kept.narrow(1, 0, 3), rows.index_select(1, most)));
  EXPECT_TRUE(at::equal(kept.narrow(1, 3, 3), rows.narrow(1, 6, 3)));
}

TEST(CompressiveMemory, DilatedTapsAreTwoRowsApart) {
  const auto model = model_of(
      {"memory[0].compression=dilated_conv", "memory[0].compression_rate=3", "backbone.num_layers=1"});
  const at::NoGradGuard no_grad;
  const at::Tensor rows = Numbers(4).normal({1, 9, 8});
  const at::Tensor kept = model->forward(segment_of(rows), model->initial_state(1)).state.fields().front().second;
  ASSERT_EQ(kept.size(1), 5);
  const at::Tensor weight = model->parameters().find("memory.compression.layers.0.weight"),
                   bias = model->parameters().find("memory.compression.layers.0.bias");
  for (int64_t block = 0; block < 2; ++block) {
    at::Tensor expected = bias.clone();
    for (int64_t tap = 0; tap < 3; ++tap) {
      const int64_t row = 3 * block + 2 * tap - 1;  // centred on the block's middle row
      if (row >= 0 && row < 6) expected += at::matmul(weight.narrow(1, 8 * tap, 8), rows[0][row]);
    }
    EXPECT_LE(difference(kept[0][block], expected), 1e-13) << block;
  }
}

TEST(CompressiveTraining, MovesTheCompressionAndLowersItsLoss) {
  const test::TemporaryFolder folder;
  base::write_file_atomic(folder / "text.txt", test::counting_text(300));
  const data::Corpus corpus = test::small_corpus(folder / "text.txt");
  TrainOptions options;
  options.steps = 60;
  options.batch_size = 4;
  options.segments_per_step = 3;
  options.optimiser = base::Node::table({{"type", "adam"}, {"lr", 0.003}});
  const auto build_one = [&](double weight) {
    return test::small_model(corpus.tokenizer->size(), {base::Node::table({{"type", "compressive"},
                                                                           {"mem_len", 8},
                                                                           {"compressed_len", 8},
                                                                           {"compression_rate", 2},
                                                                           {"loss_weight", weight}})});
  };
  const auto parameters = [](const models::Model& model) {
    std::vector<at::Tensor> of;
    for (const auto& [name, tensor] : model.parameters().named()) {
      if (of_compression(name)) of.push_back(tensor);
    }
    return of;
  };
  const auto copies = [&](const models::Model& model) {
    std::vector<at::Tensor> of;
    for (const at::Tensor& tensor : parameters(model)) of.push_back(tensor.detach().clone());
    return of;
  };
  // Trained, and with the initial compression in the same model.
  const auto model = build_one(1.0);
  const auto start = copies(*model);
  tasks::LanguageModel task(corpus, test::task_options(options));
  Trainer trainer(*model, task, options);
  for (int step = 0; step < 60; ++step) {
    const StepOutcome outcome = trainer.step();
    EXPECT_GT(outcome.total, outcome.loss) << step;
  }
  const at::NoGradGuard no_grad;
  const auto loss = [&] {
    core::State state = model->initial_state(4);
    double sum = 0;
    for (const auto& segment :
         tasks::LanguageModel(corpus, test::task_options(options)).next(core::TokenInput{.segment_size = 8})) {
      const auto step = model->forward(core::in_training(segment.input), state);
      for (const auto& one : model->auxiliary_losses(step)) sum += one.values.mean().item<double>();
      state = step.state;
    }
    return sum;
  };
  const double trained = loss();
  for (size_t i = 0; i < start.size(); ++i) at::Tensor(parameters(*model)[i]).copy_(start[i]);
  const double untrained = loss();
  EXPECT_GT(trained, 0.0);
  EXPECT_LT(trained, 0.5 * untrained);

  // Nothing else trains the compression.
  const auto still = build_one(0.0);
  const auto before = copies(*still);
  tasks::LanguageModel again(corpus, test::task_options(options));
  const at::AutoGradMode grad(true);
  Trainer without(*still, again, options);
  for (int step = 0; step < 5; ++step) {
    const StepOutcome outcome = without.step();
    EXPECT_EQ(outcome.total, outcome.loss);
  }
  for (size_t i = 0; i < before.size(); ++i) EXPECT_TRUE(at::equal(parameters(*still)[i], before[i]));
}

}  // namespace
}  // namespace mnemo::train::compressive_test
