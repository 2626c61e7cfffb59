#include <torch/types.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "bundle/load.h"
#include "models/model.h"
#include "models/presets.h"
#include "options_check.h"
#include "weights/foreign.h"

/// A config.json of a published model, or of ours: becomes the options of a model beside a small file of weights, or is
/// rejected with an InputError, before anything is allocated that the file does not justify.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace mnemo;
  static const weights::TensorFile file{{{"model.embed_tokens.weight", at::zeros({64, 32})}}, {}};
  fuzz::only_input_errors([&] {
    const base::Node config = weights::parse_model_config(std::string(reinterpret_cast<const char*>(data), size),
                                                          "config.json");
    const weights::ForeignFormat* format = weights::foreign_format_of(config);
    const base::Node options = format == nullptr ? config : format->options(config);
    bundle::model_from(models::read_model_options(options), file, "folder");
  });
  return 0;
}
