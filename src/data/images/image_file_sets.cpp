#include <algorithm>
#include <cctype>
#include <functional>
#include <set>

#include "base/error.h"
#include "base/file_io.h"
#include "base/nearest.h"
#include "base/node.h"
#include "base/require_folder.h"
#include "data/images/image_layout.h"
#include "data/images/image_walk.h"
#include "data/images/inaturalist.h"
#include "data/text/lines.h"
#include "data/text/table.h"

// Data sets of image files: class folders, lists, and the layouts of known sets.
namespace mnemo::data {
namespace {

constexpr int64_t kLongestImageLine = 1 << 16;

void require_folder(const std::string& path, std::string_view what) {
  base::require_folder(path, fmt::format("the folder of {}", what));
}

std::vector<std::string> folders_in(const std::string& root) {
  std::vector<std::string> found;
  for (const std::string& name : base::list_folder(root)) {
    if (!name.starts_with('.') && base::is_folder(base::join_path(root, name))) found.push_back(name);
  }
  return found;
}

/// A part under construction.
class Collector {
 public:
  explicit Collector(std::string root) : root_(std::move(root)) {}
  void add(std::string_view path, int32_t label) {
    paths_.add(path);
    labels_.push_back(label);
  }
  FoundImages take() { return {file_images(std::move(root_), std::move(paths_)), std::move(labels_)}; }

 private:
  std::string root_;
  PathList paths_;
  std::vector<int32_t> labels_;
};

/// One folder per class. The first part defines the classes; other parts may not add any.
FoundImages class_folders(const std::string& root, ClassNames& classes, bool follow_links) {
  require_folder(root, "class folders");
  const std::vector<std::string> names = folders_in(root);
  base::require(!names.empty(), "{}: expected a folder for each class, found none", root);
  const bool first = classes.empty();
  Collector part(root);
  ImageWalk walk(root, follow_links);
  for (const std::string& name : names) {
    const int32_t label = first ? classes.add(name) : classes.find(name, base::join_path(root, name));
    const std::vector<std::string> images = walk.below(name);
    base::require(!images.empty(), "{}: expected images of the class, found none", base::join_path(root, name));
    for (const std::string& image : images) part.add(image, label);
  }
  return part.take();
}

std::vector<TableField> fields_of(std::string_view line, const LinePlace& place) {
  CsvRecord record(',');
  record.put(line);
  base::require(!record.is_open(), "{}: a quote is not closed", place.at(1));
  return record.fields();
}

struct CsvRow {
  std::string path, label;
  int64_t line;
};

bool is_image_file(const std::string& path) { return base::path_exists(path) && !base::is_folder(path); }

/// A first line is a header if its path has no ending and is no file's, and no other line has its label.
std::vector<CsvRow> read_image_csv(const std::string& path) {
  std::vector<CsvRow> rows;
  const auto whole = text::TextSource(path).without_byte_order_mark();
  for_each_line(whole, kLongestImageLine, [&](const LinePlace& place, std::string_view line) {
    if (line.empty()) return;
    std::vector<TableField> fields = fields_of(line, place);
    base::require(fields.size() == 2, "{}: expected PATH,LABEL, found {} fields", place.at(1), fields.size());
    for (const size_t i : {0, 1})
      base::require(!fields[i].text.empty(), "{}: expected PATH,LABEL, found an empty {}", place.at(1),
                    i == 0 ? "path" : "label");
    rows.push_back({std::move(fields[0].text), std::move(fields[1].text), place.line});
  });
  const auto is_header = [&](const CsvRow& first) {
    return first.line == 1 && first.path.find('.') == std::string::npos &&
           !is_image_file(base::join_path(base::parent_folder(path), first.path)) &&
           std::none_of(rows.begin() + 1, rows.end(), [&](const CsvRow& row) { return row.label == first.label; });
  };
  if (!rows.empty() && is_header(rows.front())) rows.erase(rows.begin());
  base::require(!rows.empty(), "{}: expected lines PATH,LABEL, found none", path);
  return rows;
}

bool is_number(const std::string& text) {
  return !text.empty() && text.size() <= 9 &&
         std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isdigit(c) != 0; });
}

