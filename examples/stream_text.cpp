// Loads a model folder and continues a prompt, printing the text as it is made.
//   stream_text FOLDER [PROMPT [TOKENS [TEMPERATURE]]]
#include <mnemo/infer/load.h>
#include <mnemo/infer/text_session.h>

#include <cstdio>
#include <exception>
#include <string>

namespace {

using namespace mnemo;

void run(const std::string& folder, const std::string& prompt, int64_t tokens, double temperature) {
  const bundle::LoadedModel loaded = bundle::load_model(folder);
  infer::TextSession session(infer::Session(loaded.model, {.temperature = temperature, .seed = 1}), loaded.tokenizer);
  session.feed(prompt);
  std::fputs(prompt.c_str(), stdout);
  session.generate({.max_tokens = tokens}, [](std::string_view piece) {
    std::fwrite(piece.data(), 1, piece.size(), stdout);
    std::fflush(stdout);
    return true;  // false would end the text here
  });
  std::printf("%s\n", session.finish().c_str());
  std::fprintf(stderr, "position %lld, %lld bytes of state\n", static_cast<long long>(session.session().position()),
               static_cast<long long>(session.session().num_bytes()));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2 || argc > 5) {
    std::fprintf(stderr, "usage: stream_text FOLDER [PROMPT [TOKENS [TEMPERATURE]]]\n");
    return 2;
  }
  try {
    run(argv[1], argc > 2 ? argv[2] : "This is ", argc > 3 ? std::stoll(argv[3]) : 200,
        argc > 4 ? std::stod(argv[4]) : 0.5);
    return 0;
  } catch (const mnemo::base::InputError& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 2;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "internal error: %s\n", error.what());
    return 3;
  }
}
