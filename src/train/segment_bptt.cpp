#include "train/segment_bptt.h"

#include <torch/csrc/autograd/autograd.h>
#include <torch/types.h>

#include <algorithm>
#include <map>
#include <string>

#include "base/error.h"

namespace mnemo::train {
namespace {

/// How many boundaries each field of the state may be crossed at, in a list of `segments`; -1 = all of them.
class Depths {
 public:
  Depths(const core::Model& model, size_t segments) : model_(model), boundaries_(static_cast<int64_t>(segments) - 1) {}

  /// A depth that reaches over the whole list is as good as full.
  int64_t of(const std::string& path) {
    const auto [entry, fresh] = depths_.try_emplace(path, 0);
    if (fresh) {
      const int64_t depth = model_.bptt_depth(path);
      entry->second = depth < 0 || depth >= boundaries_ ? -1 : depth;
    }
    return entry->second;
  }

 private:
  const core::Model& model_;
  int64_t boundaries_;
  std::map<std::string, int64_t> depths_;
};

bool carries_gradient(const at::Tensor& tensor) { return tensor.is_floating_point() && tensor.requires_grad(); }

at::Tensor plus(const at::Tensor& sum, const at::Tensor& term) { return sum.defined() ? sum + term : term; }

core::StepResult run_segment(const core::Model& model, const BpttSegment& segment, const core::State& state) {
  return model.forward(segment.input, start_documents(model, state, segment.reset));
}

at::Tensor checked_loss(const SegmentLoss& loss, const core::StepResult& step, size_t index) {
  at::Tensor value = loss(step, index);
  base::ensure(!value.defined() || value.numel() == 1, "the loss of segment {} has {} elements", index,
               value.defined() ? value.numel() : 0);
  return value;
}

/// Plain autograd over the list: fields are detached at a boundary or keep their graph. `keeps(path, boundary)` says which;
/// boundary b lies before segment b. Where no graph crosses a boundary, what was summed up so far is differentiated.
BpttResult run_cut(const core::Model& model, const std::vector<BpttSegment>& segments, core::StepResult step,
                   const SegmentLoss& loss, const std::function<bool(const std::string&, int64_t)>& keeps) {
  BpttResult result;
  core::State state;
  torch::autograd::variable_list pending;
  for (size_t index = 0; index < segments.size(); ++index) {
    if (index > 0) step = run_segment(model, segments[index], state);
    const at::Tensor value = checked_loss(loss, step, index);
    result.losses.push_back(value.defined() ? value.detach() : at::Tensor());
    if (value.defined() && value.requires_grad()) pending.push_back(value);
    const bool last = index + 1 == segments.size();
    bool crosses = false;
    state = step.state.map([&](const core::Field& field, const at::Tensor& tensor) {
      if (last || !carries_gradient(tensor) || !keeps(field.path, static_cast<int64_t>(index) + 1)) return tensor.detach();
      crosses = true;
      return tensor;
    });
    step = {};
    if (crosses || pending.empty()) continue;
    torch::autograd::backward(pending);
    pending.clear();
  }
  result.state = std::move(state);
  return result;
}

/// `sliding` with finite depths: every segment has a graph of its own, its incoming fields are leaves. A loss's gradient goes from
/// the leaves of its segment to the outgoing fields of the segment before, hop by hop.
class Sliding {
 public:
  Sliding(const core::Model& model, const SegmentLoss& loss, Depths& depths, const core::State& first_state)
      : model_(model), loss_(loss), depths_(depths) {
    for (const auto& [field, tensor] : first_state.fields()) {
      if (!tensor.is_floating_point()) continue;
      hops_ = std::max(hops_, depths_.of(field.path));
      any_full_ = any_full_ || depths_.of(field.path) < 0;
    }
  }

  /// Whether there is a finite depth above 0; without, run_cut does the same in one pass.
  bool needed() const { return hops_ > 0; }

  BpttResult run(const std::vector<BpttSegment>& segments, core::StepResult step) {
    const auto count = static_cast<int64_t>(segments.size());
    nodes_.resize(segments.size());
    core::State state;
    for (int64_t s = 0; s < count; ++s) {
      if (s > 0) step = run_segment(model_, segments[static_cast<size_t>(s)], state);
      state = keep(step, s, s + 1 == count);
      step = {};
      if (any_full_) continue;
      for (int64_t hop = 0; hop < hops_ && hop < s; ++hop) cross(s - hop, hop);
      if (s >= hops_) differentiate(s - hops_);
    }
    if (any_full_) {
      // Past the last finite depth only full fields are crossed, so the gradients of all later losses travel together.
      for (int64_t s = count - 1; s > 0; --s) {
        for (int64_t hop = 0; hop <= hops_; ++hop) cross(s, hop);
        differentiate(s);
      }
      differentiate(0);
    } else {
      for (int64_t s = std::max<int64_t>(0, count - hops_); s < count; ++s) differentiate(s);
    }
    result_.state = std::move(state);
    return std::move(result_);
  }

 private:
  /// One field between two segments.
  struct Edge {
    int64_t depth;       ///< -1: full
    at::Tensor outgoing;  ///< as the earlier segment made it, with its graph
    at::Tensor leaf;      ///< as the later one read it
  };
  /// One segment: its loss, the fields it hands on, and the gradients that have come back through those after `hop` boundaries.
  struct Node {
    at::Tensor loss;
    std::vector<Edge> out;
    std::vector<std::vector<at::Tensor>> gradients;  ///< [hop][edge], undefined = zero
  };