FoundImages csv_part(const std::string& path, const std::vector<CsvRow>& rows, const ClassNames& classes) {
  Collector part(base::parent_folder(path));
  for (const CsvRow& row : rows) part.add(row.path, classes.find(row.label, fmt::format("{}:{}", path, row.line)));
  return part.take();
}

/// Calls `use` for lines "PATH NUMBER" or "PATH", without a leading slash.
void for_each_listed(const std::string& list,
                     const std::function<void(const LinePlace&, std::string path, std::string rest)>& use) {
  for_each_line(text::TextSource(list), kLongestImageLine, [&](const LinePlace& place, std::string_view line) {
    while (!line.empty() && (line.back() == ' ' || line.back() == '\t')) line.remove_suffix(1);
    if (line.empty()) return;
    const size_t space = line.find(' ');
    std::string path(line.substr(0, space));
    path.erase(0, path.find_first_not_of('/'));
    base::require(!path.empty(), "{}: expected a path", place.at(1));
    use(place, std::move(path), space == std::string_view::npos ? std::string() : std::string(line.substr(space + 1)));
  });
}

/// The first of these that exists below a folder; empty if none does.
std::string first_there(const std::string& root, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (const std::string path = base::join_path(root, name); base::path_exists(path)) return path;
  }
  return {};
}

std::string required_path(const std::string& root, std::initializer_list<const char*> names) {
  std::string found = first_there(root, names);
  base::require(!found.empty(), "{}: {} is missing in it", root, *names.begin());
  return found;
}

/// train/CLASS/ and val/CLASS/, the usual layout of ImageNet-like sets.
FoundSet train_and_val(const std::string& root, bool follow_links) {
  FoundSet set;
  set.train = class_folders(base::join_path(root, "train"), set.classes, follow_links);
  if (const std::string val = first_there(root, {"val", "validation"}); !val.empty())
    set.valid = class_folders(val, set.classes, follow_links);
  return set;
}

/// ImageNet's validation images without class folders: LOC_val_solution.csv contains the class of each.
FoundImages flat_validation(const std::string& folder, const std::string& solution, const ClassNames& classes) {
  Collector part(folder);
  for_each_line(text::TextSource(solution), kLongestImageLine, [&](const LinePlace& place, std::string_view line) {
    if (line.empty() || place.line == 1) return;
    const std::vector<TableField> fields = fields_of(line, place);
    base::require(fields.size() == 2, "{}: expected ImageId,PredictionString, found {} fields", place.at(1),
                  fields.size());
    const std::string& known = fields[1].text;
    part.add(fields[0].text + ".JPEG", classes.find(known.substr(0, known.find(' ')), place.at(1)));
  });
  return part.take();
}

/// Tiny ImageNet's validation images, all in one folder: val_annotations.txt has lines
/// "val_0.JPEG<tab>n03444034<tab>box". Lines of missing images are ignored, because subsets of the data set keep the
/// whole list.
FoundImages annotated_validation(const std::string& folder, const std::string& annotations, const ClassNames& classes,
                                 bool follow_links) {
  std::map<std::string, std::pair<std::string, std::string>, std::less<>> annotated;  // class and line of each image
  for_each_line(text::TextSource(annotations), kLongestImageLine, [&](const LinePlace& place, std::string_view line) {
    if (line.empty()) return;
    const size_t tab = line.find('\t');
    base::require(tab != 0 && tab != std::string_view::npos, "{}: expected IMAGE<tab>CLASS<tab>BOX, found {}",
                  place.at(1), base::in_quotes(line));
    const std::string_view rest = line.substr(tab + 1);
    annotated[std::string(line.substr(0, tab))] = {std::string(rest.substr(0, rest.find('\t'))), place.at(1)};
  });
  Collector part(folder);
  for (const std::string& image : ImageWalk(folder, follow_links).below("")) {
    const auto found = annotated.find(image);
    base::require(found != annotated.end(), "{}: expected a line of {}, found none", annotations,
                  base::join_path(folder, image));
    part.add(image, classes.find(found->second.first, found->second.second));
  }
  return part.take();
}

