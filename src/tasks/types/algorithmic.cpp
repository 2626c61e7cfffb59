#include "tasks/types/algorithmic.h"

#include "base/error.h"
#include "core/row_limit.h"
#include "models/options.h"

namespace mnemo::tasks {

AlgorithmicSpec::AlgorithmicSpec(const base::Node& table)
    : AnswerSpec(table), options_(base::read_typed_options<Options>(table)) {}

std::vector<std::pair<std::string, base::Node>> AlgorithmicSpec::made() {
  std::vector<std::pair<std::string, base::Node>> words;
  for (const std::string& task : Options::tasks()) words.emplace_back(task, base::Node::table({{"task", task}}));
  return words;
}

std::string AlgorithmicSpec::describe() const { return fmt::format("Made task `{}`.", options_.task); }

std::optional<double> AlgorithmicSpec::chance(const models::ModelOptions&) const {
  return data::AlgorithmicTask(options_, 0).chance();
}

void AlgorithmicSpec::require_places(const core::RowLimit& limit, const models::ModelOptions&) const {
  limit.require(options_.length(), "the longest sample has this many tokens");
}

std::shared_ptr<const data::SampleSource> AlgorithmicSpec::source(bool shuffle, int64_t seed) const {
  base::require(!shuffle, "{}",
                "train.shuffle has no effect on generated samples, which are different in every step; leave it out");
  return std::make_shared<data::AlgorithmicTask>(options_, seed);
}

base::Node AlgorithmicSpec::facts(const data::SampleSource&) const {
  return base::Node::table(
      {{"task", base::write_options(options_)}, {"chance", data::AlgorithmicTask(options_, 0).chance()}});
}

}  // namespace mnemo::tasks
