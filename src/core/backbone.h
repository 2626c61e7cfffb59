#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/attention.h"
#include "core/inspection.h"
#include "core/mode.h"

namespace mnemo::core {

struct DecodeStack;

/// The input of a backbone: one segment, or a part of one.
struct BackboneInput {
  at::Tensor rows;  ///< [B,Q,D]
  /// Over [contexts; rows]: one for each layer, or one for all.
  std::vector<const AttendTable*> tables;
  /// Rows on the left of layer l's, [B,M,D] or undefined; entering [B,Q,D] are the rows that enter the layer, before
  /// any norm. Asked once per layer, where the segment starts.
  std::function<at::Tensor(int64_t layer, const at::Tensor& entering)> context;
  at::Tensor first_row;  ///< [B] int64: number of rows[0] within its segment; undefined = 0
  Mode mode = Mode::evaluate;
  bool ends = true;
  AttentionObserver observe = {};

  const AttendTable& table(int64_t layer) const { return *tables[tables.size() == 1 ? 0 : static_cast<size_t>(layer)]; }
};

struct BackboneResult {
  at::Tensor hidden;                 ///< [B,Q,D]
  std::vector<at::Tensor> entering;  ///< per layer [B,Q,D]: its input rows, before any norm
  State state;                       ///< the attentions' states, one child per layer, named like its parameters
};

/// A stack of layers over a segment's rows.
class Backbone {
 public:
  virtual ~Backbone() = default;
  virtual BackboneResult forward(const BackboneInput& input, const State& state) const = 0;
  virtual State initial_state(int64_t batch) const = 0;
  virtual int64_t num_layers() const = 0;
  virtual int64_t dim() const = 0;
  virtual const Attention& attention(int64_t layer) const = 0;
  /// The name of a layer's attention in the state: the prefix of its parameters.
  virtual const std::string& layer_name(int64_t layer) const = 0;
  /// Rows [..,D] as the attention of layer `layer` gets them, normed where the norm comes first; parameters are
  /// constants here.
  virtual at::Tensor attention_rows(int64_t layer, const at::Tensor& rows) const = 0;
  /// Its parts for decoding (core/decode.h); null: it has no form of that.
  virtual std::unique_ptr<DecodeStack> decode_stack() const;
};

/// Creates the attention module of one layer, including memories on the attention seam.
using AttentionMaker = std::function<std::unique_ptr<Attention>(const struct AttentionBuild&)>;

}  // namespace mnemo::core
