#include "bundle/foreign_texts.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include "base/file_io.h"
#include "base/log.h"
#include "bundle/class_names.h"
#include "bundle/published_config.h"
#include "bundle/require_exportable.h"
#include "models/model.h"
#include "models/presets.h"
#include "text/open_tokenizer.h"

namespace mnemo::bundle {
namespace {

/// The keys of another library's config.json for the type of the weights.
constexpr const char* kTypeKeys[] = {"dtype", "torch_dtype"};

bool says_float32(const base::Node& config) {
  return std::all_of(std::begin(kTypeKeys), std::end(kTypeKeys), [&](const char* key) {
    const base::Node* found = config.find(key);
    return found == nullptr || found->is_null() || *found == base::Node("float32");
  });
}

/// Changes a config.json to float32: transformers would convert the weights to the type that it names.
std::string in_float32(base::Node config) {
  for (const char* key : kTypeKeys) {
    if (config.find(key) != nullptr) config.set(key, "float32");
  }
  return base::to_json(config) + "\n";
}

/// Adds the names of classes.txt, if there is one. Throws InputError if their number is not that of the classes.
void add_class_names(base::Node& config, const std::string& folder) {
  const base::Node* labels = config.find("id2label");
  const std::vector<std::string> classes = class_names(folder);
  if (labels == nullptr || classes.empty()) return;
  base::require(classes.size() == labels->size(), "{}: expected {} lines, found {}",
                base::join_path(folder, kClassesFile), labels->size(), classes.size());
  name_classes(config, classes);
}

/// Adds the special tokens and class names in the files beside a model. Without them, transformers takes the ids of the
/// format's original vocabulary, and numbers for labels.
void add_files_beside(base::Node& config, const std::string& folder) {
  add_class_names(config, folder);
  if (!text::has_tokenizer(folder)) return;
  const text::SpecialTokens special = text::open_tokenizer(folder)->special_tokens();
  for (const auto& [key, id] : {std::pair("bos_token_id", special.begin), std::pair("eos_token_id", special.end),
                                std::pair("pad_token_id", special.padding)}) {
    if (config.find(key) == nullptr) config.set(key, id < 0 ? base::Node() : base::Node(id));
  }
}

/// Throws InputError unless a config.json made for that format is read as one of that format.
void require_claimed(const weights::ForeignFormat& format, const base::Node& config) {
  if (format.claims(config)) return;
  const weights::ForeignFormat* other = weights::foreign_format_of(config);
  base::ensure(other != nullptr, "config.json of '{}' belongs to no format", format.name);
  base::input_error("a model of this shape: {} is another; expected --to {} ({}), found --to {}", format.about,
                    other->name, other->about, format.name);
}

/// Says that other programs will read more at once than the model does, which has no memory.
void say_segments(const models::ModelOptions& options, const base::Node& said, bool made_anew,
                  const std::string& folder) {
  if (!options.backbone.causal() || options.backbone.input() != core::InputKind::tokens || !options.memory.empty())
    return;
  const int64_t longest = said.at("segment_size").as_int();
  const bool any_length = options.backbone.stack().position.type != backbones::PositionOptions::Type::learned;
  if (longest <= options.segment_size && !(made_anew && any_length)) return;
  base::log_warning(
      "{}: the model reads independent segments of {} tokens; other programs read {} at once, so from token {} on "
      "they see more context and give other probabilities",
      folder, options.segment_size, any_length ? "a whole text" : fmt::format("up to {} tokens", longest),
      options.segment_size + 1);
}

}  // namespace

std::string text_config_for(const weights::ForeignFormat& format, const AnyModel& loaded, const std::string& folder) {
  const models::ModelOptions& options = loaded.model->options();
  const std::string who = fmt::format("{}: convert: --to {}", folder, format.name);
  const base::Node ours = base::write_options(options);
  // Only the file of a model says whether its output matrix is the embedding.
  const auto read_back = [&](const base::Node& config) {
    base::Node model = format.options(config);
    base::Node head = model.at("head");
    const base::Node own = options.head.table();
    if (const base::Node* tied = own.find("tied"); tied != nullptr && head.contains("tied")) head.set("tied", *tied);
    model.set("head", head);
    return base::write_options(models::read_model_options(model));
  };
  const std::string beside = base::join_path(folder, kSourceConfig);
  const std::string source = loaded.format == &format    ? loaded.config
                             : base::path_exists(beside) ? base::read_file(beside, size_t{16} << 20)
                                                         : std::string();
  const auto from_source = [&]() -> std::optional<std::string> {
    if (source.empty()) return {};
    const base::Node before = weights::parse_model_config(source, kSourceConfig, weights_bytes(folder));
    if (!format.claims(before)) return {};
    const base::Node said = read_back(before);
    if (said != with_segments_of(ours, said)) return {};
    base::Node now = before;
    if (const std::vector<std::string> classes = class_names(folder);
        !classes.empty() && classes != classes_in(now, static_cast<int64_t>(classes.size())))
      add_class_names(now, folder);
    say_segments(options, said, false, folder);
    return now == before && says_float32(before) ? source : in_float32(now);
  };
  if (auto config = from_source()) return *config;
  const auto claimed = [&](const base::Node& config) {
    require_claimed(format, config);
    return read_back(config);
  };
  base::Node config = exported_config(format, options, claimed, who);
  say_segments(options, read_back(config), true, folder);
  add_files_beside(config, folder);
  return base::to_json(config) + "\n";
}

}  // namespace mnemo::bundle
