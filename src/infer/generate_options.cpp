#include "infer/generate_options.h"

namespace mnemo::infer {
namespace {

/// The keys that say when a text ends.
struct TextKeys {
  GenerateOptions options;
  template <class V>
  void visit(V&& v) {
    options.visit_text(v);
  }
};

}  // namespace

void GenerateOptions::validate(const base::Where& where) const {
  where.require(temperature > 0.0 || top_k == 0, "top_k",
                "temperature 0 always takes the most likely token, so top_k = {} has no effect; set a temperature "
                "above 0 or remove top_k",
                top_k);
  where.require(temperature > 0.0 || top_p == 1.0, "top_p",
                "temperature 0 always takes the most likely token, so top_p = {} has no effect; set a temperature "
                "above 0 or remove top_p",
                top_p);
  where.require(temperature > 0.0 || min_p == 0.0, "min_p",
                "temperature 0 always takes the most likely token, so min_p = {} has no effect; set a temperature "
                "above 0 or remove min_p",
                min_p);
}

void GenerateOptions::check_length() const { base::check_options(TextKeys{{.max_tokens = max_tokens}}); }

}  // namespace mnemo::infer
