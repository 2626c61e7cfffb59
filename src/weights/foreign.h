#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/node.h"
#include "core/state.h"
#include "layers/parameters.h"
#include "models/options.h"
#include "weights/load_into.h"
#include "weights/safetensors.h"

namespace mnemo::weights {

/// The name that another library uses for one of our tensors.
///   ours, theirs   names; '#' stands for a number, '@' in theirs for the same number plus one (both names have equally
///                  many, in the same order); '*' at the end matches the rest
///   part, parts    ours is one of `parts` equal slices of theirs along the first dimension (fused q, k, v)
///   leading_ones   number of leading dimensions of size 1 in theirs
///   transposed     theirs is [in,out] where it is a matrix (GPT-2's Conv1D)
///   by_head        slices of parts stand together for each head, [q k v of head 0, q k v of head 1, ..] (GPT-NeoX)
struct NameRule {
  std::string_view ours, theirs;
  int64_t part = 0, parts = 1;
  int64_t leading_ones = 0;
  bool transposed = false, by_head = false;
};

/// Their name for one of ours; empty if the rule does not apply.
std::string theirs_by(const NameRule& rule, std::string_view ours);

/// How files of one format may differ from the names of its rules. Tensors without a part in the model are left aside:
/// `ignored` ones silently, others with a note; those of layers that the model lacks are an error.
struct NameVariants {
  std::string_view prefix = {};                ///< "transformer.": names may stand without it, and others with it
  std::vector<std::string_view> layers = {};   ///< names of tensors of layers, as in NameRule::theirs
  std::vector<std::string_view> ignored = {};  ///< buffers and copies, as in NameRule::theirs
  /// Older endings of names and today's: {"LayerNorm.gamma", "LayerNorm.weight"}.
  std::vector<std::pair<std::string_view, std::string_view>> endings = {};
  std::string_view embedding = {};            ///< the name of the embedding
  std::vector<std::string_view> copies = {};  ///< names under which a tied model has it too
};

/// The name of the tensor that stands for `name`, which the file lacks; empty if there is none. safetensors' save_model
/// keeps one name of tensors that are shared, and the metadata say which; without them it is a copy of the embedding.
///   wanted   names that have tensors of their own, no copies
std::string name_of_shared(const NameVariants& variants, const TensorFile& file, const std::string& name,
                           const std::set<std::string>& wanted = {});

/// How a detector's config.json says how images become its input.
struct ForeignDetector {
  /// A table of data::DetectionInput. Throws InputError that names key and value of an unsupported setting.
  std::function<base::Node(const base::Node& config)> input;
  /// Puts such a table into a config.json with the names of the classes, and completes these.
  std::function<void(base::Node& config, const base::Node& input)> add_input;
};

/// The file format of another library: its models and the names of their tensors. A format is one source file in this
/// folder and one line in foreign_formats().
struct ForeignFormat {
  std::string_view name;      ///< "timm_vit"; the name for --to
  std::string_view about;     ///< one line
  std::string_view backbone;  ///< our backbone.type
  std::vector<NameRule> tensors;
  std::vector<NameRule> hidden;  ///< names of hidden states (core::HiddenObserver): outputs of their modules
  Metadata metadata = {};        ///< written to their model.safetensors
  /// Converts tensors from another layout of the same format to the names above; unset: there is none. Throws
  /// InputError that names `where`.
  std::function<TensorFile(const TensorFile& file, const std::string& where)> tidy = {};
  std::optional<NameVariants> variants = {};  ///< unset: names are as the rules say
  /// Whether a config.json has this format.
  std::function<bool(const base::Node& config)> claims;
  /// The [model] table for a config.json. Throws InputError that names key and value of an unsupported setting.
  std::function<base::Node(const base::Node& config)> options;
  /// Completes that table by what only the file says (an output matrix of its own); unset: nothing.
  std::function<void(const ForeignFormat&, base::Node& options, const base::Node& config, const TensorFile& file)> fit =
      {};
  /// config.json for such a model. Throws InputError that names an option the format cannot express.
  std::function<base::Node(const models::ModelOptions& options)> config;
  std::vector<std::string_view> attentions = {};  ///< types of attention that it has, the usual one first; empty: any
  std::optional<ForeignDetector> detector = {};   ///< of a detector's format
};

const std::vector<ForeignFormat>& foreign_formats();
/// The format with that name. Throws InputError that suggests the nearest one.
const ForeignFormat& foreign_format(std::string_view name);
/// The first format with that backbone; null if there is none. Golden files use its names.
const ForeignFormat* foreign_format_of_backbone(std::string_view backbone);
/// The format that recognizes a config.json; null if the config is our own. Throws InputError that names the
/// architecture if it is neither.
const ForeignFormat* foreign_format_of(const base::Node& config);

/// A config.json of a model folder, ours or another library's. It may hold 2,048 values, and one more for every 512
/// bytes of the weights beside it: names of many classes, each of which has its weights.
base::Node parse_model_config(const std::string& text, const std::string& where, uint64_t weights_bytes = 0);

/// Converts our tensors to theirs. Throws InputError that names a tensor for which the format has no name.
/// num_heads: of rules by_head.
NamedTensors to_theirs(const ForeignFormat& format, const NamedTensors& ours, int64_t num_heads = 0);
/// What a format names of a model: its parameters, and copies of the tensors of its state that belong to the model
/// (running statistics of batch norms). After loading, `state` is to be committed.
struct NamedModel {
  NamedTensors tensors;
  core::State state;
};
NamedModel named_model(const ForeignFormat& format, const layers::ParameterSet& parameters, const core::State& initial);

/// How to treat tensors that the target format cannot name.
enum class Unnamed { refuse, keep };
/// Throws InputError as load_theirs() for names and shapes, before anything is allocated.
///   shapes   of our tensors, which may lie on the meta device
void require_theirs(const ForeignFormat& format, const TensorFile& file, const NamedTensors& shapes,
                    const std::string& where, int64_t num_heads, Unnamed unnamed);
/// Fills our tensors in place from one of their files. Throws InputError that lists, by their names, tensors that are
/// missing, unexpected or wrongly shaped; ours are then unchanged. Returns our names of tensors that are kept as they
/// were.
std::vector<std::string> load_theirs(const ForeignFormat& format, const TensorFile& file, const NamedTensors& ours,
                                     const std::string& where, int64_t num_heads = 0,
                                     Unnamed unnamed = Unnamed::refuse);

ForeignFormat timm_vit_format();
ForeignFormat huggingface_vit_format();
ForeignFormat pvt_format();
ForeignFormat timm_pvt_v2_format();
ForeignFormat timm_swin_format();
ForeignFormat resnet_format();
ForeignFormat torchvision_detector_format();

}  // namespace mnemo::weights
