#include "train/segment_bptt.h"

#include <torch/csrc/autograd/autograd.h>
#include <torch/types.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>

#include "base/error.h"
#include "layers/recompute.h"
#include "tasks/task.h"

namespace mnemo::train {
namespace {

at::Tensor plus(const at::Tensor& sum, const at::Tensor& term) { return sum.defined() ? sum + term : term; }

/// Detached, and without the rest of a larger tensor that it is a view of: what stands at a boundary is kept for long.
at::Tensor cut_out(const at::Tensor& tensor) {
  at::Tensor cut = tensor.detach();
  return cut.storage().nbytes() > cut.nbytes() ? cut.clone() : cut;
}

/// A list of segments on its way forward and back. Every segment has a graph of its own, whose incoming fields are
/// leaves; what comes back to them is handed to the outgoing fields of the segment before.
class Segments {
 public:
  Segments(const core::Model& model, const std::vector<BpttSegment>& segments, const SegmentLoss& loss, BpttForm form,
           int64_t stored_bytes, const BpttHooks& hooks)
      : model_(model),
        hooks_(hooks),
        segments_(segments),
        loss_(loss),
        form_(form),
        stored_bytes_(stored_bytes),
        device_(core::device_of(model)),
        has_room_(stored_bytes > 0),
        nodes_(segments.size()) {
    result_.losses.resize(segments.size());
  }

  BpttResult run(core::State state) {
    const int64_t count = this->count();
    int64_t first = 0;  // of the segments whose gradient is still to be taken
    for (int64_t s = 0; s < count; ++s) {
      state = forward(s, std::move(state));
      if (hooks_.carried == s + 1) result_.state = core::detach(state);
      if (slides()) {
        for (int64_t hop = 0; hop < hops_ && hop < s; ++hop) {
          cross(s - hop, hop);
          settle(s - hop);
        }
        if (s >= hops_) differentiate(s - hops_);
      } else if (!crossed(s + 1)) {
        backward(first, s);
        first = s + 1;
        has_room_ = stored_bytes_ > 0;
      }
    }
    if (slides()) {
      for (int64_t s = std::max<int64_t>(0, count - hops_); s < count; ++s) differentiate(s);
    }
    if (!hooks_.carried) result_.state = std::move(state);
    return std::move(result_);
  }

 private:
  /// One field between two segments.
  struct Edge {
    int64_t depth;        ///< -1: full
    at::Tensor leaf;      ///< as the later segment reads it
    at::Tensor outgoing;  ///< as the earlier one made it, with its graph
    bool shared = false;  ///< the leaf combines the results of all processes
  };
  /// One segment: its graph, from its loss and the fields that it hands on; and the gradients that have come back
  /// through those after `hop` boundaries.
  struct Node {
    bool graph = false;   ///< there is one
    bool stored = false;  ///< and it stays until the segment is differentiated
    int64_t bytes = 0;    ///< that it takes, where that was asked
    at::Tensor loss;
    std::vector<Edge> out;
    std::vector<std::vector<at::Tensor>> gradients;  ///< [hop][edge], undefined = zero
    core::State state;                               ///< where it began, for a second run
    std::optional<layers::RandomState> random;
  };

  int64_t count() const { return static_cast<int64_t>(segments_.size()); }
  Node& node(int64_t s) { return nodes_[static_cast<size_t>(s)]; }
  bool stores_all() const { return stored_bytes_ == kStoreAll; }

  /// The depth of a field; one that reaches over the whole list is as good as full.
  int64_t depth_of(const std::string& path) {
    const auto [entry, fresh] = depths_.try_emplace(path, 0);
    if (fresh) {
      const int64_t depth = model_.bptt_depth(path);
      entry->second = depth < 0 || depth >= count() - 1 ? -1 : depth;
    }
    return entry->second;
  }
  /// Whether a field of that depth keeps its gradient at a boundary; boundary b lies before segment b.
  bool keeps(int64_t depth, int64_t boundary) const {
    if (boundary >= count()) return false;
    return depth < 0 || (form_ == BpttForm::sliding ? depth > 0 : boundary % (depth + 1) != 0);
  }
  bool crossed(int64_t boundary) const {
    return std::any_of(depths_.begin(), depths_.end(),
                       [&](const auto& entry) { return keeps(entry.second, boundary); });
  }

  /// `sliding` with finite depths only: a segment's gradient is complete `hops_` segments later, so no more graphs need
  /// to be alive.
  bool slides() const { return hops_ > 0 && !any_full_ && !sweeps_; }
  /// Whether finite depths run without storing the graphs. A segment is needed again in each of `hops_` later steps.
  /// From 2 on it is cheaper to run all segments twice more: from the last one for the gradients of states, from the
  /// first one for those of parameters.
  bool sweeps(int64_t bytes) const {
    return hops_ > 1 && !any_full_ && !stores_all() && (stored_bytes_ == 0 || bytes > stored_bytes_ / (hops_ + 1));
  }
  /// Whether the graph of segment s is used right after its forward pass, and then needed no more.
  bool used_at_once(int64_t s) const { return !slides() && !crossed(s + 1); }

