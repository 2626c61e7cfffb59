#include <torch/types.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <set>

#include "base/error.h"
#include "base/glob.h"
#include "core/task_tokens.h"
#include "memory/learnable_tokens.h"
#include "models/image_model.h"
#include "tests/verify/golden_file.h"
#include "train/optimiser.h"
#include "weights/foreign.h"

namespace mnemo::verify {
namespace {

constexpr double kWrong = std::numeric_limits<double>::infinity();

/// Our tensors under the names used in the files.
std::map<std::string, at::Tensor> by_their_names(const models::Model& model,
                                                 const std::function<at::Tensor(const layers::Parameter&)>& of) {
  weights::NamedTensors ours;
  for (const layers::Parameter& one : model.parameters().all()) {
    const at::Tensor tensor = of(one);
    ours.emplace_back(one.name, tensor.defined() ? tensor : at::zeros_like(one.tensor));
  }
  std::map<std::string, at::Tensor> theirs;
  for (auto& [name, tensor] : weights::to_theirs(*weights::foreign_format_of_backbone("vit"), ours))
    theirs[name] = tensor;
  return theirs;
}

std::string their_name(const std::string& ours) {
  for (const weights::NameRule& rule : weights::foreign_format_of_backbone("vit")->tensors) {
    if (std::string theirs = weights::theirs_by(rule, ours); !theirs.empty()) return theirs;
  }
  base::ensure(false, "timm has no name for '{}'", ours);
  return {};
}

at::Tensor gradient_of(const layers::Parameter& parameter) { return parameter.tensor.grad(); }

/// A model with tasks, with the file's parameters.
struct TaskSubject {
  explicit TaskSubject(const GoldenFile& golden);
  std::vector<models::TaskLogits> run(const at::Tensor& pixels, const core::HiddenObserver& hidden = {}) const {
    return model->task_logits({.tokens = {},
                               .rows = {},
                               .mode = file.training() ? core::Mode::train : core::Mode::evaluate,
                               .pixels = pixels},
                              {}, hidden);
  }

