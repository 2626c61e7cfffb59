#include "data/images/image_options.h"

#include <algorithm>

#include "base/choice_name.h"

namespace mnemo::data {

void ImageAugmentOptions::validate(const base::Where& where) const {
  where.require(scale.size() == 2 && scale[0] <= scale[1], "scale", "expected two numbers, the smaller one first");
  where.require(ratio.size() == 2 && ratio[0] <= ratio[1], "ratio", "expected two numbers, the smaller one first");
}

std::string ImageOptions::format_name() const { return base::choice_name(*this, &ImageOptions::format); }

void ImageOptions::validate(const base::Where& where) const {
  where.require(image_size.empty() || image_size.size() == 2, "image_size",
                "expected height and width, found {} numbers", image_size.size());
  where.require(mean.size() == 3, "mean", "expected three numbers, found {}", mean.size());
  where.require(std.size() == 3, "std", "expected three numbers, found {}", std.size());
  const bool named = format == Format::folders || format == Format::csv || format == Format::idx;
  for (const auto& [name, path] : {std::pair("valid", &valid), std::pair("test", &test)}) {
    where.require(named || path->empty(), name,
                  "expected nothing, because format = \"{}\" has its own parts, found \"{}\"", format_name(), *path);
  }
  where.require(valid.empty() || valid_fraction == 0.0, "valid_fraction",
                "expected 0, because `valid` names the images");
  where.require(test.empty() || test_fraction == 0.0, "test_fraction", "expected 0, because `test` names the images");
  where.require(valid_fraction + test_fraction < 1.0, "test_fraction",
                "expected less than 1 together with valid_fraction, found {:g}", valid_fraction + test_fraction);
  where.require(labels == Labels::fine || format == Format::cifar100, "labels",
                "it belongs to format = \"cifar100\", found \"{}\"", format_name());
  where.require(partition == 1 || format == Format::sun397, "partition",
                "it belongs to format = \"sun397\", found \"{}\"", format_name());
  where.require(test_crop.resize_size == 0 || test_crop.crop_mode == ImageTestOptions::CropMode::center, "test_crop",
                "resize_size requires crop_mode = \"center\"");
}

void ImageOptions::from_earlier(base::Node& table) {
  base::Node* crop = table.find("test_crop");
  if (crop == nullptr || !crop->is_table() || crop->contains("resize")) return;
  const base::Node all = base::write_options(ImageOptions());
  const auto has = [](const base::Node& one, const base::Node& keys) {
    return std::ranges::all_of(keys.members(),
                               [&](const auto& member) { return member.key == "resize" || one.contains(member.key); });
  };
  if (has(table, all) && has(*crop, all.at("test_crop"))) crop->set("resize", "pillow12");
}

}  // namespace mnemo::data
