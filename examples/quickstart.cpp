// The first example of README.md: writes text with the model of runs/mine, and measures it on other.txt.
#include <mnemo/mnemo.h>

#include <cstdio>

int main() {
  const mnemo::Bundle model = mnemo::load("runs/mine");
  const auto print = [](std::string_view piece) {
    std::fwrite(piece.data(), 1, piece.size(), stdout);
    return true;  // false would end the text
  };
  model.generate("Once upon", print, {.max_tokens = 200});
  std::printf("\nperplexity %.5f\n", model.evaluate("other.txt").at("perplexity"));
}
