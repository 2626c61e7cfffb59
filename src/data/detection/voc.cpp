#include "data/detection/voc.h"

#include <algorithm>
#include <array>
#include <map>

#include "base/ascii.h"
#include "base/error.h"
#include "base/file_io.h"
#include "base/node.h"
#include "base/number.h"
#include "base/printable.h"
#include "data/xml_reader.h"

namespace mnemo::data {
namespace {

constexpr size_t kMaxVocValue = 1024;  // bytes of the text of an element
constexpr const char* kWhite = " \t\r\n";

class VocReader final : public XmlReader {
 public:
  explicit VocReader(VocCorners corners) : corners_(corners) {}

  VocFile finish(const std::string& path) {
    base::require(file.height > 0 && file.width > 0 && file.height <= kMaxMaskPixels &&
                      file.width <= kMaxMaskPixels / file.height,
                  "{}: 'size': expected an image of 1 to {} pixels, found {} x {}", path, kMaxMaskPixels, file.height,
                  file.width);
    return std::move(file);
  }

  VocFile file;

 private:
  void starts(std::string_view name, const XmlAttributes& /*attributes*/) override {
    base::require(!path_of_.empty() || name == "annotation", "{}: expected <annotation>, found <{}>", where(),
                  base::printable(name, 40));
    path_of_ += "/";
    path_of_ += name;
    text_.clear();
    if (path_of_ != "/annotation/object") return;
    base::require(file.objects.size() < static_cast<size_t>(kMaxObjectsOfImage), "{}: more than {} objects", where(),
                  kMaxObjectsOfImage);
    file.objects.emplace_back();
    corner_.fill(std::nullopt);
  }

  void characters(std::string_view text) override {
    base::require(text_.size() + text.size() <= kMaxVocValue || wanted() == nullptr,
                  "{}: expected a value of at most {} bytes", where(), kMaxVocValue);
    if (wanted() != nullptr) text_ += text;
  }

  void ends(std::string_view name) override {
    if (const Take* take = wanted()) (this->**take)(base::trimmed(text_, kWhite));
    if (path_of_ == "/annotation/object") finish_object();
    path_of_.resize(path_of_.size() - name.size() - 1);
    text_.clear();
  }

  using Take = void (VocReader::*)(std::string_view);

  const Take* wanted() const {
    static const std::map<std::string, Take, std::less<>> takes = {
        {"/annotation/filename", &VocReader::take_file},
        {"/annotation/size/height", &VocReader::take_height},
        {"/annotation/size/width", &VocReader::take_width},
        {"/annotation/object/name", &VocReader::take_name},
        {"/annotation/object/difficult", &VocReader::take_difficult},
        {"/annotation/object/bndbox/xmin", &VocReader::take_corner<0>},
        {"/annotation/object/bndbox/ymin", &VocReader::take_corner<1>},
        {"/annotation/object/bndbox/xmax", &VocReader::take_corner<2>},
        {"/annotation/object/bndbox/ymax", &VocReader::take_corner<3>}};
    const auto found = takes.find(path_of_);
    return found == takes.end() ? nullptr : &found->second;
  }

  double number(std::string_view text) const {
    try {
      return base::parse_number(text);
    } catch (const base::InputError& error) {
      base::input_error("{}: '{}': {}", where(), path_of_.substr(1), error.what());
    }
  }
  int64_t side(std::string_view text) const {
    const double value = number(text);
    base::require(value >= 0 && value <= static_cast<double>(kMaxMaskPixels),
                  "{}: expected a size of 1 to {}, found {}", where(), kMaxMaskPixels, value);
    return static_cast<int64_t>(value);
  }

  void take_file(std::string_view text) { file.file = text; }
  void take_height(std::string_view text) { file.height = side(text); }
  void take_width(std::string_view text) { file.width = side(text); }
  void take_name(std::string_view text) { file.objects.back().name = text; }
  void take_difficult(std::string_view text) { file.objects.back().difficult = text == "1"; }
  template <size_t i>
  void take_corner(std::string_view text) {
    corner_[i] = number(text);
  }

