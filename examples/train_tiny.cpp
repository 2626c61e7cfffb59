// Trains a tiny model with a Transformer-XL cache on a nursery rhyme, lets it recite, and saves it.
//   train_tiny FOLDER    the model is written to FOLDER
#include <mnemo/infer/text_session.h>
#include <mnemo/models/model.h>
#include <mnemo/train/optimiser.h>
#include <mnemo/train/segment_bptt.h>
#include <mnemo/weights/model_folder.h>
#include <mnemo/weights/model_tensors.h>

#include <cstdio>
#include <exception>
#include <string>
#include <vector>

namespace {

using namespace mnemo;

/// "The House That Jack Built", which repeats itself a little more with each verse.
std::string rhyme() {
  const std::vector<std::string> lines = {
      "the house that Jack built", "the malt that lay in", "the rat that ate",       "the cat that killed",
      "the dog that worried",      "the cow that tossed",  "the maiden that milked", "the man that kissed",
      "the priest that married",   "the cock that waked",  "the farmer that kept"};
  std::string text;
  for (size_t verse = 0; verse < lines.size(); ++verse) {
    text += "This is ";
    for (size_t i = verse + 1; i-- > 0;) text += lines[i] + (i == 0 ? ".\n" : "\n");
  }
  return text;
}

models::ModelOptions tiny_model() {
  models::ModelOptions options;
  options.embedding.vocab_size = 256;  // a token is a byte
  options.backbone.num_layers = 2;
  options.backbone.dim = 64;
  options.backbone.num_heads = 4;
  options.backbone.ffn_dim = 128;
  options.memory = {base::Node::table({{"type", "segment_cache"}, {"mem_len", 32}})};
  options.segment_size = 16;
  return options;
}

void train(models::Model& model, const at::Tensor& text, int64_t steps) {
  const int64_t streams = 4, tokens = model.segment_size();
  const int64_t length = (text.size(0) - 1) / streams;
  // Each stream reads its part of the text; the target of a token is the one after it.
  const at::Tensor inputs = text.narrow(0, 0, streams * length).view({streams, length});
  const at::Tensor targets = text.narrow(0, 1, streams * length).view({streams, length});
  const auto optimiser = train::make_optimiser(base::Node::table({{"type", "adamw"}, {"lr", 3e-3}}),
                                               model.parameters());

  core::State state = model.initial_state(streams);
  int64_t start = 0;
  for (int64_t step = 1; step <= steps; ++step, start += tokens) {
    if (start + tokens > length) {  // the end of the text: from the start again, with nothing in memory
      start = 0;
      state = model.initial_state(streams);
    }
    core::Segment segment;
    segment.tokens = inputs.narrow(1, start, tokens);
    segment.mode = core::Mode::train;
    const auto result = train::backward_segments(model, {{segment}}, state, [&](const core::StepResult& out, size_t) {
      return model.nll(out.hidden, targets.narrow(1, start, tokens)).mean();
    });
    optimiser->step(optimiser->base_lr());
    model.parameters().zero_grad();
    model.commit(result.state);
    state = result.state;
    if (step == 1 || step % 100 == 0) {
      std::printf("step %4lld  loss %.3f\n", static_cast<long long>(step), result.losses[0].item<double>());
    }
  }
}

void run(const std::string& folder) {
  const auto tokenizer = data::make_byte_tokenizer();
  const models::ModelOptions options = tiny_model();
  const std::shared_ptr<models::Model> model = models::build(options, /*seed=*/1);
  train(*model, tokenizer->encode_tensor(rhyme()), 600);

  infer::TextSession session(infer::Session(model, infer::SamplingOptions::greedy()), tokenizer);
  session.feed("This is the cat that ");
  std::printf("\nThis is the cat that %s\n", session.generate({.max_tokens = 80}).c_str());

  bundle::ModelFolder content;
  content.config = base::to_json(base::write_options(options));
  content.weights.tensors = weights::model_tensors(*model);
  content.vocabulary = tokenizer->save();
  content.card = "# The House That Jack Built\n\nA tiny model of bytes, trained by `train_tiny`.\n";
  bundle::write_model_folder(folder, content);
  std::printf("\nsaved to %s\n", folder.c_str());
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: train_tiny FOLDER\n");
    return 2;
  }
  try {
    run(argv[1]);
    return 0;
  } catch (const mnemo::base::InputError& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 2;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "internal error: %s\n", error.what());
    return 3;
  }
}
