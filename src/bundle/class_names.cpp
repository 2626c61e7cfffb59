#include "bundle/class_names.h"

#include <fmt/format.h>

#include <sstream>

#include "base/error.h"
#include "base/file_io.h"
#include "base/json_value.h"
#include "base/printable.h"
#include "bundle/published_config.h"

namespace mnemo::bundle {

std::vector<std::string> classes_in(const base::Node& config, int64_t num_classes) {
  std::vector<std::string> names;
  for (const char* key : {"label_names", "id2label"}) {  // timm's, a list or by number; transformers', by number
    const base::Node* listed = config.find(key);
    if (listed == nullptr || !names.empty()) continue;
    if (listed->is_array()) {
      for (const base::Node& name : listed->items()) names.push_back(name.as_string());
    } else if (listed->is_table()) {
      for (size_t i = 0; i < listed->size(); ++i) names.push_back(listed->at(std::to_string(i)).as_string());
    }
  }
  // torchvision lists the background, which is no class of a head in two stages.
  if (static_cast<int64_t>(names.size()) == num_classes + 1 && names[0] == "__background__") names.erase(names.begin());
  return names;
}

namespace {

std::string class_lines(const base::Node& config, int64_t num_classes) {
  const std::vector<std::string> names = classes_in(config, num_classes);
  base::require(names.empty() || static_cast<int64_t>(names.size()) == num_classes,
                "expected {} names, as many as there are classes, found {}", num_classes, names.size());
  std::string lines;
  for (const std::string& name : names) {
    base::require(name.find('\n') == std::string::npos, "class {}: expected a name of one line", base::in_quotes(name));
    lines += name + "\n";
  }
  return lines;
}

}  // namespace

std::string foreign_class_lines(const std::string& folder) {
  return said_by(find_published(folder), folder, kClassesFile, [&](const PublishedConfig& found) {
    const base::Node head = found.format->options(found.config).at("head");
    const base::Node* classes = head.find("num_classes");
    return classes == nullptr ? std::string() : class_lines(found.config, classes->as_int());
  });
}

std::vector<std::string> class_names(const std::string& folder) {
  if (folder.empty()) return {};  // the model is not in a folder
  const std::string path = base::join_path(folder, kClassesFile);
  std::vector<std::string> names;
  std::istringstream lines(base::path_exists(path) ? base::read_file(path, uint64_t{16} << 20)
                                                   : foreign_class_lines(folder));
  for (std::string line; std::getline(lines, line);) names.push_back(line);
  return names;
}

bool are_numbered(const std::vector<std::string>& names) {
  for (size_t i = 0; i < names.size(); ++i) {
    if (names[i] != fmt::format("LABEL_{}", i)) return false;
  }
  return true;
}

void name_classes(base::Node& config, const std::vector<std::string>& classes) {
  base::Node names = base::Node::table(), numbers = base::Node::table();
  for (size_t i = 0; i < classes.size(); ++i) {
    names.set(std::to_string(i), base::json_text(classes[i]));
    numbers.set(base::json_text(classes[i]), static_cast<int64_t>(i));
  }
  config.set("id2label", names);
  config.set("label2id", numbers);
}

}  // namespace mnemo::bundle