  void finish_object() {
    VocObject& object = file.objects.back();
    base::require(!object.name.empty(), "{}: expected an object with a <name>", where());
    for (const auto& value : corner_)
      base::require(value.has_value(), "{}: expected an object with a <bndbox> of xmin, ymin, xmax and ymax", where());
    const double shift = corners_ == VocCorners::pixels ? 1.0 : 0.0;
    object.box = {*corner_[0] - shift, *corner_[1] - shift, *corner_[2] - *corner_[0] + shift,
                  *corner_[3] - *corner_[1] + shift};
  }

  VocCorners corners_;
  std::string path_of_, text_;  // the open elements: "/annotation/size"
  std::array<std::optional<double>, 4> corner_;
};

/// The names of a split, one a line; the rest of a line is ignored.
std::vector<std::string> names_of_split(const std::string& path) {
  std::vector<std::string> names;
  base::require(base::path_exists(path),
                "{}: expected a list of images, found no such file; data.splits names the lists that are there, as "
                "[\"train\", \"val\"]",
                path);
  const std::string text = base::read_file(path, kMaxVocBytes);
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    std::string_view line = std::string_view(text).substr(at, end - at);
    line = line.substr(0, std::min(line.find_first_of(kWhite), line.size()));
    if (!line.empty()) {
      base::require(base::is_plain_name(line), "{}: expected names of annotation files, found {}", path,
                    base::in_quotes(base::printable(line, 80)));
      names.emplace_back(line);
    }
    at = end + 1;
  }
  return names;
}

/// The image of an annotation file, relative to the folder.
std::string image_file(const std::string& folder, const VocFile& voc, const std::string& name) {
  std::vector<std::string> files;
  if (base::is_plain_name(voc.file)) files.push_back(voc.file);
  for (const char* ending : {".jpg", ".jpeg", ".png"}) files.push_back(name + ending);
  for (const std::string& file : files) {
    const std::string relative = "JPEGImages/" + file;
    if (base::path_exists(base::join_path(folder, relative))) return relative;
  }
  base::input_error("{}/JPEGImages: expected an image of annotation '{}', found none", folder, name);
}

}  // namespace

VocFile parse_voc(std::string_view text, const std::string& path, VocCorners corners) {
  base::require(text.size() <= kMaxVocBytes, "{}: {} bytes, the limit is {}", path, text.size(), kMaxVocBytes);
  VocReader reader(corners);
  reader.read_text(text, path);
  return reader.finish(path);
}

CocoSet read_voc(const std::string& folder, const std::string& split, VocCorners corners) {
  const std::string annotations = base::join_path(folder, "Annotations");
  std::map<std::string, VocFile> files;
  CocoSet set{.path = folder};
  std::map<std::string, int32_t> category_of;
  for (const std::string& file : base::list_folder(annotations)) {
    if (!file.ends_with(".xml")) continue;
    const std::string path = base::join_path(annotations, file);
    VocFile& voc = files[file.substr(0, file.size() - 4)] = parse_voc(base::read_file(path, kMaxVocBytes), path,
                                                                      corners);
    for (const VocObject& object : voc.objects) category_of.emplace(object.name, 0);
  }
  base::require(!files.empty(), "{}: expected annotation files NAME.xml, found none", annotations);
  for (auto& [name, index] : category_of) {
    index = static_cast<int32_t>(set.categories.size());
    set.categories.push_back({index + 1, name});
  }
  std::vector<std::string> names;
  if (split.empty()) {
    for (const auto& [name, voc] : files) names.push_back(name);
  } else {
    names = names_of_split(base::join_path(folder, "ImageSets/Main/" + split + ".txt"));
  }
  for (const std::string& name : names) {
    const auto found = files.find(name);
    base::require(found != files.end(), "{}: expected {}.xml, which the split '{}' lists", annotations, name, split);
    const VocFile& voc = found->second;
    const auto image = static_cast<int32_t>(set.images.size());
    set.images.push_back({image + 1, image_file(folder, voc, name), voc.height, voc.width});
    for (const VocObject& object : voc.objects) {
      set.objects.push_back({.id = static_cast<int64_t>(set.objects.size()) + 1,
                             .image = image,
                             .category = category_of.at(object.name),
                             .box = object.box,
                             .area = object.box[2] * object.box[3],
                             .crowd = object.difficult});
    }
  }
  return set;
}

}  // namespace mnemo::data
