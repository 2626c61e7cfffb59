// Trains a model from a recipe and says what it reaches on held-out data.
//   train_tiny RECIPE FOLDER [KEY=VALUE]...     e.g. train_tiny examples/tiny.toml runs/tiny train.steps=100
#include <mnemo/mnemo.h>

#include <cstdio>

int main(int argc, char** argv) try {
  if (argc < 3) {
    std::fprintf(stderr, "usage: train_tiny RECIPE FOLDER [KEY=VALUE]...\n");
    return 2;
  }
  const mnemo::Training training = mnemo::train_model(argv[1], {.out = argv[2], .set = {argv + 3, argv + argc}});
  for (const auto& [name, value] : training.metrics) std::printf("held-out %s %.4f\n", name.c_str(), value);
  std::printf("model: %s\n", training.model.c_str());
  return 0;
} catch (const mnemo::InputError& error) {
  std::fprintf(stderr, "error: %s\n", error.what());
  return 2;
}
