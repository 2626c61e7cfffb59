// Any body of POST /v1/completions: a request within its limits, or refused with status 400.
#include "serve/completion_request.h"

#include <cstddef>
#include <cstdint>

#include "options_check.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace mnemo;
  const std::string_view body(reinterpret_cast<const char*>(data), size);
  try {
    const serve::CompletionRequest request = serve::read_completion(body, {.lenient = size % 2 == 0});
    fuzz::demand(!request.prompts.empty() && request.prompts.size() <= 8 && request.stop.size() <= 4, "lists");
    fuzz::demand(request.n >= 1 && request.n <= 8 && request.max_tokens >= 0 && request.max_tokens <= 4096, "numbers");
    const infer::GenerateOptions options = request.options({.temperature = 1.0});
    fuzz::demand(options.temperature >= 0 && options.top_p > 0 && options.top_p <= 1, "sampling");
  } catch (const serve::ApiError& error) {
    fuzz::demand(error.status == 400, "status 400");
    fuzz::check_message(error.what());
  } catch (const base::InputError& error) {  // options that contradict one another
    fuzz::check_message(error.what());
  }
  return 0;
}
