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
#include "core/row_limit.h"

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

/// How many rows of a sequence an attention has places for; unset: any number.
std::optional<core::RowLimit> row_limit(const base::Node& attention);

/// Whether a memory of the list serves the layer: its key `layers` names it, or names none.
bool serves(const base::Node& memory, int64_t layer);
/// Throws InputError where a memory of the list names a layer that a backbone of `num_layers` has not.
void require_layers(const std::vector<base::Node>& memories, int64_t num_layers);
/// Those of `num_layers` layers that it serves.
std::vector<int64_t> layers_of(const base::Node& memory, int64_t num_layers);

/// The attention of one layer: the core of those options, and around it the memories of the list on the attention seam
/// that serve the layer, in the order written: the first is the innermost.
std::unique_ptr<core::Attention> make_attention(const base::Node& core, const std::vector<base::Node>& memories,
                                                const core::AttentionBuild& build);
/// The same in an image backbone.
std::unique_ptr<core::Attention> make_image_attention(const base::Node& core, const std::vector<base::Node>& memories,
                                                      const core::AttentionBuild& build,
                                                      const core::ImageLayout& image);

}  // namespace mnemo::models
