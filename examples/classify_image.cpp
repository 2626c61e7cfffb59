// Says what is on an image: the three likeliest classes of the model's own head and of each attached task.
//   classify_image FOLDER IMAGE
#include <mnemo/mnemo.h>

#include <cstdio>

int main(int argc, char** argv) try {
  if (argc != 3) {
    std::fprintf(stderr, "usage: classify_image FOLDER IMAGE\n");
    return 2;
  }
  for (const mnemo::TaskAnswer& answer : mnemo::load(argv[1]).classify(argv[2], {.top = 3})) {
    for (const auto& [name, probability] : answer.labels)
      std::printf("  %-12s %6.2f %%  %s\n", answer.task.c_str(), 100 * probability, name.c_str());
  }
  return 0;
} catch (const mnemo::InputError& error) {
  std::fprintf(stderr, "error: %s\n", error.what());
  return 2;
}
