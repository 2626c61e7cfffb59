#include "tests/support/run.h"

#include <torch/types.h>

#include "tests/support/numbers.h"

namespace mnemo::test {

Plan whole(int64_t length) { return {{length, {true, true}}}; }

Plan parts(const std::vector<int64_t>& lengths) {
  Plan plan;
  for (size_t i = 0; i < lengths.size(); ++i) plan.push_back({lengths[i], {i == 0, i + 1 == lengths.size()}});
  return plan;
}

Plan by_token(int64_t length) { return parts(std::vector<int64_t>(static_cast<size_t>(length), 1)); }

Plan segments(const std::vector<int64_t>& lengths) {
  Plan plan;
  for (const int64_t length : lengths) plan.push_back({length, {true, true}});
  return plan;
}

Plan operator+(Plan first, const Plan& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

Outcome run(const core::Model& model, const at::Tensor& input, const Plan& plan, const core::State& state,
            core::Mode mode, const at::Tensor& valid) {
  at::manual_seed(17);  // what is drawn in training is drawn alike in runs that are compared
  Outcome result{{}, state};
  std::vector<at::Tensor> hidden;
  int64_t done = 0;
  for (const Call& call : plan) {
    core::Segment segment;
    const at::Tensor piece = input.narrow(1, done, call.length);
    (input.is_floating_point() ? segment.rows : segment.tokens) = piece;
    if (valid.defined()) segment.valid = valid.narrow(1, done, call.length);
    segment.part = call.part;
    segment.mode = mode;
    core::StepResult step = model.forward(segment, result.state);
    hidden.push_back(step.hidden);
    result.state = std::move(step.state);
    done += call.length;
  }
  TORCH_CHECK(done == input.size(1), "the plan has ", done, " tokens, the input ", input.size(1));
  result.hidden = at::cat(hidden, 1);
  return result;
}

std::string state_difference(const core::State& a, const core::State& b, double tolerance) {
  const auto first = a.fields(), second = b.fields();
  for (size_t i = 0; i < std::max(first.size(), second.size()); ++i) {
    if (i >= first.size()) return "only the second has " + second[i].first.path;
    if (i >= second.size()) return "only the first has " + first[i].first.path;
    if (first[i].first.path != second[i].first.path) return first[i].first.path + " against " + second[i].first.path;
    const double worst = difference(first[i].second, second[i].second);
    if (!(worst <= tolerance)) {
      return fmt::format("{} differs by {} ({} against {})", first[i].first.path, worst,
                         c10::str(first[i].second.sizes()), c10::str(second[i].second.sizes()));
    }
  }
  return "";
}

}  // namespace mnemo::test