  at::Tensor loss_of(const core::StepResult& step, int64_t s) {
    const auto index = static_cast<size_t>(s);
    at::Tensor value = loss_(step, index);
    base::ensure(!value.defined() || value.numel() == 1, "the loss of segment {} has {} elements", index,
                 value.defined() ? value.numel() : 0);
    if (value.defined()) result_.losses[index] = value.detach();
    return value.defined() && value.requires_grad() ? value : at::Tensor();
  }

  core::StepResult run_segment(int64_t s, const core::State& state) const {
    const BpttSegment& segment = segments_[static_cast<size_t>(s)];
    return model_.forward(segment.input, start_documents(model_, state, segment.reset));
  }

  /// Runs segment s for the first time and returns the state the next one reads. Its graph stays for the first segment,
  /// from which the rest is learned, and where it is stored or used at once. Elsewhere it is dropped at once: a pass
  /// without one takes other kernels, which round otherwise than those of the second run.
  core::State forward(int64_t s, core::State state) {
    Node& own = node(s);
    if (!stores_all()) {
      own.random.emplace(device_);
      if (s > 0 && node(s - 1).random) own.random->share(*node(s - 1).random);
    }
    own.graph = s == 0 || has_room_ || slides() || used_at_once(s);
    const bool measured = own.graph && !stores_all() && stored_bytes_ > 0;
    std::optional<TensorMeter> meter;
    if (measured) meter.emplace();
    core::StepResult step = run_segment(s, state);
    if (s == 0) learn(step.state);
    if (own.graph && (s > 0 || stored_bytes_ > 0 || used_at_once(0))) own.loss = loss_of(step, s);
    core::State next = hand_on(own, step.state, s + 1);
    step = {};
    if (meter) own.bytes = meter->bytes();
    meter.reset();
    if (s == 0) sweeps_ = sweeps(own.bytes);
    own.stored = stores_all() || (measured && !used_at_once(s) && kept_bytes_ + own.bytes <= stored_bytes_);
    if (own.stored) {
      kept_bytes_ += own.bytes;
      own.random.reset();
    } else {
      own.state = std::move(state);
      has_room_ = has_room_ && used_at_once(s);
      if (!used_at_once(s) && (s == 0 || !slides())) settle(s);
    }
    return next;
  }

  /// Learns the fields and depths from the first segment's state; later segments have the same.
  void learn(const core::State& state) {
    for (const auto& [field, tensor] : state.fields()) {
      if (!tensor.is_floating_point()) continue;
      const int64_t depth = depth_of(field.path);
      any_full_ = any_full_ || depth < 0;
      if (form_ == BpttForm::sliding) hops_ = std::max(hops_, depth);
    }
    sweeps_ = sweeps(std::numeric_limits<int64_t>::max());
  }

  /// The state after a segment, cut, with leaves for the fields that keep their gradient at that boundary.
  core::State hand_on(Node& own, const core::State& state, int64_t boundary) {
    own.out.clear();
    core::State next = state.map([&](const core::Field& field, const at::Tensor& tensor) {
      at::Tensor cut = cut_out(tensor);
      const bool shared = hooks_.shared_field && !field.per_sequence();
      if (shared) cut = hooks_.shared_field(field, cut, static_cast<size_t>(boundary - 1));
      if (!tensor.is_floating_point()) return cut;
      base::ensure(depths_.contains(field.path), "state field '{}' appeared after the first segment", field.path);
      const int64_t depth = depth_of(field.path);
      if (!keeps(depth, boundary)) return cut;
      cut.set_requires_grad(true);
      own.out.push_back({depth, cut, own.graph ? tensor : at::Tensor(), shared});
      return cut;
    });
    own.gradients.assign(static_cast<size_t>(hops_) + 1, std::vector<at::Tensor>(own.out.size()));
    return next;
  }

  /// The graph of segment s, if it is not there, once more.
  void rebuild(int64_t s) {
    Node& own = node(s);
    if (own.graph) return;
    const layers::RandomReplay replay(*own.random, device_);
    const core::StepResult step = run_segment(s, own.state);
    own.loss = loss_of(step, s);
    size_t edge = 0;
    (void)step.state.map([&](const core::Field& field, const at::Tensor& tensor) {
      if (tensor.is_floating_point() && keeps(depth_of(field.path), s + 1)) own.out.at(edge++).outgoing = tensor;
      return tensor;
    });
    own.graph = true;
  }

  /// Lets go of a graph that is not to be stored.
  void settle(int64_t s) {
    Node& own = node(s);
    if (own.stored) return;
    own.graph = false;
    own.loss.reset();
    for (Edge& edge : own.out) edge.outgoing.reset();
  }

  /// Segments first to last, between two boundaries that nothing crosses.
  void backward(int64_t first, int64_t last) {
    for (int64_t s = last; s >= first; --s) {
      // Past the last finite depth only full fields are crossed, so the gradients of all later losses travel together.
      for (int64_t hop = 0; s > first && hops_ > 0 && hop < hops_ + (any_full_ ? 1 : 0); ++hop) cross(s, hop);
      if (!sweeps_) {
        differentiate(s);
        continue;
      }
      join(node(s));
      settle(s);
    }
    for (int64_t s = first; sweeps_ && s <= last; ++s) differentiate(s);
  }

