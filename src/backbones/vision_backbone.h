#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/node.h"
#include "core/attention_build.h"
#include "core/backbone.h"
#include "core/image_layout.h"
#include "core/task_tokens.h"
#include "layers/adapter.h"
#include "ops/image/grid.h"

namespace mnemo::backbones {

/// Told of rows on their way through a backbone: "embed" (what enters the first layer), "layers.0" (what leaves it) …,
/// "final_norm". Names are those of the modules in the backbone's scope.
using HiddenObserver = std::function<void(std::string_view name, const at::Tensor& rows)>;

/// Makes the attention of one layer from the options of its core ({type = "softmax", …}), memories on the attention
/// seam included, which have to know how its rows lie.
using VisionAttentionMaker = std::function<std::unique_ptr<core::Attention>(
    const base::Node& core, const core::AttentionBuild& build, const core::ImageLayout& image)>;

/// What a vision backbone's constructor gets beside its options.
struct VisionBuild {
  layers::Scope scope;  ///< "backbone"
  VisionAttentionMaker make_attention;
  std::optional<layers::AdapterOptions> adapters = {};  ///< behind each branch of every layer
  bool whole = true;  ///< false: a layer_stack, rows to rows, without embedding, positions and final norm
};

/// Images; or, in a layer_stack, the rows that enter the first layer.
struct VisionInput {
  at::Tensor pixels;     ///< [B,C,H,W], normalised
  at::Tensor rows = {};  ///< [B,T,D], class tokens first
  core::Mode mode = core::Mode::evaluate;
  core::AttentionObserver observe = {};
  HiddenObserver hidden = {};
};

struct VisionResult {
  at::Tensor rows;  ///< [B,T,D], after the final norm: class tokens, then the grid row by row
  core::Grid grid = {};
  core::State state = {};  ///< the attentions' states, one child per layer, named like its parameters
};

struct TasksResult {
  at::Tensor rows;  ///< [B,T,D]: the old rows after the final norm
  /// [B,1,D] after the final norm: the class row of each task; undefined where it has none.
  std::vector<at::Tensor> tasks;
  core::Grid grid = {};
};

/// Every row sees every row: class tokens, then the grid's rows.
core::AttendTable open_table(int64_t class_tokens, const core::Grid& grid);

/// A table of positions, those of class tokens first, for a grid of another size than the one it was trained for: the
/// grid's rows are resampled, those in front stay. table [T,D] -> [T',D]; the table itself where the grid is the same.
at::Tensor positions_for(const core::Grid& grid, const at::Tensor& table, const core::Grid& trained,
                         ops::GridResampling method);

/// Layers over the patches of images.
class VisionBackbone {
 public:
  virtual ~VisionBackbone() = default;
  virtual VisionResult forward(const VisionInput& input, const core::State& state) const = 0;
  /// With tasks that have rows and memory of their own, of a backbone whose options say kTakesTasks.
  virtual TasksResult forward_tasks(const core::TaskMemory&, const VisionInput&) const {
    throw base::InternalError("a backbone without tasks");
  }
  virtual int64_t num_layers() const = 0;
  /// Width of the rows that come out.
  virtual int64_t dim() const = 0;
  /// Class tokens in front of the grid, where rows come out.
  virtual int64_t num_class_tokens() const = 0;
  virtual const core::Attention& attention(int64_t layer) const = 0;
  /// Its state's name: the prefix of its attention's parameters.
  virtual const std::string& layer_name(int64_t layer) const = 0;

  core::State initial_state(int64_t batch) const {
    core::State::Children children;
    for (int64_t layer = 0; layer < num_layers(); ++layer)
      children.emplace_back(layer_name(layer), attention(layer).initial_state(batch));
    return core::State::list(std::move(children));
  }
};

}  // namespace mnemo::backbones
