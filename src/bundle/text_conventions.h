#pragma once

#include <string>

#include "base/options.h"
#include "data/text/corpus.h"

namespace mnemo::bundle {

/// What a model of texts must be told beside its weights and its vocabulary: where its memory starts again.
struct TextConventions {
  std::string reset = "documents";
  template <class V>
  void visit(V&& v) {
    v("reset", reset, "when memory is reset: data.reset of the recipe", base::one_of("documents", "segments"));
  }

  /// text.json of a model folder.
  static constexpr const char* kFile = "text.json";
  static TextConventions of(const data::TextOptions& options) { return {options.reset}; }
  /// Where there is no such file, memory starts again at documents alone. Throws InputError for a wrong file.
  static TextConventions read(const std::string& folder);
  std::string text() const;
  bool resets_segments() const { return reset == "segments"; }
};

}  // namespace mnemo::bundle
