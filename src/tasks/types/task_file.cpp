#include "tasks/types/task_file.h"

#include <filesystem>

namespace mnemo::tasks {

TaskFileSpec::TaskFileSpec(const base::Node& table)
    : AnswerSpec(table), options_(base::read_typed_options<Options>(table)) {}

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
