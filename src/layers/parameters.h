#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace mnemo::layers {

/// The kind of a parameter, which determines its optimizer group (no weight decay for norms, biases and memory).
enum class ParameterKind { weight, bias, norm, memory };

/// One trainable tensor and its full name ("backbone.layers.0.attn.q.weight").
struct Parameter {
  std::string name;
  at::Tensor tensor;
  ParameterKind kind;
};

/// Initializes a parameter, using the generator of the ParameterSet.
using Initialiser = std::function<void(at::Tensor&, at::Generator&)>;

/// N(0, std).
Initialiser normal(double std);
/// All elements equal.
Initialiser constant(double value);

class Scope;

/// Limits the number of values that an untrusted configuration may allocate.
struct Budget {
  int64_t parameters = std::numeric_limits<int64_t>::max();  ///< total number of parameters
  int64_t state = std::numeric_limits<int64_t>::max();       ///< values in the initial state of one sequence
  std::string reason = {};                                   ///< for messages: "m/model.safetensors holds 1024 numbers"
};

/// The parameters of one model, in the order of their creation. Modules hold handles to the same tensors, so moving or
/// loading the set moves or loads the modules. Copies of a set share their tensors.
class ParameterSet {
 public:
  /// seed: seed of the generator for initial parameters. Parameters are created in float64 or float32, on the CPU, or
  /// on the meta device (names and shapes without values).
  explicit ParameterSet(uint64_t seed = 0, at::ScalarType dtype = at::kFloat, const Budget& budget = {},
                        at::Device device = at::kCPU);

  /// The scope with the empty prefix.
  Scope root();

  const std::vector<Parameter>& all() const { return *parameters_; }
  /// The parameter with that name, or an undefined tensor.
  at::Tensor find(const std::string& name) const;
  /// Total number of scalars, frozen ones included; a tied tensor counts once.
  int64_t count() const;
  /// Changes type and device of every parameter in place, visible through all handles.
  void to(at::ScalarType dtype, at::Device device) const;
  /// Sets every .grad to undefined.
  void zero_grad() const;
  /// (name, tensor) of all parameters, for loading and saving.
  std::vector<std::pair<std::string, at::Tensor>> named() const;

 private:
  friend class Scope;
  std::shared_ptr<std::vector<Parameter>> parameters_;
  at::Generator generator_;
  at::ScalarType dtype_;
  at::Device device_;
  Budget left_;
};

/// A name prefix within a ParameterSet, passed to the constructor of a module.
class Scope {
 public:
  /// A nested scope: scope / "attn".
  Scope operator/(const std::string& name) const;
  Scope operator/(int64_t index) const { return *this / std::to_string(index); }

  /// Creates the parameter prefix.name. Throws InternalError if it exists, InputError if it exceeds the set's budget.
  at::Tensor add(const std::string& name, at::IntArrayRef shape, const Initialiser& initialiser,
                 ParameterKind kind = ParameterKind::weight) const;
  /// The parameter prefix.name if it already exists, otherwise a new one (for shared parameters).
  at::Tensor share(const std::string& name, at::IntArrayRef shape, const Initialiser& initialiser,
                   ParameterKind kind = ParameterKind::weight) const;
  /// Counts a tensor in the initial state of one sequence. Throws InputError if it exceeds the set's budget.
  void reserve_state(const std::string& name, at::IntArrayRef shape) const;
  const std::string& prefix() const { return prefix_; }
  /// The parameters created below this scope so far.
  std::vector<Parameter> parameters() const;

 private:
  friend class ParameterSet;
  void spend(int64_t& left, const char* what, const std::string& name, at::IntArrayRef shape) const;
  Scope(ParameterSet& set, std::string prefix) : set_(&set), prefix_(std::move(prefix)) {}
  std::string full(const std::string& name) const { return prefix_.empty() ? name : prefix_ + "." + name; }

  ParameterSet* set_;
  std::string prefix_;
};

}  // namespace mnemo::layers
