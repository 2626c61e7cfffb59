#include "data/images/image_describe.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <span>
#include <string_view>

#include "base/ascii.h"
#include "base/error.h"
#include "base/file_io.h"
#include "base/output.h"
#include "base/printable.h"
#include "base/require_folder.h"
#include "base/text_table.h"
#include "data/images/image_set.h"

namespace mnemo::data {
namespace {

constexpr int64_t kMaxHeaders = 10'000;
constexpr size_t kShownBroken = 20, kShownClasses = 12;

ImagePartDescription describe_image_part(std::string name, const ImageSet& set, bool check) {
  ImagePartDescription part;
  part.name = std::move(name);
  part.images = set.size();
  std::vector<int64_t> counts(static_cast<size_t>(set.num_classes())), heights, widths;
  for (int64_t i = 0; i < set.size(); ++i) ++counts[static_cast<size_t>(set.label(i))];
  part.fewest = *std::min_element(counts.begin(), counts.end());
  part.most = *std::max_element(counts.begin(), counts.end());
  const int64_t looks = check ? set.size() : std::min(set.size(), kMaxHeaders);
  for (int64_t k = 0; k < looks; ++k) {
    const int64_t i = k * set.size() / looks;
    try {
      const auto image = check ? set.read(i) : nullptr;
      const ImageHeader header = check ? ImageHeader{} : set.header(i);
      heights.push_back(check ? image->height : header.height);
      widths.push_back(check ? image->width : header.width);
    } catch (const base::InputError& error) {
      part.broken.push_back(error.what());
    }
  }
  part.looked_at = looks;
  if (heights.empty()) return part;
  std::sort(heights.begin(), heights.end());
  std::sort(widths.begin(), widths.end());
  part.min_height = heights.front();
  part.max_height = heights.back();
  part.median_height = heights[heights.size() / 2];
  part.min_width = widths.front();
  part.max_width = widths.back();
  part.median_width = widths[widths.size() / 2];
  return part;
}

bool there(const std::string& folder, const char* name) { return base::path_exists(base::join_path(folder, name)); }

/// Names of parts, in lower case.
constexpr std::array<std::string_view, 2> kTrainParts = {"train", "training"}, kTestParts = {"test", "testing"};
constexpr std::array<std::string_view, 3> kValidParts = {"valid", "val", "validation"};

/// The entry of the folder with the first of these names that is there, in any case; empty if there is none.
std::string part_in(const std::string& folder, std::span<const std::string_view> names) {
  const std::vector<std::string> entries = base::list_folder(folder);
  for (const std::string_view name : names) {
    const auto found = std::ranges::find_if(entries,
                                            [&](const auto& entry) { return base::lower_case(entry) == name; });
    if (found != entries.end()) return base::join_path(folder, *found);
  }
  return "";
}

/// Whether `train` is a part and no class: trains are a class of COCO and VOC. A class holds images alone, and has
/// other classes beside it.
bool has_parts(const std::string& folder) {
  const auto folders_in = [](const std::string& parent) {
    return std::ranges::count_if(base::list_folder(parent), [&](const std::string& name) {
      return !name.starts_with('.') && base::is_folder(base::join_path(parent, name));
    });
  };
  const std::string train = part_in(folder, kTrainParts);
  if (!base::is_folder(train)) return !train.empty();
  const bool others = !part_in(folder, kTestParts).empty() || !part_in(folder, kValidParts).empty();
  return others || folders_in(train) > 0 || folders_in(folder) == 1;
}

}  // namespace

ImageDescription describe_images(const ImageOptions& options, bool check) {
  const ImageSets sets = load_images(options);
  ImageDescription description{options.format_name(), sets.train->classes(), {}};
  description.parts.push_back(describe_image_part("train", *sets.train, check));
  if (sets.valid) description.parts.push_back(describe_image_part("valid", *sets.valid, check));
  if (sets.test) description.parts.push_back(describe_image_part("test", *sets.test, check));
  return description;
}

std::string to_text(const ImageDescription& description) {
  using Align = base::TextTable::Align;
  base::TextTable table(
      {"part", "images", "of a class", "least sides", "median sides", "largest sides", "looked at", "broken"},
      {Align::left, Align::right, Align::right, Align::right, Align::right, Align::right, Align::right, Align::right});
  std::string broken;
  for (const ImagePartDescription& part : description.parts) {
    const auto size = [](int64_t height, int64_t width) { return fmt::format("{} x {}", width, height); };
    table.add_row(
        {part.name, std::to_string(part.images),
         part.fewest == part.most ? std::to_string(part.most) : fmt::format("{} to {}", part.fewest, part.most),
         size(part.min_height, part.min_width), size(part.median_height, part.median_width),
         size(part.max_height, part.max_width), std::to_string(part.looked_at), std::to_string(part.broken.size())});
    for (size_t i = 0; i < std::min(kShownBroken, part.broken.size()); ++i)
      broken += base::printable(part.broken[i], 1000) + "\n";
    if (part.broken.size() > kShownBroken)
      broken += fmt::format("... and {} more of {}\n", part.broken.size() - kShownBroken, part.name);
  }
  std::string classes;
  for (size_t i = 0; i < std::min(kShownClasses, description.classes.size()); ++i)
    classes += (i > 0 ? ", " : "") + base::printable(description.classes[i], 200);
  if (description.classes.size() > kShownClasses) classes += ", ...";
  return fmt::format("format   {}\nclasses  {}: {}\n\n{}{}{}", description.format, description.classes.size(), classes,
                     table.text(base::output_columns()), broken.empty() ? "" : "\n", broken);
}

base::Node to_node(const ImageDescription& description) {
  base::Node classes = base::Node::array(), parts = base::Node::array();
  for (const std::string& name : description.classes) classes.push_back(name);
  for (const ImagePartDescription& part : description.parts) {
    base::Node broken = base::Node::array();
    for (const std::string& error : part.broken) broken.push_back(error);
    parts.push_back(base::Node::table({{"name", part.name},
                                       {"images", part.images},
                                       {"fewest_of_a_class", part.fewest},
                                       {"most_of_a_class", part.most},
                                       {"looked_at", part.looked_at},
                                       {"min_height", part.min_height},
                                       {"min_width", part.min_width},
                                       {"median_height", part.median_height},
                                       {"median_width", part.median_width},
                                       {"max_height", part.max_height},
                                       {"max_width", part.max_width},
                                       {"broken", std::move(broken)}}));
  }
  return base::Node::table(
      {{"format", description.format}, {"classes", std::move(classes)}, {"parts", std::move(parts)}});
}

ImageOptions detect_images(const std::string& folder) {
  base::require_folder(folder, "the folder of an image set");
  using Format = ImageOptions::Format;
  ImageOptions options;
  options.train = folder;
  bool idx = false, lists = false, folders = false;
  for (const std::string& name : base::list_folder(folder)) {
    idx = idx || (name.find("images") != std::string::npos && name.find("idx3") != std::string::npos);
    lists = lists || (name.starts_with("train20") && name.ends_with(".json"));
    folders = folders || (!name.starts_with('.') && base::is_folder(base::join_path(folder, name)));
  }
  if (idx) {
    options.format = Format::idx;
  } else if (there(folder, "data_batch_1.bin")) {
    options.format = Format::cifar10;
  } else if (there(folder, "train.bin") && there(folder, "test.bin")) {
    options.format = Format::cifar100;
  } else if (there(folder, "ILSVRC") || there(folder, "LOC_val_solution.csv") ||
             (there(folder, "val/val_annotations.txt") && there(folder, "val/images"))) {
    options.format = Format::imagenet;
  } else if (lists) {
    options.format = Format::inaturalist;
  } else if (there(folder, "categories_places365.txt")) {
    options.format = Format::places365;
  } else if (there(folder, "Partitions") || there(folder, "Training_01.txt")) {
    options.format = Format::sun397;
  } else if (has_parts(folder)) {
    options.train = part_in(folder, kTrainParts);
    options.valid = part_in(folder, kValidParts);
    options.test = part_in(folder, kTestParts);
  } else {
    base::require(folders,
                  "{}: found no images: expected class folders, MNIST's or CIFAR's files, or a known layout (mnemo "
                  "help recipe data.format); a folder of texts has .txt files alone, and a table is given by itself",
                  folder);
  }
  // Sets without a validation part keep a tenth of each class for validation.
  const bool own = options.format == Format::imagenet || options.format == Format::inaturalist ||
                   options.format == Format::places365;
  if (options.valid.empty() && !own) options.valid_fraction = 0.1;
  return options;
}

}  // namespace mnemo::data
