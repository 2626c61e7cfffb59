#include "inspect/image_attention.h"

#include <fmt/format.h>
#include <torch/types.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "base/html.h"
#include "base/json_value.h"
#include "core/backbone.h"
#include "data/detection/detection_options.h"
#include "data/images/image_reader.h"
#include "data/images/image_transform.h"
#include "heads/detection/detector_head.h"
#include "models/image_model.h"
#include "page/table.h"
#include "tasks/found_objects.h"

namespace mnemo::inspect {
namespace {

constexpr int64_t kMostObjects = 5;

int64_t heads_of(const std::vector<inspect::ImageLayer>& layers) {
  int64_t heads = 0;
  for (const inspect::ImageLayer& layer : layers) {
    for (const inspect::ImageLook& look : layer.looks) heads = std::max(heads, look.weights.size(0));
  }
  return heads;
}

/// Calls f(layer, look, head) for the mean over all heads, head = -1, and for each chosen head.
template <class F>
void for_each_look(const ImageAttention& facts, F&& f) {
  for (const inspect::ImageLayer& layer : facts.layers) {
    for (const inspect::ImageLook& look : layer.looks) {
      f(layer, look, int64_t{-1});
      for (const int64_t head : facts.heads) {
        if (head < look.weights.size(0)) f(layer, look, head);
      }
    }
  }
}

page::Table look_cells(const ImageAttention& facts) {
  std::vector<std::string> kinds;
  for_each_look(facts, [&](const inspect::ImageLayer&, const inspect::ImageLook& look, int64_t) {
    for (const auto& [kind, share] : look.beside) {
      if (std::find(kinds.begin(), kinds.end(), kind) == kinds.end()) kinds.push_back(kind);
    }
  });
  page::Table cells{{"layer", "head", "from", "to image"}, {}};
  for (const std::string& kind : kinds) cells.header.push_back("to " + kind);
  cells.header.insert(cells.header.end(), {"most", "at row, column"});
  for_each_look(facts, [&](const inspect::ImageLayer& layer, const inspect::ImageLook& look, int64_t head) {
    const at::Tensor weights = of_head(look.weights, head);
    const int64_t most = weights.argmax().item<int64_t>(), width = weights.size(1);
    std::vector<std::string> row = {std::to_string(layer.layer), head < 0 ? "mean" : std::to_string(head), look.from,
                                    page::share_text(weights.sum().item<double>())};
    for (const std::string& kind : kinds) {
      const auto found = std::find_if(look.beside.begin(), look.beside.end(),
                                      [&](const auto& one) { return one.first == kind; });
      row.push_back(found == look.beside.end() ? "" : page::share_text(of_head(found->second, head).item<double>()));
    }
    row.insert(row.end(),
               {page::share_text(weights.max().item<double>()), fmt::format("{}, {}", most / width, most % width)});
    cells.rows.push_back(std::move(row));
  });
  return cells;
}

constexpr const char* kObjectsTitle =
    "Objects found: strength of a branch (distance of its rows from their mean) in the box, times that in the "
    "picture.\n"
    "share of the output: |w o| of a branch with weight w in the sum over the branches, mean of the picture";

bool shows_objects(const ImageAttention& facts) {
  return !facts.objects.empty() && !facts.objects.front().branches.empty();
}

page::Table object_cells(const ImageAttention& facts) {
  page::Table cells{{"layer", "branch", "share of the output"}, {}};
  for (const SeenObject& object : facts.objects)
    cells.header.push_back(fmt::format("{} {}", object.label, page::share_text(object.score)));
  for (size_t i = 0; i < facts.objects.front().branches.size(); ++i) {
    const SeenObject::Branch& first = facts.objects.front().branches[i];
    std::vector<std::string> row = {std::to_string(first.layer), first.name,
                                    first.share_everywhere ? page::share_text(*first.share_everywhere) : ""};
    for (const SeenObject& object : facts.objects) {
      const SeenObject::Branch& own = object.branches[i];
      row.push_back(own.everywhere > 0 ? fmt::format("{:.2f}", own.inside / own.everywhere) : "");
    }
    cells.rows.push_back(std::move(row));
  }
  return cells;
}

base::Node objects_node(const ImageAttention& facts) {
  base::Node objects = base::Node::array();
  for (const SeenObject& object : facts.objects) {
    base::Node box = base::Node::array(), branches = base::Node::array();
    for (const double side : object.box) box.push_back(base::rounded(side));
    for (const SeenObject::Branch& branch : object.branches) {
      base::Node one = base::Node::table({{"layer", branch.layer},
                                          {"name", branch.name},
                                          {"inside", branch.inside},
                                          {"everywhere", branch.everywhere}});
      if (branch.share) {
        one.set("share", *branch.share);
        one.set("share_everywhere", *branch.share_everywhere);
      }
      branches.push_back(std::move(one));
    }
    objects.push_back(base::Node::table({{"label", base::json_text(object.label)},
                                         {"score", base::rounded(object.score)},
                                         {"box", std::move(box)},
                                         {"branches", std::move(branches)}}));
  }
  return objects;
}

std::string seen_as(const ImageAttention& facts) {
  return fmt::format("{}, {} x {} as the model sees it", facts.name, facts.picture.height, facts.picture.width);
}

base::Node grid_node(const at::Tensor& values) {
  base::Node rows = base::Node::array();
  for (int64_t y = 0; y < values.size(0); ++y) {
    base::Node row = base::Node::array();
    for (int64_t x = 0; x < values.size(1); ++x) row.push_back(base::rounded(values[y][x].item<double>()));
    rows.push_back(std::move(row));
  }
  return rows;
}

/// Runs pixels through the model and adds what is seen.
ImageAttention run_image(const models::ImageModel& model, ImageAttention found, const at::Tensor& pixels,
                         const std::optional<core::Grid>& size, const AttentionChoice& choice) {
  base::require(!choice.segment, "inspect: --segment goes with a text; an image is one segment");
  const at::Tensor& like = model.parameters().all().front().tensor;
  const int64_t num_layers = model.backbone().num_layers();
  std::vector<int64_t> layers(static_cast<size_t>(num_layers));
  std::iota(layers.begin(), layers.end(), 0);
  if (choice.layers) layers = chosen_numbers(*choice.layers, num_layers, "inspect: --layers");
  found.layers = inspect::inspect_image(model, pixels.to(like.device(), like.scalar_type()), layers, size);
  if (choice.heads) found.heads = chosen_numbers(*choice.heads, heads_of(found.layers), "inspect: --heads");
  bool any = false;
  for (inspect::ImageLayer& layer : found.layers) {
    any |= !layer.looks.empty() || !layer.branches.empty();
    for (inspect::ImageLook& look : layer.looks) {
      look.weights = look.weights.cpu();
      require_numbers(look.weights, layer.layer);
      for (auto& [kind, share] : look.beside) share = share.cpu();
      for (auto& [task, tokens] : look.memory) tokens = tokens.cpu();
    }
    for (const core::GateValues& gate : layer.gates) found.gates.push_back(spread_of(layer.layer, gate));
  }
  base::require(any,
                "inspect: no attention of these layers provides its weights; parameters, state and cost can be shown "
                "without an image");
  return found;
}

}  // namespace

at::Tensor of_head(const at::Tensor& heads, int64_t head) {
  return (head < 0 ? heads.mean(0) : heads[head]).contiguous();
}

ImageAttention inspect_image(const models::ImageModel& model, const bundle::ImagePreprocessing& facts,
                             const std::string& path, const AttentionChoice& choice) {
  data::Image picture = data::TestCrop::of(facts.test_crop, facts.image_size[0],
                                           facts.image_size[1])(data::read_image(path));
  const at::Tensor pixels = at::empty({1, 3, picture.height, picture.width});
  data::Normaliser(facts.mean, facts.std)(picture, pixels.mutable_data_ptr<float>());
  return run_image(model, {path, std::move(picture)}, pixels, {}, choice);
}

ImageAttention inspect_image(const models::ImageModel& model, const data::DetectionInput& input,
                             const std::string& path, const AttentionChoice& choice) {
  const data::DetectionTransform transform(input.transform());
  const data::Image image = data::read_image(path);
  tasks::PreparedImages prepared = tasks::prepare_image(transform, image, heads::detector_head(model, path).divisor());
  const data::Image resized = transform.measure({image, {}}).image;
  data::Image picture(prepared.pixels.size(2), prepared.pixels.size(3));
  std::fill(picture.bytes.begin(), picture.bytes.end(), uint8_t{255});
  for (int64_t y = 0; y < resized.height; ++y) std::copy_n(resized.at(y, 0), 3 * resized.width, picture.at(y, 0));
  ImageAttention found = run_image(model, {path, std::move(picture)}, prepared.pixels,
                                   core::Grid{resized.height, resized.width}, choice);
  found.objects = seen_objects(model, prepared, found.layers, kMostObjects);
  return found;
}

std::string to_text(const ImageAttention& facts) {
  std::string text = fmt::format(
      "Attention over {}: share per kind of row, and the position with the most attention\n{}", seen_as(facts),
      page::text_of(look_cells(facts)));
  if (shows_objects(facts)) text += fmt::format("\n{}\n{}", kObjectsTitle, page::text_of(object_cells(facts)));
  return facts.gates.empty() ? text : text + "\n" + to_text(facts.gates);
}

std::string to_html(const ImageAttention& facts) {
  return fmt::format("<p>Over {}: share per kind of row, and the position with the most attention.</p>\n{}",
                     base::html_escape(seen_as(facts)), page::html_of(look_cells(facts))) +
         (shows_objects(facts) ? fmt::format("<p>{}</p>\n{}", kObjectsTitle, page::html_of(object_cells(facts))) : "") +
         to_html(facts.gates);
}

base::Node to_node(const ImageAttention& facts) {
  base::Node looks = base::Node::array(), branches = base::Node::array();
  for_each_look(facts, [&](const inspect::ImageLayer& layer, const inspect::ImageLook& look, int64_t head) {
    base::Node beside = base::Node::table();
    for (const auto& [kind, share] : look.beside) beside.set(kind, base::rounded(of_head(share, head).item<double>()));
    base::Node memory = base::Node::table();
    for (const auto& [task, tokens] : look.memory)
      memory.set(task, grid_node(of_head(tokens, head).unsqueeze(0)).items().front());
    looks.push_back(base::Node::table({{"layer", layer.layer},
                                       {"head", head < 0 ? base::Node("mean") : base::Node(head)},
                                       {"from", look.from},
                                       {"image", grid_node(of_head(look.weights, head))},
                                       {"beside", beside},
                                       {"memory", memory}}));
  });
  for (const inspect::ImageLayer& layer : facts.layers) {
    for (const inspect::ImageBranch& branch : layer.branches) {
      branches.push_back(
          base::Node::table({{"layer", layer.layer}, {"name", branch.name}, {"means", grid_node(branch.means)}}));
    }
  }
  return base::Node::table({{"image", facts.name},
                            {"size", base::Node::array({facts.picture.height, facts.picture.width})},
                            {"looks", looks},
                            {"branches", branches},
                            {"objects", objects_node(facts)},
                            {"gates", to_node(facts.gates)}});
}

}  // namespace mnemo::inspect
