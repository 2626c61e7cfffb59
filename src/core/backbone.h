#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/attention.h"
#include "core/inspection.h"
#include "core/mode.h"
#include "core/task_tokens.h"

namespace mnemo::core {

struct DecodeStack;

/// The input of a backbone: one segment, or a part of one; or images.
struct BackboneInput {
  at::Tensor rows;    ///< [B,Q,D]
  at::Tensor pixels;  ///< [B,C,H,W], normalised: instead of rows, in a backbone that embeds images
  /// Over [contexts; rows]: one for each layer, or one for all. Backbones of images make their own.
  std::vector<const AttendTable*> tables;
  /// Rows on the left of layer l's, [B,M,D] or undefined; entering [B,Q,D] are the rows that enter the layer, before
  /// any norm. Asked once per layer, where the segment starts.
  std::function<at::Tensor(int64_t layer, const at::Tensor& entering)> context;
  at::Tensor first_row;  ///< [B] int64: number of rows[0] within its segment; undefined = 0
  Mode mode = Mode::evaluate;
  bool ends = true;
  AttentionObserver observe = {};
  HiddenObserver hidden = {};

  const AttendTable& table(int64_t layer) const { return *tables[tables.size() == 1 ? 0 : static_cast<size_t>(layer)]; }
};

struct BackboneResult {
  at::Tensor hidden;                      ///< [B,Q,D]; of images: class tokens, then the grid row by row
  State state;                            ///< the attentions' states, one child per layer, named like its parameters
  std::vector<at::Tensor> entering = {};  ///< per layer [B,Q,D]: its input, before any norm; empty for images
  Grid grid = {};                         ///< of images: the grid of the last rows
};

/// The layers of a model, over a segment's rows or over images.
class Backbone {
 public:
  virtual ~Backbone() = default;
  virtual BackboneResult forward(const BackboneInput& input, const State& state) const = 0;
  /// The states of its attentions.
  State initial_state(int64_t batch) const;
  virtual int64_t num_layers() const = 0;
  /// Width of the hidden states that come out.
  virtual int64_t dim() const = 0;
  virtual const Attention& attention(int64_t layer) const = 0;
  /// The name of a layer's attention in the state: the prefix of its parameters.
  virtual const std::string& layer_name(int64_t layer) const = 0;
  /// Rows [..,D] as the attention of layer `layer` gets them, normed where the norm comes first; parameters are
  /// constants here. For layer contexts, which stand in backbones of tokens only.
  virtual at::Tensor attention_rows(int64_t layer, const at::Tensor& rows) const;
  /// Its parts for decoding (core/decode.h); null: it has no form of that.
  virtual std::unique_ptr<DecodeStack> decode_stack() const;

  /// Class tokens in front of the grid of an image, where rows come out.
  virtual int64_t num_class_tokens() const { return 0; }
  /// The images with the tasks of a learnable memory, whose class rows and memory join the layers. For backbones whose
  /// options say kTakesTasks.
  virtual TasksResult forward_tasks(const TaskMemory& tasks, const BackboneInput& input,
                                    TaskForm form = TaskForm::grouped) const;
  /// The grid of the rows that images [B,C,H,W] become, in a backbone that takes tasks.
  virtual Grid grid_of(const at::Tensor& pixels) const;
  /// A faster forward_tasks for inference; null: there is none for these tasks in this backbone.
  virtual std::unique_ptr<TaskRunner> task_runner(const TaskMemory& tasks) const;
};

/// Creates the attention module of one layer, including memories on the attention seam.
using AttentionMaker = std::function<std::unique_ptr<Attention>(const struct AttentionBuild&)>;

}  // namespace mnemo::core