/// The first part defines the classes.
FoundImages inaturalist_part(const std::string& root, const std::string& list, ClassNames& classes) {
  const INaturalistList content = read_inaturalist_list(list);
  const bool first = classes.empty();
  std::map<int64_t, int32_t> labels;
  for (const auto& [id, name] : content.categories) {
    const std::string called = fmt::format("{} {}", id, name);
    labels[id] = first ? classes.add(called) : classes.find(called, list);
  }
  Collector part(root);
  for (int64_t i = 0; i < content.paths.size(); ++i)
    part.add(content.paths[i], labels.at(content.category_of[static_cast<size_t>(i)]));
  return part.take();
}

}  // namespace

int32_t ClassNames::find(const std::string& name, const std::string& where) const {
  const auto found = numbers_.find(name);
  if (found == numbers_.end()) {
    base::input_error("{}: class \"{}\" does not occur in the training images{}", where, name,
                      base::suggestion(name, names_));
  }
  return found->second;
}

FoundSet find_folders(const ImageOptions& options) {
  FoundSet set;
  set.train = class_folders(options.train, set.classes, options.follow_links);
  if (!options.valid.empty()) set.valid = class_folders(options.valid, set.classes, options.follow_links);
  if (!options.test.empty()) set.test = class_folders(options.test, set.classes, options.follow_links);
  return set;
}

FoundSet find_csv(const ImageOptions& options) {
  FoundSet set;
  const std::vector<CsvRow> rows = read_image_csv(options.train);
  std::vector<std::string> names;
  for (const CsvRow& row : rows) names.push_back(row.label);
  const bool numbers = std::all_of(names.begin(), names.end(), is_number);
  std::sort(names.begin(), names.end(), [&](const std::string& a, const std::string& b) {
    return numbers ? std::stoll(a) < std::stoll(b) || (std::stoll(a) == std::stoll(b) && a < b) : a < b;
  });
  for (const std::string& name : names) set.classes.add(name);
  set.train = csv_part(options.train, rows, set.classes);
  if (!options.valid.empty()) set.valid = csv_part(options.valid, read_image_csv(options.valid), set.classes);
  if (!options.test.empty()) set.test = csv_part(options.test, read_image_csv(options.test), set.classes);
  return set;
}

FoundSet find_imagenet(const ImageOptions& options) {
  require_folder(options.train, "ImageNet");
  const std::string inside = base::join_path(options.train, "ILSVRC/Data/CLS-LOC");
  const std::string root = base::is_folder(inside) ? inside : options.train;
  FoundSet set;
  if (!base::is_folder(base::join_path(root, "train"))) {
    set.train = class_folders(root, set.classes, options.follow_links);  // ImageNet-22k: n01440764/ and so on
    return set;
  }
  const std::string val = base::join_path(root, "val"), images = base::join_path(val, "images");
  if (const std::string annotations = first_there(val, {"val_annotations.txt"});
      !annotations.empty() && base::is_folder(images)) {
    set.train = class_folders(base::join_path(root, "train"), set.classes, options.follow_links);
    set.valid = annotated_validation(images, annotations, set.classes, options.follow_links);
    return set;
  }
  if (!base::is_folder(val) || !folders_in(val).empty()) return train_and_val(root, options.follow_links);
  set.train = class_folders(base::join_path(root, "train"), set.classes, options.follow_links);
  const std::string solution = first_there(options.train, {"LOC_val_solution.csv", "val/LOC_val_solution.csv"});
  base::require(!solution.empty(), "{}: its images lie in no class folders; expected LOC_val_solution.csv in {}", val,
                options.train);
  set.valid = flat_validation(val, solution, set.classes);
  return set;
}

