#include "tasks/types/task_file.h"

#include <filesystem>

#include "data/text/table_head.h"

namespace mnemo::tasks {

TaskFileSpec::TaskFileSpec(const base::Node& table)
    : AnswerSpec(table), options_(base::read_typed_options<Options>(table)) {}

std::optional<base::Node> TaskFileSpec::found_in(const std::string& path) {
  const data::TableHead head = data::read_table_head(path);
  const bool known = !head.rows.empty() && head.rows.front() == std::vector<std::string>{"input", "target", "answer"};
  return known ? std::optional(base::Node::table({{"train", path}})) : std::nullopt;
}

std::string TaskFileSpec::describe() const {
  return fmt::format("Samples of `{}`.", std::filesystem::path(options_.train).filename().string());
}

std::shared_ptr<const data::SampleSource> TaskFileSpec::source(bool shuffle, int64_t seed) const {
  return std::make_shared<data::TaskFiles>(options_, shuffle, seed);
}

base::Node TaskFileSpec::facts(const data::SampleSource&) const {
  return base::Node::table({{"data", base::write_options(options_)}});
}

}  // namespace mnemo::tasks
