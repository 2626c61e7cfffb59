#include "data/answers/hyperpartisan.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>

#include "base/error.h"
#include "base/node.h"
#include "base/printable.h"
#include "data/xml_reader.h"

namespace mnemo::data {
namespace {

constexpr std::array<const char*, 2> kLabels = {"false", "true"};

std::string attribute(const XmlAttributes& attributes, const std::string& name, const std::string& where) {
  const auto found = attributes.find(name);
  base::require(found != attributes.end(), "{}: expected an article with the attribute '{}', found none", where, name);
  return found->second;
}

class Labels final : public XmlReader {
 public:
  struct Label {
    std::string text;
    uint64_t line;
  };
  std::map<std::string, Label> of_id;

 private:
  void starts(std::string_view name, const XmlAttributes& attributes) override {
    if (name != "article") return;
    const std::string id = attribute(attributes, "id", where()),
                      label = attribute(attributes, "hyperpartisan", where());
    base::require(std::find(kLabels.begin(), kLabels.end(), label) != kLabels.end(),
                  "{}: expected a label of {}, found {}", where(), fmt::join(kLabels, ", "), base::in_quotes(label));
    const auto [entry, fresh] = of_id.try_emplace(id, Label{label, line()});
    base::require(fresh || entry->second.text == label,
                  "{}: expected one label for each article, found {} for article {}, which is {} in line {}", where(),
                  base::in_quotes(label), base::in_quotes(id), base::in_quotes(entry->second.text), entry->second.line);
  }
};

class Articles final : public XmlReader {
 public:
  Articles(const Labels& labels, const std::string& labels_path) : labels_(labels), labels_path_(labels_path) {}

  LabelledTextList texts;

 private:
  void starts(std::string_view name, const XmlAttributes& attributes) override {
    if (name == "p") space();
    if (name != "article") return;
    const std::string id = attribute(attributes, "id", where());
    const auto label = labels_.of_id.find(id);
    base::require(label != labels_.of_id.end(), "{}: expected a label of article {} in {}, found none", where(),
                  base::in_quotes(id), labels_path_);
    texts.push_back({.file = std::make_shared<const std::string>(where()),
                     .first = {},
                     .second = {},
                     .label = label->second.text,
                     .id = id});
    inside_ = true;
  }

  void ends(std::string_view name) override {
    if (name == "p") space();
    if (name != "article") return;
    inside_ = false;
    if (texts.back().first.ends_with(' ')) texts.back().first.pop_back();
    require_words(texts.back().where(), texts.back().first, std::nullopt);
  }

  void characters(std::string_view text) override {
    for (const char c : text) {
      if (c == ' ' || c == '\n' || c == '\t' || c == '\r') {
        space();
      } else if (inside_) {
        texts.back().first += c;
      }
    }
  }

  void space() {
    if (inside_ && !texts.back().first.empty() && !texts.back().first.ends_with(' ')) texts.back().first += ' ';
  }

  const Labels& labels_;
  const std::string& labels_path_;
  bool inside_ = false;
};

}  // namespace

LabelledTexts read_hyperpartisan(const std::string& path) {
  namespace fs = std::filesystem;
  constexpr std::string_view kArticles = "articles-";
  const std::string name = fs::path(path).filename().string();
  base::require(name.starts_with(kArticles),
                "{}: expected a file articles-NAME.xml with ground-truth-NAME.xml next to it",
                base::printable(path, 400));
  const std::string labels_path = (fs::path(path).parent_path() / ("ground-truth-" + name.substr(kArticles.size())))
                                      .string();
  Labels labels;
  labels.read(labels_path);
  Articles articles(labels, labels_path);
  articles.read(path);
  return {std::move(articles.texts), {kLabels.begin(), kLabels.end()}};
}

}  // namespace mnemo::data
