#include "tests/verify/text.h"

#include <torch/types.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "models/model.h"

namespace mnemo::verify {
at::Tensor TextFolder::find(const std::string& name) const {
  const at::Tensor* tensor = file.find(name);
  return tensor == nullptr ? at::Tensor() : tensor->to(device);
}

at::Tensor TextFolder::at(const std::string& name) const { return file.at(name, path).to(device); }

base::Node TextFolder::metadata(const std::string& key) const {
  const auto found = file.metadata.find(key);
  return found == file.metadata.end() ? base::Node() : base::parse_json(found->second, path);
}

bundle::AnyModel TextFolder::load(at::ScalarType dtype, const std::function<void(base::Node&)>& change) const {
  return bundle::load_any(folder, {.dtype = dtype, .device = device, .change = change});
}

TextComparison::TextComparison(const TextFolder& text)
    : text_(text), comparison_(text.path, text.file.metadata, "mnemo-expect/1") {}

void TextComparison::compare(at::ScalarType dtype, const std::string& group, const std::string& name,
                             const at::Tensor& found, const at::Tensor& mask, double single) {
  compared_.insert(name);
  at::Tensor expected = text_.at(name).to(at::kDouble);
  at::Tensor got = found.defined() ? found.detach().to(at::kDouble) : at::zeros_like(expected);
  if (mask.defined() && expected.dim() >= 2 && expected.sizes() == got.sizes()) {
    at::Tensor rows = mask;
    while (rows.dim() < expected.dim()) rows = rows.unsqueeze(-1);
    expected = expected.masked_fill(rows.logical_not(), 0.0);
    got = got.masked_fill(rows.logical_not(), 0.0);
  }
  if (dtype == at::kDouble) return comparison_.compare(group, name, expected, got);
  const double largest = expected.numel() == 0 ? 0.0 : expected.abs().max().item<double>();
  const double scale = largest > 0.0 ? largest : 1.0;
  comparison_.compare("float32: " + group, name, expected / scale, got / scale, single);
}

void TextComparison::compare_ids(const std::string& name, const at::Tensor& found) {
  compared_.insert(name);
  comparison_.compare("generated tokens", name, text_.at(name), found, 0.0);
}

GoldenReport TextComparison::take() {
  for (const auto& [name, tensor] : text_.file.tensors)
    base::require(compared_.contains(name), "{}: the model has nothing named '{}'", text_.path, name);
  return comparison_.take();
}

std::map<std::string, at::Tensor> take_gradients(const bundle::AnyModel& loaded) {
  weights::NamedTensors gradients;
  std::map<std::string, at::Tensor> named;
  for (const auto& [name, tensor] : loaded.model->parameters().named()) {
    const at::Tensor gradient = tensor.grad().defined() ? tensor.grad().clone() : at::zeros_like(tensor).detach();
    const bool fresh = std::find(loaded.fresh.begin(), loaded.fresh.end(), name) != loaded.fresh.end();
    if (fresh || loaded.format == nullptr) {
      named[name] = gradient;
    } else {
      gradients.emplace_back(name, gradient);
    }
  }
  if (loaded.format != nullptr) {
    for (const auto& [name, tensor] :
         weights::to_theirs(*loaded.format, gradients, loaded.model->options().backbone.num_heads()))
      named[name] = tensor;
  }
  loaded.model->parameters().zero_grad();
  return named;
}

std::vector<FoundText> search_by_definition(const NextToken& next, const SearchSettings& settings) {
  struct Beam {
    std::vector<int64_t> tokens;
    double sum = 0.0;
  };
  const auto width = static_cast<size_t>(settings.num_beams);
  std::vector<Beam> running = {{}};
  std::vector<FoundText> finished;
  const auto better = [](const FoundText& a, const FoundText& b) { return a.score > b.score; };
  for (int64_t n = 1; n <= settings.max_new_tokens && !running.empty(); ++n) {
    std::vector<Beam> candidates;
    for (const Beam& beam : running) {
      const at::Tensor row = next(beam.tokens).to(at::kCPU, at::kDouble).contiguous();
      for (int64_t token = 0; token < row.numel(); ++token) {
        Beam candidate = beam;
        candidate.tokens.push_back(token);
        candidate.sum += row.const_data_ptr<double>()[token];
        candidates.push_back(std::move(candidate));
      }
    }
    const size_t kept = std::min(candidates.size(), width == 1 ? size_t{1} : 2 * width);
    std::partial_sort(candidates.begin(), candidates.begin() + static_cast<std::ptrdiff_t>(kept), candidates.end(),
                      [](const Beam& a, const Beam& b) { return a.sum > b.sum; });
    candidates.resize(kept);
    running.clear();
    const double length = std::pow(static_cast<double>(n), settings.length_penalty);
    for (size_t place = 0; place < candidates.size(); ++place) {
      Beam& candidate = candidates[place];
      const bool ends = candidate.tokens.back() == settings.eos || n == settings.max_new_tokens;
      if (ends && place < width) {
        finished.push_back({candidate.tokens, candidate.sum / length});
      } else if (!ends && running.size() < width) {
        running.push_back(std::move(candidate));
      }
    }
    std::stable_sort(finished.begin(), finished.end(), better);
    if (finished.size() > width) finished.resize(width);
    if (finished.size() < width) continue;
    using Early = SearchSettings::EarlyStopping;
    if (settings.early_stopping == Early::yes || running.empty()) break;
    const bool longest = settings.early_stopping == Early::never && settings.length_penalty > 0.0;
    const double reach = longest ? std::pow(static_cast<double>(settings.max_new_tokens), settings.length_penalty)
                                 : length;
    if (running.front().sum / reach <= finished.back().score) break;
  }
  return finished;
}

}  // namespace mnemo::verify
