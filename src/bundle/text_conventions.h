#pragma once

#include <string>

#include "base/options.h"
#include "data/text/corpus.h"

namespace mnemo::bundle {

/// When the memory of a text model is reset; stored next to its weights and vocabulary.
struct TextConventions {
  using Reset = data::TextOptions::Reset;
  Reset reset = Reset::documents;
  template <class V>
  void visit(V&& v) {
    v("reset", reset, "when memory is reset: data.reset of the recipe", base::one_of("documents", "segments"));
  }

  /// text.json of a model folder.
  static constexpr const char* kFile = "text.json";
  static TextConventions of(const data::TextOptions& options) { return {options.reset}; }
  /// Without such a file, memory is only reset between documents. Throws InputError for an invalid file.
  static TextConventions read(const std::string& folder);
  std::string text() const;
  bool resets_segments() const { return reset == Reset::segments; }
};

}  // namespace mnemo::bundle
