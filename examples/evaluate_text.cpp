// Measures a model on a text: loss, perplexity, bits per symbol.
//   evaluate_text FOLDER TEXT
#include <mnemo/mnemo.h>

#include <cstdio>

int main(int argc, char** argv) try {
  if (argc != 3) {
    std::fprintf(stderr, "usage: evaluate_text FOLDER TEXT\n");
    return 2;
  }
  const mnemo::Evaluation evaluation = mnemo::load(argv[1]).evaluate(argv[2]);
  for (auto& [name, value] : evaluation) std::printf("%s %.5f\n", name.c_str(), value);
  std::printf("predictions %lld\n", static_cast<long long>(evaluation.predictions));
  return 0;
} catch (const mnemo::InputError& error) {
  std::fprintf(stderr, "error: %s\n", error.what());
  return 2;
}
