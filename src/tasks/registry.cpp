#include "tasks/registry.h"

#include <algorithm>

#include "base/file_io.h"
#include "data/text/text_files.h"
#include "data/text/text_find.h"
#include "tasks/types/algorithmic.h"
#include "tasks/types/detection.h"
#include "tasks/types/images.h"
#include "tasks/types/labelled_text.h"
#include "tasks/types/listops.h"
#include "tasks/types/masked_text.h"
#include "tasks/types/pairs.h"
#include "tasks/types/span_text.h"
#include "tasks/types/task_file.h"
#include "tasks/types/text.h"

namespace mnemo::tasks {
namespace {

template <class S>
void add(TaskTypes& all, const char* name, const char* meaning) {
  all.options.add<typename S::Options>(name, meaning);
  TaskType type;
  type.read = [](const base::Node& table) { return std::make_unique<const S>(table); };
  if constexpr (requires { S::made(); }) type.made = S::made();
  if constexpr (requires(const std::string& path) { S::found_in(path); }) {
    type.found_in = [](const std::string& path) { return S::found_in(path); };
  }
  if constexpr (requires(base::Node & table) { S::Options::from_earlier(table); })
    type.from_earlier = [](base::Node& table) { S::Options::from_earlier(table); };
  for (auto& [word, table] : type.made) table.set("type", name);
  all.entries.add(name, std::move(type));
}

TaskTypes make_types() {
  TaskTypes all;
  add<TextSpec>(all, "text", "your own text, for language modelling");
  add<AlgorithmicSpec>(all, "algorithmic", "synthetic tasks that need memory");
  add<TaskFileSpec>(all, "task_file", "question-and-answer samples from a file");
  add<ListOpsSpec>(all, "listops", "Long ListOps: classify the value of nested lists");
  add<LabelledTextSpec>(all, "text_classification", "texts, or pairs of texts, with a label each");
  add<MaskedTextSpec>(all, "masked_text", "a text with masked tokens, for masked language modelling");
  add<SpanTextSpec>(all, "span_corruption", "a text with spans taken out, which a T5 learns to write");
  add<DetectionSpec>(all, "detection", "images with boxes, and perhaps masks, of objects");
  add<PairSpec>(all, "pairs", "sentences and their translations");
  add<ImageSpec>(all, "images", "images with one class each");
  all.default_type = all.entries.names().front();
  return all;
}

}  // namespace

const TaskTypes& TaskTypes::all() {
  static const TaskTypes types = make_types();
  return types;
}

std::unique_ptr<const TaskSpec> task_spec(const base::Node& table) {
  return TaskTypes::all().entries.find(table.at("type").as_string()).read(table);
}

std::vector<std::string> made_words() {
  std::vector<std::string> words;
  const auto& entries = TaskTypes::all().entries;
  for (const std::string& name : entries.names()) {
    for (const auto& [word, table] : entries.find(name).made) words.push_back(word);
  }
  return words;
}

std::optional<base::Node> find_data(const std::string& source, const std::string& type) {
  const auto& entries = TaskTypes::all().entries;
  if (!type.empty()) entries.find(type);
  for (const std::string& name : entries.names()) {
    for (const auto& [word, table] : entries.find(name).made) {
      if (word == source) return table;
    }
  }
  if (!base::path_exists(source) && !data::is_pattern(source)) return std::nullopt;
  std::vector<std::string> names = entries.names();
  std::stable_partition(names.begin(), names.end(),
                        [](const std::string& name) { return name != TaskTypes::all().default_type; });
  for (const std::string& name : names) {
    const auto& found_in = entries.find(name).found_in;
    if (!found_in || (!type.empty() && name != type)) continue;
    if (type.empty() && name == TaskTypes::all().default_type) data::require_no_table(source);
    if (auto table = found_in(source)) {
      table->set("type", name);
      return table;
    }
  }
  if (type.empty()) return std::nullopt;
  return base::Node::table({{"train", source}, {"type", type}});
}

}  // namespace mnemo::tasks
