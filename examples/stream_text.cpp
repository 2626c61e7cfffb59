// Continues a prompt with a model folder, printing the text as it is made.
//   stream_text FOLDER PROMPT [TOKENS]
#include <mnemo/mnemo.h>

#include <cstdio>
#include <string>

int main(int argc, char** argv) try {
  if (argc < 3 || argc > 4) {
    std::fprintf(stderr, "usage: stream_text FOLDER PROMPT [TOKENS]\n");
    return 2;
  }
  const std::string prompt = argv[2];
  const mnemo::Bundle model = mnemo::load(argv[1]);
  std::fputs(prompt.c_str(), stdout);
  const auto print = [](std::string_view piece) {
    std::fwrite(piece.data(), 1, piece.size(), stdout);
    std::fflush(stdout);
    return true;  // false would end the text here
  };
  model.generate(prompt, print, {.max_tokens = argc > 3 ? std::stoll(argv[3]) : 200, .temperature = 0.5, .seed = 1});
  std::puts("");
  return 0;
} catch (const mnemo::InputError& error) {
  std::fprintf(stderr, "error: %s\n", error.what());
  return 2;
}
