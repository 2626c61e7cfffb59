#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/node.h"
#include "base/typed_options.h"
#include "core/attention_build.h"
#include "core/image_layout.h"
#include "core/row_limit.h"

namespace mnemo::core {
class Attention;
}

namespace mnemo::models {

using base::with_location;

/// The maximum number of rows of a sequence that an attention supports; unset: no limit.
std::optional<core::RowLimit> row_limit(const base::TypedOptions& attention);

/// The numbers of the layers that a memory of the list names; unset: all.
std::optional<std::vector<int64_t>> own_layers(const base::TypedOptions& memory);
/// Whether a memory of the list serves the layer.
bool serves(const base::TypedOptions& memory, int64_t layer);
/// Throws InputError if a memory of the list names a layer that a backbone of `num_layers` layers does not have.
void require_layers(const std::vector<base::TypedOptions>& memories, int64_t num_layers);
/// The layers that it serves, of `num_layers`.
std::vector<int64_t> layers_of(const base::TypedOptions& memory, int64_t num_layers);

/// The attention of one layer: the core with those options, wrapped in the memories on the attention seam that serve
/// the layer, in the order given: the first is the innermost.
std::unique_ptr<core::Attention> make_attention(const base::TypedOptions& core,
                                                const std::vector<base::TypedOptions>& memories,
                                                const core::AttentionBuild& build);
/// Same for an image backbone, whose core is given as a table.
std::unique_ptr<core::Attention> make_image_attention(const base::Node& core,
                                                      const std::vector<base::TypedOptions>& memories,
                                                      const core::AttentionBuild& build,
                                                      const core::ImageLayout& image);

}  // namespace mnemo::models
