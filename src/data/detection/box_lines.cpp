#include "data/detection/box_lines.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "base/error.h"
#include "base/file_io.h"
#include "base/printable.h"
#include "data/detection/json_elements.h"
#include "data/images/image_reader.h"

namespace mnemo::data {
namespace {

constexpr base::ReadLimits kBoxLineLimits{
    .max_bytes = size_t{16} << 20, .max_depth = 8, .max_values = kMaxElementValues};

/// A category as a line has it: an id, or a name.
using CategoryKey = std::pair<int64_t, std::string>;

class LinesReader {
 public:
  explicit LinesReader(std::string folder) : folder_(std::move(folder)) {
    set_.path = base::join_path(folder_, kLinesFile);
  }

  void take(std::string_view line, int64_t number) {
    const std::string where = fmt::format("{}:{}", set_.path, number);
    const base::Node node = base::parse_json(line, set_.path, kBoxLineLimits, number);
    base::require(node.is_table(), "{}: expected a table, found {}", where, node.found());
    const JsonElement element(node, where);
    add_image(element);
    const base::Node& objects = element.at("objects");
    base::require(objects.is_table(), "{}: 'objects': expected a table, found {}", where, objects.found());
    const JsonElement inside(objects, where);
    const base::Node &boxes = inside.at("bbox"), &categories = inside.at("categories");
    base::require(boxes.is_array() && categories.is_array() && boxes.size() == categories.size(),
                  "{}: 'objects': expected lists 'bbox' and 'categories' of the same length, found {} and {}", where,
                  boxes.size(), categories.size());
    base::require(boxes.size() <= static_cast<size_t>(kMaxObjectsOfImage), "{}: more than {} objects", where,
                  kMaxObjectsOfImage);
    for (size_t i = 0; i < boxes.size(); ++i) add_object(inside, boxes.items()[i], categories.items()[i]);
  }

  CocoSet finish() {
    const auto is_name = [](const CategoryKey& key) { return !key.second.empty(); };
    const auto name = std::ranges::find_if(keys_, is_name), number = std::ranges::find_if_not(keys_, is_name);
    base::require(name == keys_.end() || number == keys_.end(),
                  "{}: expected categories that are all integers, or all names, found {} and {}", set_.path,
                  number == keys_.end() ? 0 : number->first,
                  base::in_quotes(name == keys_.end() ? "" : base::printable(name->second, 80)));
    const bool named = name != keys_.end();
    std::map<CategoryKey, int32_t> index;
    for (const CategoryKey& key : keys_) {
      const auto next = static_cast<int32_t>(set_.categories.size());
      index[key] = next;
      set_.categories.push_back(named ? CocoCategory{next, key.second}
                                      : CocoCategory{key.first, std::to_string(key.first)});
    }
    for (size_t i = 0; i < set_.objects.size(); ++i) set_.objects[i].category = index.at(raw_[i]);
    return std::move(set_);
  }

 private:
  void add_image(const JsonElement& element) {
    const std::string& file = element.text("file_name");
    require_inside(file, element.where());
    base::require(files_.insert(file).second, "{}: image {} is listed twice", element.where(),
                  base::in_quotes(base::printable(file, 200)));
    CocoImage image{static_cast<int64_t>(set_.images.size()) + 1, file, 0, 0};
    if (element.has("height") || element.has("width")) {
      image.height = element.integer("height");
      image.width = element.integer("width");
    } else {
      const ImageHeader header = read_image_header(base::join_path(folder_, file));
      const bool turned = header.orientation >= 5;  // the stored size, as everywhere in annotations
      image.height = turned ? header.width : header.height;
      image.width = turned ? header.height : header.width;
    }
    base::require(image.height > 0 && image.width > 0 && image.height <= kMaxMaskPixels &&
                      image.width <= kMaxMaskPixels / image.height,
                  "{}: expected an image of 1 to {} pixels, found {} x {}", element.where(), kMaxMaskPixels,
                  image.height, image.width);
    set_.images.push_back(std::move(image));
  }

  void add_object(const JsonElement& inside, const base::Node& box, const base::Node& category) {
    const std::vector<double> numbers = inside.numbers(box, "bbox");
    base::require(
        numbers.size() == 4 && std::all_of(numbers.begin(), numbers.end(), [](double v) { return std::isfinite(v); }),
        "{}: 'bbox': expected x, y, width and height, found {} numbers", inside.where(), numbers.size());
    base::require(category.is_int() || (category.is_string() && !category.as_string().empty()),
                  "{}: 'categories': expected an integer or a name, found {}", inside.where(), category.found());
    raw_.push_back(category.is_int() ? CategoryKey{category.as_int(), ""} : CategoryKey{0, category.as_string()});
    keys_.insert(raw_.back());
    set_.objects.push_back({.id = static_cast<int64_t>(set_.objects.size()) + 1,
                            .image = static_cast<int32_t>(set_.images.size()) - 1,
                            .box = {numbers[0], numbers[1], numbers[2], numbers[3]},
                            .area = numbers[2] * numbers[3]});
  }

  std::string folder_;
  CocoSet set_;
  std::vector<CategoryKey> raw_;  // of the objects
  std::set<CategoryKey> keys_;
  std::set<std::string> files_;
};

}  // namespace

void require_inside(const std::string& path, const std::string& where) {
  bool inside = !path.empty() && path[0] != '/' && path.find('\0') == std::string::npos;
  for (size_t at = 0; inside && at <= path.size();) {
    const size_t end = std::min(path.find('/', at), path.size());
    inside = path.compare(at, end - at, "..") != 0;
    at = end + 1;
  }
  base::require(inside, "{}: expected the path of an image inside of the folder, found {}", where,
                base::in_quotes(base::printable(path, 200)));
}

CocoSet read_box_lines(const std::string& folder) {
  LinesReader reader(folder);
  const base::MappedFile file(base::join_path(folder, kLinesFile));
  const std::string_view text = file.bytes();
  int64_t number = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = text.substr(at, end - at);
    ++number;
    if (line.find_first_not_of(" \t\r") != std::string_view::npos) reader.take(line, number);
    at = end + 1;
  }
  return reader.finish();
}

}  // namespace mnemo::data
