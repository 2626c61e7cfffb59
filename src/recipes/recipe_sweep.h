#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/node.h"
#include "base/options.h"

namespace mnemo::recipes {

/// One direction of a sweep: a key, or several that move together, and the values they take.
///   keys        "model.segment_size", or a name that a `tied` takes
///   values      one list a step along the axis, as long as `keys`
struct SweepAxis {
  std::vector<std::string> keys;
  std::vector<std::vector<base::Node>> values;

  /// Name of the axis: its first key.
  const std::string& name() const { return keys.front(); }
  /// A value as a table or figure shows it.
  std::string label(size_t index) const;
  /// The value as a number; nothing where some value of the axis is none.
  std::optional<double> number(size_t index) const;
};

/// Which axis a study's figure is drawn over.
struct FigureOptions {
  std::string x;
  std::string label;
  bool log = false;
  template <class V>
  void visit(V&& v) {
    v("x", x, "the swept key on the x axis; empty: the first key with several values");
    v("label", label, "label of the x axis; empty: the key");
    v("log", log, "logarithmic x axis");
  }
};

/// A grid of recipes: the product of its axes without the points that are left out.
struct Sweep {
  std::vector<SweepAxis> axes;
  std::vector<int64_t> seeds;  ///< empty: as many as --seeds says, from train.seed on
  FigureOptions figure;
  std::vector<base::Node> skip;  ///< tables of values, and of variants

  /// The axis a figure is drawn over: its number.
  size_t x_axis() const;
};

/// One place on the grid: the number of the value on each axis.
using SweepPoint = std::vector<size_t>;

/// "data.num_segments 9, memory_size 4"; empty for the one point of a study without a sweep. Axes with one value are
/// left out.
std::string point_label(const Sweep& sweep, const SweepPoint& point);

/// Reads a [sweep] table. `names` are extra names that `tied` of the study or its variants uses; `path` is the
/// table's full key, `variants` the names that `skip` may hold. Throws InputError naming file, line, key and what may
/// stand there.
Sweep read_sweep(const base::Node& table, const std::string& path, const std::vector<std::string>& names,
                 const std::vector<std::string>& variants);

/// All points in order, the last axis moving fastest. Throws InputError for more than 10,000.
std::vector<SweepPoint> sweep_points(const Sweep& sweep, const base::Place& place);

/// Whether `skip` leaves this point out for a variant.
bool is_skipped(const Sweep& sweep, const SweepPoint& point, const std::string& variant);

/// A table of `tied`: keys of the recipe, each with the key or name whose value it takes.
struct Tie {
  std::string key;
  base::Node source;  ///< a string
};
std::vector<Tie> read_ties(const base::Node& table, const std::string& path);

/// Puts a point's values, and then the ties, into a recipe without defaults. Throws InputError.
void apply_point(base::Node& recipe, const Sweep& sweep, const SweepPoint& point, const std::vector<Tie>& ties);

/// The keys of [study.sweep] other than those of a recipe.
std::vector<base::OptionDoc> sweep_docs(const std::string& group);

}  // namespace mnemo::recipes
