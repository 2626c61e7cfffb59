#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "bundle/load.h"
#include "search/generation_search.h"
#include "tests/verify/golden_file.h"

namespace mnemo::verify {

/// A folder of a published text model and the exact results of its expect.safetensors.
struct TextFolder {
  std::string folder, path;  ///< path: of the expect.safetensors
  const weights::TensorFile& file;
  at::Device device;

  /// The tensor of that name; undefined if there is none.
  at::Tensor find(const std::string& name) const;
  /// The tensor on the device. Throws InputError if there is none.
  at::Tensor at(const std::string& name) const;
  /// The metadata under that key as JSON; a null node if there is none.
  base::Node metadata(const std::string& key) const;
  /// The model in that type; `change` as in bundle::LoadModelOptions.
  bundle::AnyModel load(at::ScalarType dtype, const std::function<void(base::Node&)>& change = {}) const;
};

inline constexpr double kTextSingleTolerance = 1e-5;

/// Compares results in float64 within the file's tolerance and in float32 within 1e-5 of each tensor's largest value.
class TextComparison {
 public:
  explicit TextComparison(const TextFolder& text);
  /// mask [B,T] bool or undefined: of a result [B,T,..], the rows that count. single: the tolerance in float32.
  void compare(at::ScalarType dtype, const std::string& group, const std::string& name, const at::Tensor& found,
               const at::Tensor& mask = {}, double single = kTextSingleTolerance);
  /// Counts tensors that are no results: inputs and cotangents.
  void used(const std::string& name) { compared_.insert(name); }
  /// Integers that have to be equal.
  void compare_ids(const std::string& name, const at::Tensor& found);
  /// The report. Throws InputError if the file has a tensor that had no part in it.
  GoldenReport take();

 private:
  const TextFolder& text_;
  GoldenComparison comparison_;
  std::set<std::string> compared_;
};

/// The gradients of a model's parameters under the file's names, zero where there is none; resets them.
std::map<std::string, at::Tensor> take_gradients(const bundle::AnyModel& loaded);

/// Models that predict the next token: logits, loss, hidden states, gradients, generated tokens.
GoldenReport verify_causal(const TextFolder& text);
/// Recurrent memory around such a model, segment by segment.
GoldenReport verify_causal_recurrent(const TextFolder& text);

/// Encoders: logits of classes or of masked tokens, loss, hidden states, gradients.
GoldenReport verify_encoder(const TextFolder& text);
/// Recurrent memory around such a model.
GoldenReport verify_encoder_recurrent(const TextFolder& text);
/// Models with an encoder and a decoder: the same as for causal ones, and the searches by model and engine.
GoldenReport verify_pairs_folder(const TextFolder& text);
/// Recurrent memory in the encoder of such a model, with a decoder's loss at every segment.
GoldenReport verify_pairs_recurrent(const TextFolder& text);

/// How a search runs, as transformers defines it (GenerationMixin, beams).
struct SearchSettings {
  int64_t max_new_tokens = 0, num_beams = 1, eos = 0, pad = 0;
  double length_penalty = 1.0;
  using EarlyStopping = search::GenerationOptions::EarlyStopping;
  EarlyStopping early_stopping = EarlyStopping::no;
};
struct FoundText {
  std::vector<int64_t> tokens;  ///< generated ones, eos with them
  double score = 0.0;
};
/// log p of each next token [V] after these generated ones.
using NextToken = std::function<at::Tensor(const std::vector<int64_t>& generated)>;
/// The num_beams best texts, best first; with one beam the most probable token each time. By definition: every
/// hypothesis is computed from its start.
std::vector<FoundText> search_by_definition(const NextToken& next, const SearchSettings& settings);

}  // namespace mnemo::verify