FoundSet find_inaturalist(const ImageOptions& options) {
  require_folder(options.train, "iNaturalist");
  std::string train, val;
  for (const std::string& name : base::list_folder(options.train)) {
    if (!name.ends_with(".json")) continue;
    if (name.starts_with("train20") || name == "train.json") train = name;
    if (name.starts_with("val20") || name == "val.json") val = name;
  }
  if (train.empty()) return train_and_val(options.train, options.follow_links);
  FoundSet set;
  set.train = inaturalist_part(options.train, base::join_path(options.train, train), set.classes);
  if (!val.empty()) set.valid = inaturalist_part(options.train, base::join_path(options.train, val), set.classes);
  return set;
}

FoundSet find_places365(const ImageOptions& options) {
  require_folder(options.train, "Places365");
  const std::string names = first_there(options.train, {"categories_places365.txt"});
  if (names.empty()) return train_and_val(options.train, options.follow_links);
  FoundSet set;
  // Its lines are sorted by class number: "/a/airfield 0".
  for_each_listed(names, [&](const LinePlace& place, const std::string& name, const std::string& number) {
    base::require(number == std::to_string(set.classes.add(name)), "{}: expected class {}, found \"{}\"", place.at(1),
                  set.classes.names().size() - 1, number);
  });
  const auto part = [&](std::initializer_list<const char*> lists, std::initializer_list<const char*> folders) {
    Collector images(required_path(options.train, folders));
    for_each_listed(required_path(options.train, lists),
                    [&](const LinePlace& place, const std::string& path, const std::string& number) {
                      base::require(is_number(number) && std::stoul(number) < set.classes.names().size(),
                                    "{}: expected a class of 0 to {}, found \"{}\"", place.at(1),
                                    set.classes.names().size() - 1, number);
                      images.add(path, static_cast<int32_t>(std::stol(number)));
                    });
    return images.take();
  };
  set.train = part({"places365_train_standard.txt"},
                   {"data_256_standard", "data_256", "data_large_standard", "data_large"});
  set.valid = part({"places365_val.txt"}, {"val_256", "val_large"});
  return set;
}

FoundSet find_sun397(const ImageOptions& options) {
  require_folder(options.train, "SUN397");
  const std::string train_name = fmt::format("Training_{:02}.txt", options.partition),
                    test_name = fmt::format("Testing_{:02}.txt", options.partition);
  const auto list = [&](const std::string& name) {
    return first_there(options.train, {name.c_str(), ("Partitions/" + name).c_str()});
  };
  // A class is any folder that contains images, such as "a/abbey", at any depth.
  const auto class_of = [](const std::string& path) { return path.substr(0, path.find_last_of('/')); };
  const auto part = [&](const std::vector<std::string>& paths, ClassNames& classes, bool names_classes) {
    std::set<std::string> names;
    for (const std::string& path : paths) names.insert(class_of(path));
    if (names_classes) {
      for (const std::string& name : names) classes.add(name);
    }
    Collector images(options.train);
    for (const std::string& path : paths) images.add(path, classes.find(class_of(path), path));
    return images.take();
  };
  const auto listed = [&](const std::string& file) {
    std::vector<std::string> paths;
    for_each_listed(file,
                    [&](const LinePlace&, std::string path, const std::string&) { paths.push_back(std::move(path)); });
    return paths;
  };
  FoundSet set;
  const std::string train = list(train_name), test = list(test_name);
  if (train.empty()) {
    base::require(options.partition == 1, "{}: {} is missing, in it and in Partitions/", options.train, train_name);
    set.train = part(ImageWalk(options.train, options.follow_links).below(""), set.classes, true);
    return set;
  }
  base::require(!test.empty(), "{}: expected {} next to {}, found none", options.train, test_name, train_name);
  set.train = part(listed(train), set.classes, true);
  set.test = part(listed(test), set.classes, false);
  return set;
}

}  // namespace mnemo::data
