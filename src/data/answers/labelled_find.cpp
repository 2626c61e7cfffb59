#include "data/answers/labelled_find.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <vector>

#include "base/error.h"
#include "base/file_io.h"
#include "base/printable.h"
#include "data/text/table_head.h"
#include "data/text/text_files.h"

namespace mnemo::data {
namespace {

bool names_label(std::string_view name) {
  return is_one_of(name, {"label", "labels", "class", "category", "sentiment", "topic", "intent", "stars", "rating",
                          "polarity", "quality", "label_text"});
}

bool names_text(std::string_view name) {
  return is_one_of(name, {"text", "sentence", "review", "content", "comment", "tweet", "message", "body", "document",
                          "question", "title", "utterance", "description"});
}

constexpr std::array<std::array<std::string_view, 2>, 7> kPairs = {{{"sentence1", "sentence2"},
                                                                    {"premise", "hypothesis"},
                                                                    {"question1", "question2"},
                                                                    {"question", "sentence"},
                                                                    {"text1", "text2"},
                                                                    {"text_a", "text_b"},
                                                                    {"#1 string", "#2 string"}}};

/// The columns by these names; empty if a label or a text is missing.
LabelledColumns named_columns(const std::vector<std::string>& names) {
  LabelledColumns found;
  const auto first = [&](const auto& fits) {
    const auto at = std::find_if(names.begin(), names.end(), fits);
    return at == names.end() ? std::string() : *at;
  };
  found.label = first(names_label);
  if (found.label.empty()) return {};
  for (const auto& pair : kPairs) {
    const std::string left = first([&](const std::string&name) { return is_one_of(name, {pair[0]}); }),
                      right = first([&](const std::string&name) { return is_one_of(name, {pair[1]}); });
    if (!left.empty() && !right.empty()) return {left, right, found.label};
  }
  found.text = first(names_text);
  if (found.text.empty() && names.size() == 2) found.text = names[0] == found.label ? names[1] : names[0];
  return found.text.empty() ? LabelledColumns{} : found;
}

std::vector<std::string> names_of(const base::Node& record) {
  std::vector<std::string> names;
  for (const auto& [key, value] : record.members()) {
    const bool is_value = value.is_string() || (names_label(key) && (value.is_int() || value.is_bool()));
    if (is_value) names.push_back(key);
  }
  return names;
}

constexpr size_t kEnough = 8, kRepeats = 4;

/// A text by its name, beside one column of few values; empty otherwise.
LabelledColumns label_by_values(const TableHead& head) {
  if (head.columns() != 2 || head.rows.size() <= kEnough) return {};
  const std::vector<std::string>& names = head.rows.front();
  const size_t text = names_text(names[0]) ? 0 : 1, few = head.distinct(1 - text, 1);
  if (!names_text(names[text]) || few < 2 || few * kRepeats >= head.rows.size()) return {};
  return {names[text], "", names[1 - text]};
}

/// Texts and a few labels without their names.
bool lacks_header(const TableHead& head) {
  if (head.columns() != 2 || head.rows.size() < kEnough) return false;
  const size_t few = std::min(head.distinct(0), head.distinct(1)), many = std::max(head.distinct(0), head.distinct(1));
  return few > 1 && few * kRepeats <= head.rows.size() && many * 2 > head.rows.size();
}

bool is_folder_of_labels(const std::string& path) {
  if (!is_folder_of_texts(path)) return false;
  size_t labels = 0;
  for (const std::string& name : base::list_folder(path)) {
    if (name.starts_with(".") || name.starts_with("README") || name.starts_with("LICENSE")) continue;
    const std::string folder = base::join_path(path, name);
    const bool part = is_one_of(name, {"train", "valid", "val", "validation", "dev", "test"});
    if (!base::is_folder(folder) || part) return false;
    const std::vector<std::string> files = base::list_folder(folder);
    const auto is_text = [&](const std::string& file) { return !base::is_folder(base::join_path(folder, file)); };
    if (files.size() < 2 || !std::all_of(files.begin(), files.end(), is_text)) return false;
    ++labels;
  }
  return labels > 1;
}

}  // namespace

std::optional<std::string> find_articles(const std::string& folder) {
  constexpr std::string_view kArticles = "articles-";
  if (!base::is_folder(folder)) return std::nullopt;
  std::vector<std::string> found;
  for (const std::string& name : base::list_folder(folder)) {
    const bool labelled = name.starts_with(kArticles) && name.ends_with(".xml") &&
                          base::path_exists(base::join_path(folder, "ground-truth-" + name.substr(kArticles.size())));
    if (labelled) found.push_back(base::join_path(folder, name));
  }
  return found.size() == 1 ? std::optional(found.front()) : std::nullopt;
}

std::optional<LabelledColumns> find_labelled(const std::string& path) {
  if (is_pattern(path)) return std::nullopt;
  if (base::is_folder(path))
    return is_folder_of_labels(path) || find_articles(path) ? std::optional(LabelledColumns{}) : std::nullopt;
  const std::string name = std::filesystem::path(path).filename().string();
  if (name.ends_with(".xml")) return name.starts_with("articles-") ? std::optional(LabelledColumns{}) : std::nullopt;
  const TableHead head = read_table_head(path);
  if (!head.records.empty()) {
    const LabelledColumns found = named_columns(names_of(head.records.front()));
    return found.text.empty() ? std::nullopt : std::optional(found);
  }
  if (!head.rows.empty() && is_published_table(head.rows.front())) return LabelledColumns{};
  const size_t columns = head.columns();
  if (columns < 2 || head.rows.size() < 2) return std::nullopt;
  for (const LabelledColumns& found : {named_columns(head.rows.front()), label_by_values(head)})
    if (!found.text.empty()) return found;
  base::require(!lacks_header(head),
                "{}: looks like texts with labels, but its first line does not name the columns; add a line such as "
                "text<TAB>label, or say what it is: data.type = \"pairs\" or \"text\"",
                base::printable(path, 400));
  return std::nullopt;
}

}  // namespace mnemo::data
