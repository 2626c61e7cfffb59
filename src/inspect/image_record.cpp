#include "inspect/image_record.h"

#include <torch/types.h>

#include <algorithm>

#include "base/error.h"
#include "core/backbone.h"
#include "core/head.h"
#include "core/task_tokens.h"
#include "core/window_cut.h"
#include "memory/learnable_tokens.h"
#include "models/image_model.h"
#include "tasks/found_objects.h"

namespace mnemo::inspect {
namespace {

/// Layout of the rows of one attention: [class rows; image; task rows and memory that passes through the layers].
struct ImageRows {
  core::Grid grid;
  int64_t before = 0, behind = 0;
  const core::WindowCut* windows = nullptr;
  std::vector<std::string> tasks = {};  ///< the first rows after the image
  /// number of memory tokens of each task, in order
  std::vector<std::pair<std::string, int64_t>> memories = {};
  /// [h*w] bool: which cells of the grid are the image's; undefined: all
  at::Tensor real = {};
  /// The image's cells, a rectangle of the grid, and the cells of the pixels with their padding.
  int64_t top = 0, left = 0;
  core::Grid own = {}, whole = {};

  /// A map [..,h,w] of the grid as one of the pixels' cells.
  at::Tensor fitted(const at::Tensor& map, double padding) const {
    return padded(map.narrow(-2, top, own.height).narrow(-1, left, own.width), padding);
  }
  /// A map [..,h,w] of the image's cells, with padding to those of the pixels.
  at::Tensor padded(const at::Tensor& image, double padding) const {
    return at::constant_pad_nd(image, {0, whole.width - own.width, 0, whole.height - own.height}, padding);
  }
};

/// The cells along a side of `padded` pixels where an image of `pixels` has `cells`: each side halves evenly.
int64_t padded_cells(int64_t cells, int64_t pixels, int64_t padded) {
  int64_t all = cells;
  while (all <= padded && (padded % all != 0 || (pixels * all + padded - 1) / padded != cells)) ++all;
  base::ensure(all <= padded, "{} cells of {} pixels, padded to {}", cells, pixels, padded);
  return all;
}

/// Finds the image's cells in a batch of one with padding.
void find_real(ImageRows& rows, const core::AttentionInput& input, const at::Tensor& pixels, const core::Grid& size) {
  rows.own = rows.whole = rows.grid;
  const at::Tensor& valid = input.table.valid();
  if (!valid.defined()) return;
  rows.real = rows.windows != nullptr ? rows.windows->join(valid.unsqueeze(-1).to(at::kByte)).flatten().to(at::kBool)
                                      : valid[0].narrow(0, input.table.num_context() + rows.before, rows.grid.size());
  const at::Tensor cells = rows.real.view({rows.grid.height, rows.grid.width}).nonzero();
  const at::Tensor first = std::get<0>(cells.min(0)), last = std::get<0>(cells.max(0));
  const auto at = [](const at::Tensor& corner, int64_t side) { return corner[side].item<int64_t>(); };
  rows.top = at(first, 0), rows.left = at(first, 1);
  rows.own = {at(last, 0) - rows.top + 1, at(last, 1) - rows.left + 1};
  rows.whole = {padded_cells(rows.own.height, size.height, pixels.size(2)),
                padded_cells(rows.own.width, size.width, pixels.size(3))};
}

using Shares = std::vector<std::pair<std::string, at::Tensor>>;

void add_share(Shares& shares, const std::string& kind, const at::Tensor& share) {
  const auto found = std::find_if(shares.begin(), shares.end(), [&](const auto& one) { return one.first == kind; });
  if (found == shares.end()) {
    shares.emplace_back(kind, share);
  } else {
    found->second = found->second + share;
  }
}

/// Splits the weights of one query [H,K]: the image's columns as a picture, all others as shares.
ImageLook split(std::string from, const at::Tensor& weights, const core::WeightMap& map,
                const core::AttentionInput& input, const ImageRows& rows) {
  ImageLook look{std::move(from), {}, {}};
  const int64_t keys = weights.size(1);
  const auto share = [&](const std::string& kind, int64_t first, int64_t length) {
    if (length > 0) add_share(look.beside, kind, weights.narrow(1, first, length).sum(1));
  };
  const auto share_memory = [&](int64_t first, int64_t length) {
    share("memory", first, length);
    for (const auto& [task, count] : rows.memories) {
      if (length > 0 && count > 0) look.memory.emplace_back(task, weights.narrow(1, first, count));
      first += count;
    }
  };
  if (map.image.size() > 0) {
    const int64_t context = keys - map.image.size();
    share("cache", 0, context);
    look.weights = weights.narrow(1, context, map.image.size()).unflatten(1, {map.image.height, map.image.width});
    return look;
  }
  const int64_t own = rows.before + rows.grid.size() + rows.behind, context = keys - own;
  if (context == input.table.num_context()) {
    int64_t first = 0;
    for (const core::Span& span : input.table.contexts()) {
      if (span.kind == core::SpanKind::memory) {
        share_memory(first, span.length);
      } else {
        share(std::string(core::name(span.kind)), first, span.length);
      }
      first += span.length;
    }
  } else {
    share("cache", 0, context);  // added by the attention itself
  }
  share("class token", context, rows.before);
  look.weights = weights.narrow(1, context + rows.before, rows.grid.size())
                     .unflatten(1, {rows.grid.height, rows.grid.width});
  const auto tasks = static_cast<int64_t>(rows.tasks.size());
  share("task rows", context + rows.before + rows.grid.size(), tasks);
  share_memory(context + rows.before + rows.grid.size() + tasks, rows.behind - tasks);
  return look;
}

/// The attention that each position receives, averaged over all queries of the image, [H,h,w]. Only queries of the same
/// window see it.
at::Tensor of_windows(const at::Tensor& weights, const ImageRows& rows) {
  const core::WindowCut& windows = *rows.windows;
  // Padding rows also attend; they are left out of the mean.
  const at::Tensor counted = rows.real.defined() ? rows.real.view({1, -1, 1}).to(at::kByte)
                                                 : at::ones({1, windows.image.size(), 1}, at::kByte);
  const at::Tensor real = windows.cut(counted.to(weights.device())).to(at::kBool).unsqueeze(1);         // [n,1,A,1]
  const at::Tensor mean = at::where(real, weights, 0.0).sum(2) / static_cast<double>(rows.own.size());  // [n,H,A]
  const core::Grid& grid = windows.image;
  return rows.fitted(windows.join(mean.transpose(1, 2)).squeeze(0).t().unflatten(1, {grid.height, grid.width}), 0.0);
}

/// Memory tokens of each task in a layer. With propagation there is only one task; it owns all `passing` rows.
std::vector<std::pair<std::string, int64_t>> memories_of(const core::TaskMemory& memory, size_t layer,
                                                         int64_t passing) {
  std::vector<std::pair<std::string, int64_t>> counts;
  for (const core::TaskTokens& task : memory.tasks) {
    const at::Tensor& rows = task.memory[layer];
    counts.emplace_back(task.name, memory.propagation != core::Propagation::none ? passing
                                   : rows.defined()                              ? rows.size(0)
                                                                                 : 0);
  }
  return counts;
}

std::vector<ImageLook> looks_of(const core::WeightMap& map, const core::AttentionInput& input, const ImageRows& rows) {
  const at::Tensor weights = map.weights.to(at::kDouble);
  if (rows.windows != nullptr) return {{"all rows", of_windows(weights, rows), {}}};
  std::vector<ImageLook> looks;
  const auto add = [&](std::string from, const at::Tensor& of) {
    looks.push_back(split(std::move(from), of, map, input, rows));
  };
  for (int64_t row = 0; row < rows.before; ++row) add("class token", weights[0].select(1, row));
  for (size_t task = 0; task < rows.tasks.size(); ++task) {
    add("task " + rows.tasks[task], weights[0].select(1, rows.before + rows.grid.size() + static_cast<int64_t>(task)));
  }
  if (looks.empty()) {
    const at::Tensor queries = weights[0].narrow(1, rows.before, rows.grid.size());
    add("all rows", (rows.real.defined() ? queries.index_select(1, rows.real.nonzero().squeeze(1)) : queries).mean(1));
  }
  return looks;
}

/// ImageLayer::most. Class rows and rows of the image and of tasks are queries; memory that passes through is none.
Shares most_of(const core::WeightMap& map, const core::AttentionInput& input, const ImageRows& rows) {
  if (rows.windows != nullptr || map.image.size() > 0) return {};
  const at::Tensor weights = map.weights[0].to(at::kDouble);  // [H,Q,K]
  const auto tasks = static_cast<int64_t>(rows.tasks.size());
  const int64_t own = rows.before + rows.grid.size() + rows.behind, context = weights.size(2) - own,
                queries = own - rows.behind + tasks;
  if (weights.size(1) != own || context < 0) return {};
  const at::Tensor seen = weights.narrow(1, 0, queries);
  at::Tensor memory = seen.narrow(2, weights.size(2) - rows.behind + tasks, rows.behind - tasks).sum(2);
  if (context == input.table.num_context()) {
    int64_t first = 0;
    for (const core::Span& span : input.table.contexts()) {
      if (span.kind == core::SpanKind::memory) memory = memory + seen.narrow(2, first, span.length).sum(2);
      first += span.length;
    }
  }
  // A class row that sees itself counts as "itself".
  const at::Tensor same = at::eye(queries, seen.options());
  const at::Tensor among = seen.narrow(2, context, queries), other = among * (1.0 - same);
  const at::Tensor classes = other.narrow(2, 0, rows.before).sum(2) +
                             other.narrow(2, rows.before + rows.grid.size(), tasks).sum(2);
  return {{"memory", memory.amax(1)}, {"class token", classes.amax(1)}, {"itself", (among * same).sum(2).amax(1)}};
}

/// Rows of the image, [h,w,C].
at::Tensor placed(const at::Tensor& values, const ImageRows& rows) {
  const at::Tensor image = rows.windows != nullptr ? rows.windows->join(values)
                                                   : values.narrow(1, rows.before, rows.grid.size());
  return image[0]
      .unflatten(0, {rows.grid.height, rows.grid.width})
      .narrow(0, rows.top, rows.own.height)
      .narrow(1, rows.left, rows.own.width);
}

/// The branches of an attention over the image, padding cells with the mean of the others.
std::vector<ImageBranch> branches_of(const core::Attention& attention, const core::AttentionInput& input,
                                     const core::State& state, const ImageRows& rows) {
  const auto filled = [&](const at::Tensor& map) { return rows.padded(map, map.mean().item<double>()); };
  std::vector<ImageBranch> branches;
  std::vector<at::Tensor> norms;
  at::Tensor sum;
  for (const core::BranchRows& branch : attention.branches(input, state)) {
    const at::Tensor values = placed(branch.rows.to(at::kCPU, at::kDouble), rows);
    const at::Tensor mean = values.mean(at::IntArrayRef{0, 1});
    branches.push_back({.name = branch.name,
                        .means = filled(values.mean(-1)),
                        .strengths = filled((values - mean).square().mean(-1).sqrt()),
                        .mean_row = mean});
    norms.emplace_back();
    if (!branch.weights.defined()) continue;
    const at::Tensor weights = branch.weights.to(at::kCPU, at::kDouble);
    const at::Tensor heads = values.unflatten(-1, {weights.size(0), -1}) * weights.unsqueeze(-1);
    norms.back() = heads.square().sum(at::IntArrayRef{-2, -1}).sqrt();
    sum = sum.defined() ? sum + norms.back() : norms.back();
  }
  for (size_t i = 0; i < branches.size(); ++i)
    if (norms[i].defined()) branches[i].shares = filled(norms[i] / sum.clamp_min(1e-30));
  return branches;
}

}  // namespace

std::vector<ImageLayer> inspect_image(const models::ImageModel& model, const at::Tensor& pixels,
                                      const std::vector<int64_t>& layers, const std::optional<core::Grid>& size) {
  base::require(model.head_or_null() != nullptr, "image record: expected a whole model, found a layer_stack");
  base::require(pixels.dim() == 4 && pixels.size(0) == 1, "image record: expected pixels [1,C,H,W], found {}",
                c10::str(pixels.sizes()));
  const at::NoGradGuard no_grad;
  std::vector<ImageLayer> found;
  std::vector<std::string> tasks;
  core::TaskMemory memory;
  const auto observe = [&](int64_t number, const core::Attention& attention, const core::AttentionInput& input,
                           const core::State& state) {
    if (std::find(layers.begin(), layers.end(), number) == layers.end()) return;
    const core::WindowCut* windows = input.image == nullptr ? nullptr : input.image->windows;
    ImageRows rows{.grid = input.grid(), .windows = windows, .tasks = tasks};
    if (windows != nullptr) {
      rows.grid = windows->image;
    } else if (model.tasks() != nullptr) {
      rows.grid = model.task_backbone()->grid_of(pixels);
      rows.before = model.backbone().num_class_tokens();
      rows.behind = input.x.size(1) - rows.before - rows.grid.size();
      rows.memories = memories_of(memory, static_cast<size_t>(number),
                                  rows.behind - static_cast<int64_t>(tasks.size()));
    } else {
      rows.before = input.x.size(1) - rows.grid.size();
    }
    find_real(rows, input, pixels, size.value_or(core::Grid{pixels.size(2), pixels.size(3)}));
    ImageLayer layer{number, model.backbone().layer_name(number)};
    core::AttentionView view = attention.inspect(input, state, {});
    for (const core::WeightMap& map : view.maps) {
      if (map.name != "attention") continue;
      layer.looks = looks_of(map, input, rows);
      layer.most = most_of(map, input, rows);
    }
    layer.gates = std::move(view.gates);
    layer.branches = branches_of(attention, input, state, rows);
    found.push_back(std::move(layer));
  };
  if (model.tasks() == nullptr) {
    core::Segment segment;
    segment.pixels = pixels;
    if (size) segment.valid = tasks::real_pixels(pixels, {{size->height, size->width}});
    segment.mode = core::Mode::evaluate;
    model.forward(segment, model.initial_state(1), observe, {});
    return found;
  }
  memory = model.tasks()->tasks();
  for (const size_t task : model.tasks()->class_rows()) tasks.push_back(model.tasks()->options().tasks[task].name);
  core::BackboneInput input;
  input.pixels = pixels;
  input.observe = observe;
  model.task_backbone()->forward_tasks(memory, input, core::TaskForm::dense);
  return found;
}

}  // namespace mnemo::inspect
