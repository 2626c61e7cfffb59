#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <typeinfo>
#include <utility>

#include "core/segment.h"
#include "data/fields.h"

namespace mnemo::data {

/// The targets of a batch as a value: any struct that lists its fields (data/fields.h). A task makes them and computes
/// its loss from them; nothing else looks inside. Copies share tensors.
class Targets {
 public:
  /// No targets.
  Targets() = default;
  template <HasFields T>
  Targets(T targets) : node_(std::make_shared<Typed<T>>(std::move(targets))) {}  // NOLINT: implicit on purpose

  /// The struct inside. Throws InternalError if there is another one, or none.
  template <class T>
  const T& as() const {
    const auto* typed = dynamic_cast<const Typed<T>*>(node_.get());
    if (typed == nullptr) wrong_type(typeid(T).name());
    return typed->value;
  }

  void visit(FieldVisitor& visitor) {
    if (node_) node_ = node_->visited(visitor);
  }

 private:
  struct Node {
    virtual ~Node() = default;
    virtual std::shared_ptr<const Node> visited(FieldVisitor& visitor) const = 0;
  };
  template <class T>
  struct Typed final : Node {
    explicit Typed(T v) : value(std::move(v)) {}
    std::shared_ptr<const Node> visited(FieldVisitor& visitor) const override {
      auto copy = std::make_shared<Typed<T>>(value);
      copy->value.visit(visitor);
      return copy;
    }
    T value;
  };
  [[noreturn]] static void wrong_type(const char* wanted);

  std::shared_ptr<const Node> node_;
};

/// One segment of B parallel sequences of T tokens, B images or B pairs, and what is to be predicted of it. Padding of
/// texts is on the right, that of pairs on either side.
struct Batch {
  core::Segment input = {};
  Targets targets = {};
  int64_t num_targets = 0;  ///< targets that count: the loss of a step is a mean over those of all its batches
  at::Tensor reset = {};    ///< [B] bool, true if a document (or the text) starts here: the row's state is reset

  void visit(FieldVisitor& visitor) {
    input.visit(visitor);
    visitor("reset", reset);
    targets.visit(visitor);
  }
};

/// Tokens to predict, [B,T] int64: the one after each token, the one in its place, or [B,1] the class of the whole
/// segment; base::kIgnoreTarget where there is none.
struct TokenTargets {
  at::Tensor tokens;
  template <class F>
  void visit(F&& f) {
    f("targets", tokens);
  }
};

/// The tokens to predict of a batch that has TokenTargets.
inline const at::Tensor& token_targets(const Batch& batch) { return batch.targets.as<TokenTargets>().tokens; }

/// The batch on a device. A reset of no row is left out there: it is asked for on the host first.
Batch to(Batch batch, at::Device device);

}  // namespace mnemo::data