  const GoldenFile& file;
  base::Node optimiser;
  std::unique_ptr<models::ImageModel> model;
};

TaskSubject::TaskSubject(const GoldenFile& golden) : file(golden) {
  base::Node config = file.config();
  std::vector<std::string> patterns;
  const base::Node* train = config.find("train");
  const bool trains_all = train == nullptr;
  if (!trains_all) {
    for (const base::Node& pattern : train->items()) patterns.push_back(pattern.as_string());
    config.erase("train");
  }
  if (const base::Node* options = config.find("optimizer")) {
    optimiser = *options;
    config.erase("optimizer");
  }
  model = std::make_unique<models::ImageModel>(base::read_options<models::ModelOptions>(config), 0, at::kDouble,
                                               file.budget());
  model->parameters().to(at::kDouble, file.device());
  weights::load_theirs(*weights::foreign_format_of_backbone("vit"), file.parameters(), model->parameters().named(),
                       file.path());
  for (const layers::Parameter& one : model->parameters().all()) {
    const std::string name = their_name(one.name);
    const bool trained = trains_all || std::any_of(patterns.begin(), patterns.end(), [&](const std::string& pattern) {
                           return base::matches(pattern, name);
                         });
    at::Tensor(one.tensor).set_requires_grad(trained);
  }
}

void compare_logits(const TaskSubject& subject, int64_t step, const std::vector<models::TaskLogits>& logits,
                    GoldenComparison& comparison) {
  for (const auto& [task, found] : logits) {
    const std::string name = fmt::format("step.{}.output.logits.{}", step, task);
    const at::Tensor expected = subject.file.find(name);
    if (expected.defined()) comparison.compare("outputs", name, expected, found);
  }
}

/// hidden.embed, hidden.blocks.L and attend_mask.L of the first step.
core::HiddenObserver compare_hidden(const TaskSubject& subject, GoldenComparison& comparison) {
  const auto* tasks = subject.model->tasks();
  const core::TaskMemory memory = tasks == nullptr ? core::TaskMemory{} : tasks->tasks();
  const int64_t own = tasks == nullptr ? 0 : static_cast<int64_t>(tasks->class_rows().size());
  const auto old_rows = std::make_shared<int64_t>(0);
  return [&subject, &comparison, memory, own, old_rows](std::string_view name, const at::Tensor& rows) {
    const GoldenFile& file = subject.file;
    if (name == "embed") *old_rows = rows.size(1);
    if (name != "embed" && !name.starts_with("layers.")) return;
    const std::string theirs = name == "embed" ? "embed" : "blocks." + std::string(name.substr(7));
    const std::string full = "step.0.output.hidden." + theirs;
    if (const at::Tensor expected = file.find(full); expected.defined())
      comparison.compare("outputs", full, expected, rows);
    if (name == "embed") return;
    const int64_t layer = std::stoll(std::string(name.substr(7)));
    const std::string mask_name = fmt::format("step.0.output.attend_mask.{}", layer);
    const at::Tensor expected = file.find(mask_name);
    if (!expected.defined()) return;
    const core::AttendTable table = core::task_table(memory, layer, *old_rows, rows.size(1) - *old_rows - own);
    // In our model, memory is to the left of the rows; in the file, it is to the right.
    const at::Tensor mask = table.expand();
    const int64_t context = table.num_context();
    comparison.compare("masks", mask_name, expected,
                       at::cat({mask.narrow(1, context, mask.size(1) - context), mask.narrow(1, 0, context)}, 1));
  };
}

/// Compares each of the file's tensors under a prefix with the value `of` our parameter.
void compare_named(const TaskSubject& subject, const char* group, const std::string& prefix,
                   const std::function<at::Tensor(const layers::Parameter&)>& of, GoldenComparison& comparison) {
  const std::map<std::string, at::Tensor> found = by_their_names(*subject.model, of);
  for (const auto& [name, expected] : subject.file.under(prefix)) {
    const auto one = found.find(name);
    base::require(one != found.end(), "{}: {}{}: no such parameter", subject.file.path(), prefix, name);
    comparison.compare(group, prefix + name, expected, one->second);
  }
}

/// Frozen parameters must not have a gradient, and gradients that must be zero are exactly zero.
void compare_frozen(const TaskSubject& subject, GoldenComparison& comparison) {
  const base::Node frozen = subject.file.metadata("frozen"), zero = subject.file.metadata("zero_gradient");
  const auto names_of = [](const base::Node& list) {
    std::set<std::string> names;
    if (list.is_array()) {
      for (const base::Node& name : list.items()) names.insert(name.as_string());
    }
    return names;
  };
  const std::set<std::string> still = names_of(frozen), zeros = names_of(zero);
  const auto say = [&](const char* group, const std::string& name, bool good) {
    comparison.compare(group, name, at::zeros({}, at::kDouble), at::full({}, good ? 0.0 : kWrong, at::kDouble));
  };
  std::set<std::string> met;
  for (const layers::Parameter& one : subject.model->parameters().all()) {
    const std::string name = their_name(one.name);
    met.insert(name);
    const at::Tensor gradient = one.tensor.grad();
    if (!frozen.is_null())
      say("frozen", name,
          one.tensor.requires_grad() != still.contains(name) && !(still.contains(name) && gradient.defined()));
    if (zeros.contains(name))
      say("zero gradients", name, !gradient.defined() || gradient.count_nonzero().item<int64_t>() == 0);
  }
  for (const std::string& name : zeros)
    base::require(met.contains(name), "{}: zero_gradient: no parameter '{}'", subject.file.path(), name);
}

/// Our own results for this file and for others must be identical, on the CPU bit for bit.
void compare_bits(const TaskSubject& subject, const std::vector<models::TaskLogits>& logits,
                  GoldenComparison& comparison) {
  const base::Node promises = subject.file.metadata("bitwise");
  if (!promises.is_table()) return;
  constexpr std::string_view kLogits = "step.0.output.logits.";
  const auto find = [&](const std::vector<models::TaskLogits>& all, const std::string& name, const std::string& path) {
    const auto one = std::find_if(all.begin(), all.end(),
                                  [&](const auto& task) { return std::string(kLogits) + task.name == name; });
    base::require(one != all.end(), "{}: bitwise: no output '{}'", path, name);
    return one->logits;
  };
  std::map<std::string, std::vector<models::TaskLogits>> others;
  for (const base::Node::Member& promise : promises.members()) {
    const std::string& other = promise.value.as_string();
    const size_t colon = other.find(':');
    const std::string name = other.substr(0, colon);
    base::require(colon != std::string::npos && std::filesystem::path(name).filename() == name,
                  "{}: bitwise: expected \"FILE:NAME\", found {}", subject.file.path(), base::in_quotes(other));
    const std::string path = (std::filesystem::path(subject.file.path()).parent_path() / name).string();
    if (!others.contains(path)) {
      const at::NoGradGuard no_grad;
      const GoldenFile file(path, subject.file.device());
      others[path] = TaskSubject(file).run(file.step(0, "input.pixels"));
    }
    const at::Tensor found = find(logits, promise.key, subject.file.path()),
                     expected = find(others[path], other.substr(colon + 1), path);
    if (!found.is_cpu()) {  // a library on a device chooses another order of sums for another shape
      comparison.compare("equal to another file", promise.key, expected, found);
      continue;
    }
    const bool same = at::equal(found, expected);
    comparison.compare("bitwise", promise.key, at::zeros({}, at::kDouble),
                       at::full({}, same ? 0.0 : kWrong, at::kDouble));
  }
}

void verify_forward(const TaskSubject& subject, GoldenComparison& comparison) {
  const GoldenFile& file = subject.file;
  const at::Tensor
      pixels = file.step(0, "input.pixels").clone().set_requires_grad(file.contains("grad.step.0.input.pixels"));
  const std::vector<models::TaskLogits> logits = subject.run(pixels, compare_hidden(subject, comparison));
  compare_logits(subject, 0, logits, comparison);
  at::Tensor scalar = at::zeros({}, pixels.options().requires_grad(false));
  for (const auto& [task, found] : logits) {
    const at::Tensor cotangent = file.find("step.0.cotangent.logits." + task);
    if (cotangent.defined()) scalar = scalar + (cotangent * found).sum();
  }
  if (scalar.requires_grad()) scalar.backward();
  compare_named(subject, "gradients of parameters", "grad.param.", gradient_of, comparison);
  if (const at::Tensor expected = file.find("grad.step.0.input.pixels"); expected.defined()) {
    comparison.compare("gradients of inputs", "grad.step.0.input.pixels", expected, pixels.grad());
  }
  compare_frozen(subject, comparison);
  compare_bits(subject, logits, comparison);
}

void verify_training(const TaskSubject& subject, GoldenComparison& comparison) {
  const GoldenFile& file = subject.file;
  const std::string loss_task = file.metadata("loss_task").as_string();
  const auto optimiser = train::make_optimiser(subject.optimiser, subject.model->parameters().all());
  const int64_t steps = file.num_steps();
  for (int64_t k = 0; k < steps; ++k) {
    subject.model->parameters().zero_grad();
    const std::vector<models::TaskLogits> logits = subject.run(file.step(k, "input.pixels"));
    compare_logits(subject, k, logits, comparison);
    const auto asked = std::find_if(logits.begin(), logits.end(),
                                    [&](const auto& one) { return one.name == loss_task; });
    base::require(asked != logits.end(), "{}: loss_task: no task '{}'", file.path(), loss_task);
    const at::Tensor loss = at::cross_entropy_loss(asked->logits, file.step(k, "input.labels"));
    comparison.compare("outputs", fmt::format("step.{}.output.loss", k), file.step(k, "output.loss"), loss);
    loss.backward();
    compare_named(subject, "gradients of parameters", fmt::format("step.{}.grad.", k), gradient_of, comparison);
    compare_frozen(subject, comparison);
    optimiser->step();
    compare_named(
        subject, "optimizer steps", fmt::format("step.{}.param.", k),
        [](const layers::Parameter& one) { return one.tensor; }, comparison);
    compare_named(
        subject, "optimizer steps", fmt::format("step.{}.momentum.", k),
        [&](const layers::Parameter& one) {
          for (const auto& [name, tensor] : optimiser->state()) {
            if (name == "momentum." + one.name) return tensor;
          }
          return at::Tensor();
        },
        comparison);
  }
}

}  // namespace

GoldenReport verify_tasks(const GoldenFile& file) {
  const TaskSubject subject(file);
  GoldenComparison comparison(file);
  if (file.metadata("loss_task").is_null()) {
    verify_forward(subject, comparison);
  } else {
    verify_training(subject, comparison);
  }
  return comparison.take();
}

}  // namespace mnemo::verify