  /// The scalar of a segment as seen after `hop` boundaries: its own loss, or its outgoing fields weighted with what
  /// came back.
  static void add_roots(const Node& own, size_t hop, torch::autograd::variable_list& roots,
                        torch::autograd::variable_list& weights) {
    if (hop == 0 && own.loss.defined()) {
      roots.push_back(own.loss);
      weights.emplace_back(at::ones_like(own.loss));
    }
    for (size_t i = 0; i < own.out.size(); ++i) {
      if (!own.gradients[hop][i].defined() || !own.out[i].outgoing.requires_grad()) continue;
      roots.push_back(own.out[i].outgoing);
      weights.push_back(own.gradients[hop][i]);
    }
  }

  /// The gradient of segment s's result, given that of the leaf that was made from it.
  at::Tensor own_part(const Edge& edge, const at::Tensor& gradient, int64_t s) const {
    if (!edge.shared) return gradient;
    return hooks_.shared_gradient(gradient.defined() ? gradient : at::zeros_like(edge.leaf), static_cast<size_t>(s));
  }

  /// Takes the gradient that has crossed `hop` boundaries when it reaches segment s over the boundary before s.
  void cross(int64_t s, int64_t hop) {
    rebuild(s);
    Node& before = node(s - 1);
    torch::autograd::variable_list roots, weights, leaves;
    add_roots(node(s), static_cast<size_t>(hop), roots, weights);
    std::vector<size_t> edges;
    for (size_t i = 0; i < before.out.size(); ++i) {
      if (before.out[i].depth >= 0 && before.out[i].depth <= hop) continue;
      leaves.push_back(before.out[i].leaf);
      edges.push_back(i);
    }
    if (roots.empty() || leaves.empty()) return;
    auto gradients = torch::autograd::grad(roots, leaves, weights, true, false, true);
    for (size_t i = 0; i < edges.size(); ++i) gradients[i] = own_part(before.out[edges[i]], gradients[i], s - 1);
    auto& arrived = before.gradients[static_cast<size_t>(std::min(hop + 1, hops_))];
    for (size_t i = 0; i < edges.size(); ++i) {
      if (gradients[i].defined()) arrived[edges[i]] = plus(arrived[edges[i]], gradients[i]);
    }
  }

  /// Sums the gradients that came back after 1, 2, ... boundaries, once all are there.
  static void join(Node& own) {
    for (size_t hop = 1; hop < own.gradients.size(); ++hop) {
      for (size_t i = 0; i < own.out.size(); ++i) {
        if (own.gradients[hop][i].defined()) own.gradients[0][i] = plus(own.gradients[0][i], own.gradients[hop][i]);
      }
    }
    own.gradients.resize(1);
  }

  /// Adds the gradients of segment s's parameters and inputs, of all hops at once, and lets go of its graph.
  void differentiate(int64_t s) {
    rebuild(s);
    Node& own = node(s);
    join(own);
    torch::autograd::variable_list roots, weights;
    add_roots(own, 0, roots, weights);
    if (++differentiated_ == count() && hooks_.before_last_backward) hooks_.before_last_backward();
    if (!roots.empty()) torch::autograd::backward(roots, weights);
    if (own.stored) kept_bytes_ -= own.bytes;
    own = {};
    if (s == 0) return;
    // The leaves of this segment have served. With one hop to tell apart they hold what the segment before waits for;
    // otherwise cross() has handed that on, and the gradients they took along belong to nobody.
    Node& before = node(s - 1);
    for (size_t i = 0; i < before.out.size(); ++i) {
      if (hops_ == 0) before.gradients[0][i] = own_part(before.out[i], before.out[i].leaf.grad(), s - 1);
      before.out[i].leaf.reset();
    }
  }

  const core::Model& model_;
  const BpttHooks& hooks_;
  const std::vector<BpttSegment>& segments_;
  const SegmentLoss& loss_;
  BpttForm form_;
  int64_t stored_bytes_;
  at::Device device_;
  std::map<std::string, int64_t> depths_;  ///< of the floating fields
  int64_t hops_ = 0;                       ///< of `sliding`: the largest finite depth
  bool any_full_ = false, sweeps_ = false;
  bool has_room_;  ///< no graph has been too large to be stored so far
  int64_t kept_bytes_ = 0;
  int64_t differentiated_ = 0;  ///< segments
  std::vector<Node> nodes_;
  BpttResult result_;
};

}  // namespace

BpttResult backward_segments(const core::Model& model, const std::vector<BpttSegment>& segments,
                             const core::State& state, const SegmentLoss& loss, BpttForm form, int64_t stored_bytes,
                             const BpttHooks& hooks) {
  if (segments.empty()) return {{}, core::detach(state)};
  const c10::AutoGradMode with_gradients(true);
  return Segments(model, segments, loss, form, stored_bytes, hooks).run(state);
}

}  // namespace mnemo::train
