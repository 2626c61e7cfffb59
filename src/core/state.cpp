#include "core/state.h"

#include <torch/types.h>

#include <algorithm>

#include "base/error.h"

namespace mnemo::core {
namespace {

std::vector<std::string_view> split_dims(std::string_view dims) {
  std::vector<std::string_view> names;
  while (!dims.empty()) {
    size_t end = dims.find(' ');
    names.push_back(dims.substr(0, end));
    if (end == std::string_view::npos) break;
    dims.remove_prefix(end + 1);
  }
  return names;
}

/// Pads dimension dim with zeros (false) on the left to length `size`.
at::Tensor pad_left(const at::Tensor& tensor, int64_t dim, int64_t size) {
  int64_t missing = size - tensor.size(dim);
  if (missing == 0) return tensor;
  std::vector<int64_t> shape = tensor.sizes().vec();
  shape[dim] = missing;
  return at::cat({at::zeros(shape, tensor.options().requires_grad(false)), tensor}, dim);
}

}  // namespace

int64_t Field::dim(std::string_view name) const {
  auto names = split_dims(dims);
  auto found = std::find(names.begin(), names.end(), name);
  return found == names.end() ? -1 : found - names.begin();
}

struct State::List final : State::Node {
  explicit List(Children c) : children(std::move(c)) {}
  std::shared_ptr<const Node> map(const Map& map, const std::string& prefix) const override {
    Children mapped;
    mapped.reserve(children.size());
    for (const auto& [name, child] : children) mapped.emplace_back(name, child.mapped(map, prefix + name + "."));
    return std::make_shared<List>(std::move(mapped));
  }
  Children children;
};

State State::list(Children children) {
  State state;
  state.node_ = std::make_shared<List>(std::move(children));
  return state;
}

State State::child(std::string_view name) const {
  if (!node_) return {};
  const auto* list = dynamic_cast<const List*>(node_.get());
  if (list == nullptr) wrong_type("list of states");
  for (const auto& [child_name, child] : list->children) {
    if (child_name == name) return child;
  }
  return {};
}

State State::mapped(const Map& map, const std::string& prefix) const {
  if (!node_) return {};
  State state;
  state.node_ = node_->map(map, prefix);
  return state;
}

void State::wrong_type(const char* wanted) {
  base::input_error("the state is of another mechanism or model; expected {}", wanted);
}

State State::map(const Map& map) const {
  return mapped(
      [&](const Field& field, const at::Tensor& tensor) { return tensor.defined() ? map(field, tensor) : tensor; }, "");
}

std::vector<std::pair<Field, at::Tensor>> State::fields() const {
  std::vector<std::pair<Field, at::Tensor>> fields;
  map([&](const Field& field, const at::Tensor& tensor) {
    fields.emplace_back(field, tensor);
    return tensor;
  });
  return fields;
}

State detach(const State& state) {
  return state.map([](const Field&, const at::Tensor& tensor) { return tensor.detach(); });
}

State clone(const State& state) {
  return state.map([](const Field&, const at::Tensor& tensor) { return tensor.clone(); });
}

State to(const State& state, at::ScalarType dtype, at::Device device) {
  return state.map([&](const Field&, const at::Tensor& tensor) {
    return tensor.is_floating_point() ? tensor.to(device, dtype) : tensor.to(device);
  });
}

State select_batch(const State& state, const at::Tensor& rows) {
  return state.map([&](const Field& field, const at::Tensor& tensor) {
    return field.per_sequence() ? tensor.index_select(field.dim("B"), rows.to(tensor.device())) : tensor;
  });
}

State concat_batch(const std::vector<State>& states) {
  base::ensure(!states.empty(), "concat_batch of no states");
  if (states.size() == 1) return states.front();
  std::vector<std::vector<std::pair<Field, at::Tensor>>> all;
  for (const State& state : states) all.push_back(state.fields());
  for (const auto& fields : all) {
    if (fields.size() != all.front().size()) {
      throw base::ShapeError(fmt::format("concat_batch: expected states with the same fields, found {} and {} of them",
                                         all.front().size(), fields.size()));
    }
  }
  size_t index = 0;
  return states.front().map([&](const Field& field, const at::Tensor& tensor) {
    size_t i = index++;
    for (const auto& fields : all) {
      if (fields[i].first.path != field.path) {
        throw base::ShapeError(
            fmt::format("concat_batch: expected the field '{}', found '{}'", field.path, fields[i].first.path));
      }
    }
    if (!field.per_sequence()) return tensor;
    int64_t ragged = field.dim("M");
    int64_t longest = 0;
    if (ragged >= 0) {
      for (const auto& fields : all) longest = std::max(longest, fields[i].second.size(ragged));
    }
    std::vector<at::Tensor> parts;
    for (const auto& fields : all) {
      parts.push_back(ragged >= 0 ? pad_left(fields[i].second, ragged, longest) : fields[i].second);
    }
    return at::cat(parts, field.dim("B"));
  });
}

State reset_rows(const State& state, const at::Tensor& rows, const State& initial) {
  if (!rows.any().item<bool>()) return state;
  auto fresh = initial.fields();
  return state.map([&](const Field& field, const at::Tensor& tensor) -> at::Tensor {
    if (!field.per_sequence()) return tensor;
    auto found = std::find_if(fresh.begin(), fresh.end(),
                              [&](const auto& entry) { return entry.first.path == field.path; });
    if (found == fresh.end()) {
      throw base::ShapeError(
          fmt::format("reset_rows: the initial state has no field '{}'; a document may start only "
                      "where a segment starts",
                      field.path));
    }
    at::Tensor start = found->second, now = tensor;
    const int64_t ragged = field.dim("M");
    if (ragged >= 0 && start.dim() == now.dim()) {
      const int64_t longest = std::max(start.size(ragged), now.size(ragged));
      start = pad_left(start, ragged, longest);
      now = pad_left(now, ragged, longest);
    }
    if (start.sizes() != now.sizes() || start.scalar_type() != now.scalar_type()) {
      throw base::ShapeError(fmt::format("reset_rows: '{}': expected an initial {} of {}, found {} of {}", field.path,
                                         c10::str(now.sizes()), c10::toString(now.scalar_type()),
                                         c10::str(start.sizes()), c10::toString(start.scalar_type())));
    }
    std::vector<int64_t> shape(now.dim(), 1);
    shape[field.dim("B")] = rows.size(0);
    return at::where(rows.view(shape), start, now);
  });
}

int64_t num_bytes(const State& state) {
  return num_bytes(state, Lifetime::sequence) + num_bytes(state, Lifetime::model);
}

int64_t num_bytes(const State& state, Lifetime lifetime) {
  int64_t total = 0;
  for (const auto& [field, tensor] : state.fields()) {
    if (field.per_sequence() == (lifetime == Lifetime::sequence)) total += tensor.numel() * tensor.element_size();
  }
  return total;
}

std::vector<std::pair<std::string, at::Tensor>> save(const State& state) {
  std::vector<std::pair<std::string, at::Tensor>> named;
  for (const auto& [field, tensor] : state.fields()) named.emplace_back(field.path, tensor.detach().contiguous());
  return named;
}

State load(const State& like, const std::function<at::Tensor(const std::string&)>& find) {
  int64_t batch = -1;
  return like.map_declared([&](const Field& field, const at::Tensor& tensor) {
    at::Tensor stored = find(field.path);
    if (!tensor.defined() && !stored.defined()) return tensor;
    base::require(stored.defined(), "state: expected a tensor '{}', found none", field.path);
    auto names = split_dims(field.dims);
    bool fits = stored.dim() == static_cast<int64_t>(names.size());
    if (tensor.defined()) {
      fits = fits && stored.scalar_type() == tensor.scalar_type();
      for (int64_t i = 0; fits && i < tensor.dim(); ++i) {
        fits = names[i] == "B" || names[i] == "M" || stored.size(i) == tensor.size(i);
      }
    }
    base::require(fits, "state: '{}' should be [{}]{}, found {} of {}", field.path, field.dims,
                  tensor.defined()
                      ? fmt::format(" like {} of {}", c10::str(tensor.sizes()), c10::toString(tensor.scalar_type()))
                      : std::string(),
                  c10::str(stored.sizes()), c10::toString(stored.scalar_type()));
    if (field.per_sequence()) {
      int64_t rows = stored.size(field.dim("B"));
      base::require(batch < 0 || rows == batch, "state: '{}' has {} sequences, other tensors have {}", field.path, rows,
                    batch);
      batch = rows;
    }
    return tensor.defined() ? stored.to(tensor.device()) : stored;
  });
}

}  // namespace mnemo::core
