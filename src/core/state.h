#pragma once

#include <ATen/core/Tensor.h>

#include <any>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <typeinfo>
#include <utility>
#include <vector>

namespace mnemo::core {

/// The declaration of one tensor of a state.
///
/// dims names the dimensions, outermost first, separated by spaces ("B H n d"):
///   B  the batch. A field with B belongs to a sequence: it can be reset at the start of a document, selected,
///      repeated and detached. A field without B belongs to the model (the GRC cache of the paper): operations on rows
///      do not affect it.
///   M  rows of the past, right-aligned; their number may differ between sequences. When states are joined, shorter
///      ones are padded with zeros (false) on the left.
/// Other names are documentation.
struct Field {
  std::string path;  ///< full name, "segment_cache.layers.0"
  std::string_view dims;

  /// Index of the dimension with that name, or -1.
  int64_t dim(std::string_view name) const;
  bool per_sequence() const { return dim("B") >= 0; }
};

/// The state of a memory as a value: any struct that declares its tensors once,
///
///   struct AbcState {
///     at::Tensor k, v, z;
///     template <class F> void visit(F&& f) { f("k", k, "B H n d"); f("v", v, "B H n d"); f("z", z, "B H n"); }
///   };
///
/// or a named list of States. Copies share tensors and nothing is changed in place, so a State can be stored, forked
/// and continued any number of times. All functions below are generic over that declaration. An undefined tensor is
/// absent.
class State {
 public:
  using Map = std::function<at::Tensor(const Field&, const at::Tensor&)>;
  using Children = std::vector<std::pair<std::string, State>>;

  /// The empty state: no tensors.
  State() = default;

  /// Wraps a struct with visit().
  template <class S>
  requires requires(S s) {
    s.visit([](std::string_view, at::Tensor&, std::string_view) {});
  }
  State(S value) : node_(std::make_shared<Typed<S>>(std::move(value))) {}  // NOLINT: implicit on purpose

  /// A named list of states (layers, compositions). Names are unique.
  static State list(Children children);

  bool empty() const { return node_ == nullptr; }

  /// The struct inside. Throws InputError if it has another type; an empty state gives a default-constructed S.
  template <class S>
  const S& as() const {
    static const S kEmpty{};
    if (!node_) return kEmpty;
    const auto* typed = dynamic_cast<const Typed<S>*>(node_.get());
    if (typed == nullptr) wrong_type(typeid(S).name());
    return typed->value;
  }

  /// The child with that name; an empty state if there is none.
  State child(std::string_view name) const;

  /// Returns a state with each defined tensor replaced by the result of `map`.
  State map(const Map& map) const;
  /// Same for every declared tensor, including absent (undefined) ones.
  State map_declared(const Map& map) const { return mapped(map, ""); }

  /// Returns every defined tensor with its field.
  std::vector<std::pair<Field, at::Tensor>> fields() const;

 private:
  struct Node {
    virtual ~Node() = default;
    virtual std::shared_ptr<const Node> map(const Map& map, const std::string& prefix) const = 0;
  };

  template <class S>
  struct Typed final : Node {
    explicit Typed(S v) : value(std::move(v)) {}
    std::shared_ptr<const Node> map(const Map& map, const std::string& prefix) const override {
      S copy = value;
      copy.visit([&](std::string_view name, at::Tensor& tensor, std::string_view dims) {
        tensor = map(Field{prefix + std::string(name), dims}, tensor);
      });
      return std::make_shared<Typed<S>>(std::move(copy));
    }
    S value;
  };

  struct List;

  State mapped(const Map& map, const std::string& prefix) const;
  [[noreturn]] static void wrong_type(const char* wanted);

  std::shared_ptr<const Node> node_;
};

/// Detaches every tensor from its graph; used at segment boundaries in truncated BPTT.
State detach(const State& state);
/// Deep copy of every tensor.
State clone(const State& state);
/// Converts to a device and, for floating-point tensors, a type.
State to(const State& state, at::ScalarType dtype, at::Device device);
/// Selects the batch rows listed in rows [n] int64, in that order (beam search, batched serving).
State select_batch(const State& state, const at::Tensor& rows);
/// Joins several batches; right-aligned rows of the past (M) are padded on the left. Per-model fields are taken from
/// the first state. Throws ShapeError if the states do not have the same fields.
State concat_batch(const std::vector<State>& states);
/// Resets the rows where rows [B] bool is true to those of `initial` (a state with the same batch), including
/// gradients; rows of the past (M) are padded on the left. Throws ShapeError if fields, sizes or types differ.
State reset_rows(const State& state, const at::Tensor& rows, const State& initial);
/// Total bytes of all tensors, per sequence and per model.
enum class Lifetime { sequence, model };
int64_t num_bytes(const State& state);
int64_t num_bytes(const State& state, Lifetime lifetime);
/// (path, tensor) of every field, for writing to a file.
std::vector<std::pair<std::string, at::Tensor>> save(const State& state);
/// `find(path)` returns the tensor with that name, or an undefined one. The result has the fields of `like`, with the
/// file's tensors. B and M may differ from `like`; all other dimensions must agree. Tensors that are absent in `like`
/// (those of an open segment) are loaded if the file has them. Throws InputError otherwise.
State load(const State& like, const std::function<at::Tensor(const std::string&)>& find);

}  // namespace mnemo::core
