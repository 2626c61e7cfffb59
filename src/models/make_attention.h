#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/node.h"
#include "core/attention.h"
#include "core/attention_build.h"
#include "core/image_layout.h"

namespace mnemo::models {

/// What `make` gives; what it refuses is told with the place where `options`, that it is made from, were written.
template <class Make>
auto with_location(const base::Node& options, Make make) {
  try {
    return make();
  } catch (const base::InputError& error) {
    base::input_error("{}: {}", options.where(), error.what());
  }
}

/// How many rows an attention has places for, and the key that says so: Linformer's tables, and the controls of ABC
/// that go by a row's number.
struct RowLimit {
  int64_t rows;
  base::Node table;  ///< that the key stands in
  std::string key;
  /// Throws InputError for more rows; `what` they are.
  void require(int64_t wanted, const std::string& what) const;
};
/// Nothing for an attention that takes any number.
std::optional<RowLimit> row_limit(const base::Node& attention);

/// The attention of one layer: the core of those options, and the memory of the list that wraps attention, if any,
/// around it.
std::unique_ptr<core::Attention> make_attention(const base::Node& core, const std::vector<base::Node>& memories,
                                                const core::AttentionBuild& build);
/// The same in an image backbone.
std::unique_ptr<core::Attention> make_image_attention(const base::Node& core, const std::vector<base::Node>& memories,
                                                      const core::AttentionBuild& build,
                                                      const core::ImageLayout& image);

}  // namespace mnemo::models
