#include "runs/run_samples.h"

#include <cerrno>
#include <cstring>
#include <fstream>

#include "base/error.h"
#include "base/file_io.h"
#include "base/json_value.h"
#include "base/log.h"
#include "infer/session.h"
#include "infer/text_session.h"
#include "models/model.h"

namespace mnemo::runs {
namespace {

base::Node to_node(const RunSample& sample) {
  return base::Node::table(
      {{"step", sample.step}, {"prompt", base::json_text(sample.prompt)}, {"sample", base::json_text(sample.text)}});
}

/// The samples of a file up to a step. Lines that are no samples are left out.
std::vector<RunSample> read_samples(const std::string& path, int64_t step) {
  std::vector<RunSample> samples;
  if (step == 0 || !base::path_exists(path)) return samples;
  const std::string text = base::read_file(path);
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = text.find('\n', begin);
    if (end == std::string::npos) break;  // torn
    try {
      const base::Node line = base::parse_json(std::string_view(text).substr(begin, end - begin), path);
      RunSample sample{line.at("step").as_int(), line.at("prompt").as_string(), line.at("sample").as_string()};
      if (sample.step <= step) samples.push_back(std::move(sample));
    } catch (const base::InputError&) {
    }
    begin = end + 1;
  }
  return samples;
}

}  // namespace

void require_samples_fit(const recipes::Recipe& recipe) {
  if (recipe.generate.sample_every == 0) return;
  const auto task = recipe.task();
  base::require(task->text() != nullptr,
                "recipe: 'generate.sample_every': only text models write samples; expected 0, found {} with {}",
                recipe.generate.sample_every, task->title());
}

RunSamples::RunSamples(const experiment::Experiment& experiment, const std::string& folder, int64_t step)
    : experiment_(experiment), path_(base::join_path(folder, kFile)) {
  require_samples_fit(experiment.recipe);
  base::require(experiment.recipe.generate.sample_every == 0 || !experiment.model->sees_ahead(),
                "recipe: 'generate.sample_every': {}, and it writes no text; expected 0, found {}",
                models::kSeesAheadNotice, experiment.recipe.generate.sample_every);
  every_ = experiment.recipe.generate.sample_every;
  samples_ = read_samples(path_, step);
  if (every_ == 0 && !base::path_exists(path_)) return;
  std::string kept;
  for (const RunSample& sample : samples_) kept += base::to_json(to_node(sample), -1) + "\n";
  base::write_file_atomic(path_, kept);
}

const RunSample* RunSamples::take(int64_t step) {
  const recipes::Writing& writing = experiment_.recipe.generate;
  const bool on_cpu = core::device_of(*experiment_.model).is_cpu();
  infer::Session session = on_cpu ? infer::fastest_session(experiment_.model, writing.options)
                                  : infer::Session(experiment_.model, writing.options);
  session.set_reset_segments(experiment_.recipe.task()->text()->resets_segments());
  infer::TextSession writer(std::move(session), experiment_.tokenizer);
  RunSample sample{step, writing.prompt, {}};
  try {
    writer.feed(writing.prompt);
    // To its end after a signal too: the checkpoint that follows is of this step, and a resumed run takes none of it.
    sample.text = writer.generate(writing.options);
  } catch (const base::InputError& error) {
    base::log_warning("skipped the sample of step {}: {}", step, error.what());
    return nullptr;
  }
  sample.text += writer.finish();
  std::ofstream file(path_, std::ios::binary | std::ios::app);
  file << base::to_json(to_node(sample), -1) + "\n" << std::flush;
  if (!file.good()) base::system_failure(path_, "cannot be written", errno);
  return &samples_.emplace_back(std::move(sample));
}

}  // namespace mnemo::runs