  /// Records the segment and returns the state the next one reads.
  core::State keep(const core::StepResult& step, int64_t s, bool last) {
    Node& node = nodes_[static_cast<size_t>(s)];
    node.loss = checked_loss(loss_, step, static_cast<size_t>(s));
    result_.losses.push_back(node.loss.defined() ? node.loss.detach() : at::Tensor());
    if (node.loss.defined() && !node.loss.requires_grad()) node.loss.reset();
    core::State next = step.state.map([&](const core::Field& field, const at::Tensor& tensor) {
      at::Tensor cut = tensor.detach();
      if (last || !carries_gradient(tensor)) return cut;
      const int64_t depth = depths_.of(field.path);
      base::ensure(depth <= hops_ && (depth >= 0 || any_full_), "state field '{}' appeared after the first segment", field.path);
      if (depth == 0) return cut;
      cut.set_requires_grad(true);
      node.out.push_back({depth, tensor, cut});
      return cut;
    });
    node.gradients.assign(static_cast<size_t>(hops_) + 1, std::vector<at::Tensor>(node.out.size()));
    return next;
  }

  /// The scalar of segment s as seen after `hop` boundaries: its own loss, or its outgoing fields weighted with what came back.
  void add_roots(const Node& node, size_t hop, torch::autograd::variable_list& roots,
                 torch::autograd::variable_list& weights) const {
    if (hop == 0 && node.loss.defined()) {
      roots.push_back(node.loss);
      weights.emplace_back(at::ones_like(node.loss));
    }
    for (size_t i = 0; i < node.out.size(); ++i) {
      if (!node.gradients[hop][i].defined()) continue;
      roots.push_back(node.out[i].outgoing);
      weights.push_back(node.gradients[hop][i]);
    }
  }

  /// Takes the gradient that has crossed `hop` boundaries when it reaches segment s over the boundary before s.
  void cross(int64_t s, int64_t hop) {
    const Node& node = nodes_[static_cast<size_t>(s)];
    Node& before = nodes_[static_cast<size_t>(s) - 1];
    torch::autograd::variable_list roots, weights, leaves;
    add_roots(node, static_cast<size_t>(hop), roots, weights);
    std::vector<size_t> edges;
    for (size_t i = 0; i < before.out.size(); ++i) {
      if (before.out[i].depth >= 0 && before.out[i].depth <= hop) continue;
      leaves.push_back(before.out[i].leaf);
      edges.push_back(i);
    }
    if (roots.empty() || leaves.empty()) return;
    const auto gradients = torch::autograd::grad(roots, leaves, weights, true, false, true);
    auto& arrived = before.gradients[static_cast<size_t>(std::min(hop + 1, hops_))];
    for (size_t i = 0; i < edges.size(); ++i) {
      if (gradients[i].defined()) arrived[edges[i]] = plus(arrived[edges[i]], gradients[i]);
    }
  }

  /// Adds the gradients of segment s's parameters and inputs, of all hops at once, and lets go of its graph.
  void differentiate(int64_t s) {
    Node& node = nodes_[static_cast<size_t>(s)];
    for (size_t hop = 1; hop < node.gradients.size(); ++hop) {
      for (size_t i = 0; i < node.out.size(); ++i) {
        at::Tensor& sum = node.gradients[0][i];
        if (node.gradients[hop][i].defined()) sum = plus(sum, node.gradients[hop][i]);
      }
    }
    torch::autograd::variable_list roots, weights;
    add_roots(node, 0, roots, weights);
    if (!roots.empty()) torch::autograd::backward(roots, weights);
    node = {};
    // The leaves of this segment have served; the gradients they took along belong to nobody.
    if (s > 0) {
      for (Edge& edge : nodes_[static_cast<size_t>(s) - 1].out) edge.leaf.reset();
    }
  }

  const core::Model& model_;
  const SegmentLoss& loss_;
  Depths& depths_;
  int64_t hops_ = 0;  ///< the largest finite depth
  bool any_full_ = false;
  std::vector<Node> nodes_;
  BpttResult result_;
};

}  // namespace

BpttForm bptt_form(std::string_view name) {
  if (name == "sliding") return BpttForm::sliding;
  base::require(name == "chunked", "bptt: expected \"sliding\" or \"chunked\", found \"{}\"", name);
  return BpttForm::chunked;
}

BpttResult backward_segments(const core::Model& model, const std::vector<BpttSegment>& segments, const core::State& state,
                             const SegmentLoss& loss, BpttForm form) {
  if (segments.empty()) return {{}, core::detach(state)};
  Depths depths(model, segments.size());
  const auto keeps = [&](const std::string& path, int64_t boundary) {
    const int64_t depth = depths.of(path);
    return depth < 0 || boundary % (depth + 1) != 0;
  };
  const c10::AutoGradMode with_gradients(true);
  core::StepResult first = run_segment(model, segments.front(), state);
  Sliding sliding(model, loss, depths, first.state);
  if (form == BpttForm::sliding && sliding.needed()) return sliding.run(segments, std::move(first));
  return run_cut(model, segments, std::move(first), loss, keeps);
}

}  // namespace mnemo::train
