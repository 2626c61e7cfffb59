#include "tasks/types/listops.h"

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "data/text/table_head.h"
#include "models/options.h"
#include "tasks/classification.h"

namespace mnemo::tasks {
namespace {

constexpr int64_t kClasses = 10;  // the values 0 to 9

}  // namespace

ListOpsSpec::ListOpsSpec(const base::Node& table)
    : TaskSpec(table), options_(base::read_typed_options<Options>(table)) {}

std::vector<std::pair<std::string, base::Node>> ListOpsSpec::made() { return {{"listops", base::Node::table()}}; }

std::optional<base::Node> ListOpsSpec::found_in(const std::string& path) {
  const data::TableHead head = data::read_table_head(path);
  const bool known = head.rows.size() > 1 && head.columns() == 2 && head.rows[0][0] == "Source" &&
                     head.rows[1][0].find_first_of("([") == 0;
  return known ? std::optional(base::Node::table({{"train", path}})) : std::nullopt;
}

std::string ListOpsSpec::describe() const {
  return options_.train.empty()
             ? fmt::format("Made ListOps expressions of {} to {} tokens.", options_.min_length + 1,
                           options_.max_length - 1)
             : fmt::format("ListOps expressions of `{}`.", std::filesystem::path(options_.train).filename().string());
}

std::optional<double> ListOpsSpec::chance(const models::ModelOptions&) const {
  return 1.0 / static_cast<double>(kClasses);
}

DataShape ListOpsSpec::shape(const models::ModelOptions&) const {
  return {.vocabulary = data::kListOpsVocabulary, .num_classes = kClasses};
}

LoadedTask ListOpsSpec::load(const models::ModelOptions& model, const TaskSettings& settings) const {
  data::LabelledSets sets = data::load_listops(options_);
  int64_t tokens = 0;
  for (int64_t i = 0; i < sets.train->size(); ++i) tokens += std::min(sets.train->length(i), options_.max_length);
  LoadedTask loaded{.task = nullptr, .shape = shape(model), .tokens_per_row = tokens / sets.train->size()};
  loaded.task = std::make_unique<Classification>(
      std::move(sets), ClassificationOptions{.batch_size = settings.batch_size,
                                             .shuffle = settings.shuffle,
                                             .seed = settings.seed,
                                             .eval_batch_size = settings.eval_batch_size,
                                             .eval_samples = settings.eval_samples,
                                             .max_length = options_.max_length,
                                             .pad_to_max_length = options_.pad == Options::Pad::max_length,
                                             .ask_every_segment = options_.loss == Options::Loss::every});
  return loaded;
}

Shown ListOpsSpec::show(const ShowOptions& options) const {
  const std::string name = options.part.value_or("train");
  const data::Part wanted = data::part_of(name, "data: --part");
  std::string lines = "Source\tTarget\n";
  base::Node samples = base::Node::array();
  int64_t shown = 0;
  const auto show_one = [&](const data::ListOpsExpression& expression) {
    if (shown++ >= options.count) return;
    const std::string text = data::listops_text(expression.tokens);
    lines += fmt::format("{}\t{}\n", text, expression.value);
    samples.push_back(base::Node::table(
        {{"source", text}, {"target", expression.value}, {"tokens", static_cast<int64_t>(expression.tokens.size())}}));
  };
  if (options_.train.empty()) {
    data::make_listops(options_, [&](data::Part part, const data::ListOpsExpression& expression) {
      if (part == wanted) show_one(expression);
      return shown < options.count;
    });
  } else {
    const std::string& file = wanted == data::Part::train   ? options_.train
                              : wanted == data::Part::valid ? options_.valid
                                                            : options_.test;
    base::require(!file.empty(), "data: --part: the recipe has no part {}", name);
    data::read_listops(file, show_one);
  }
  return {std::move(lines), base::Node::table({{"data", base::write_options(options_)},
                                               {"vocabulary_size", data::kListOpsVocabulary},
                                               {"samples", std::move(samples)}})};
}

}  // namespace mnemo::tasks
