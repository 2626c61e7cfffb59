// The C++ side of scripts/bench-python: does the same work as bench.py and answers each line with the seconds of the
// processor that it took.
//   stream FOLDER TOKENS     writes a text piece by piece
//   attention REPEATS        mnemo.nn.Attention on [8,256,256], forward and backward
//   step FOLDER REPEATS      training steps with fused AdamW, the state carried along
#include <mnemo/api/attention_layer.h>
#include <mnemo/bundle/bundle.h>
#include <mnemo/infer/text_session.h>
#include <mnemo/mnemo.h>
#include <mnemo/models/model.h>
#include <mnemo/train/optimiser.h>
#include <torch/types.h>

#include <cstdio>
#include <ctime>
#include <functional>
#include <iostream>
#include <map>
#include <sstream>

namespace {

using namespace mnemo;

double processor_seconds() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

double seconds_of(int64_t repeats, const std::function<void()>& work) {
  const double begun = processor_seconds();
  for (int64_t i = 0; i < repeats; ++i) work();
  return processor_seconds() - begun;
}

const Bundle& model_of(const std::string& folder) {
  static std::map<std::string, Bundle> loaded;
  const auto found = loaded.find(folder);
  return found != loaded.end() ? found->second : loaded.emplace(folder, load(folder)).first->second;
}

double stream(const std::string& folder, int64_t tokens) {
  infer::TextSession text = model_of(folder).text();
  text.feed("the ");
  size_t length = 0;
  return seconds_of(1, [&] {
    text.begin({.max_tokens = tokens});
    while (const auto piece = text.next_piece()) length += piece->size();
  });
}

double attention(int64_t repeats) {
  static const AttentionLayer layer({.dim = 256});
  static const at::Tensor x = at::randn({8, 256, 256}).requires_grad_(true);
  return seconds_of(repeats, [&] {
    for (const layers::Parameter& parameter : layer.parameters().all())
      at::Tensor(parameter.tensor).mutable_grad().reset();
    x.mutable_grad().reset();
    layer.forward(x, layer.initial_state(8)).y.sum().backward();
  });
}

struct Steps {
  const Bundle& bundle;
  models::Model& model = *bundle.parts().model;
  std::unique_ptr<train::Optimiser> optimiser = train::make_optimiser(base::Node::table({{"type", "adamw"}}),
                                                                      model.parameters().all());
  core::State state = model.initial_state(8);
  at::Tensor text = at::randint(10, {8, 129}, at::kLong);

  void step() {
    for (const layers::Parameter& parameter : model.parameters().all())
      at::Tensor(parameter.tensor).mutable_grad().reset();
    core::Segment segment;
    segment.mode = core::Mode::train;
    segment.tokens = text.narrow(1, 0, 128);
    const core::StepResult result = model.forward(segment, state);
    const at::Tensor targets = text.narrow(1, 1, 128);
    (model.nll(result.hidden, targets).sum() / targets.numel()).backward();
    optimiser->step();
    state = core::detach(result.state);
  }
};

double steps(const std::string& folder, int64_t repeats) {
  static Steps all{model_of(folder)};
  return seconds_of(repeats, [&] { all.step(); });
}

}  // namespace

int main() {
  std::string line, work, folder;
  while (std::getline(std::cin, line)) {
    std::istringstream words(line);
    int64_t count = 0;
    words >> work;
    if (work != "attention") words >> folder;
    words >> count;
    std::printf("%.9f\n", work == "attention" ? attention(count)
                          : work == "step"    ? steps(folder, count)
                                              : stream(folder, count));
    std::fflush(stdout);
  }
}
