#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/node.h"
#include "models/options.h"
#include "weights/load_into.h"
#include "weights/safetensors.h"

namespace mnemo::weights {

/// How one tensor of ours is called by another library.
///   ours, theirs   names; '#' stands for a number, '@' in theirs for the same number plus one (both names have as
///   many, in the same
///                  order); '*' at the end for whatever follows
///   part, parts    ours is one of `parts` equal pieces of theirs along the first dimension (a joint map of q, k and v)
///   leading_ones   dimensions of size 1 that theirs has in front
struct NameRule {
  std::string_view ours, theirs;
  int64_t part = 0, parts = 1;
  int64_t leading_ones = 0;
};

/// A name of ours as the rule says it; empty where the rule is of other names.
std::string theirs_by(const NameRule& rule, std::string_view ours);

/// Files of another library: which models it has, and how their tensors are called. A format is one source of this
/// folder and one line in foreign_formats().
struct ForeignFormat {
  std::string_view name;      ///< "timm_vit"; what --to takes
  std::string_view about;     ///< one line
  std::string_view backbone;  ///< of ours, backbone.type
  std::vector<NameRule> tensors;
  std::vector<NameRule> hidden;  ///< rows on their way (backbones::HiddenObserver) as outputs of their modules
  Metadata metadata = {};        ///< of their model.safetensors
  /// Brings tensors of another layout of the same format to the names above; unset: there is none. Throws InputError
  /// naming `where`.
  std::function<TensorFile(const TensorFile& file, const std::string& where)> tidy = {};
  /// Whether a config.json is of this format.
  std::function<bool(const base::Node& config)> claims;
  /// The [model] table that a config.json stands for. Throws InputError naming key and value that this program cannot
  /// honour.
  std::function<base::Node(const base::Node& config)> options;
  /// config.json for such a model. Throws InputError naming an option that the format cannot say.
  std::function<base::Node(const models::ModelOptions& options)> config;
};

const std::vector<ForeignFormat>& foreign_formats();
/// The format of that name. Throws InputError with the nearest one.
const ForeignFormat& foreign_format(std::string_view name);
/// The first format with that backbone; null where there is none. Golden files have its names.
const ForeignFormat* foreign_format_of_backbone(std::string_view backbone);
/// The format that claims a config.json; null where the config is our own. Throws InputError for a config that is
/// neither, naming its architecture.
const ForeignFormat* foreign_format_of(const base::Node& config);

/// A config.json of a model folder, ours or another library's (which may hold a name for each of many classes).
base::Node parse_model_config(const std::string& text, const std::string& where);

/// Their tensors out of ours. Throws InputError naming one of ours that the format has no name for.
NamedTensors to_theirs(const ForeignFormat& format, const NamedTensors& ours);
/// Fills ours from a file of theirs, in place. Throws InputError that lists, by their names, what is missing,
/// unexpected or ill-shaped; ours are as they were then.
void load_theirs(const ForeignFormat& format, const TensorFile& file, const NamedTensors& ours,
                 const std::string& where);

ForeignFormat timm_vit_format();
ForeignFormat huggingface_vit_format();
ForeignFormat pvt_format();
ForeignFormat timm_pvt_v2_format();
ForeignFormat timm_swin_format();

}  // namespace mnemo::weights
