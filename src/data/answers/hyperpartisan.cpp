#include "data/answers/hyperpartisan.h"

#include <expat.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <exception>
#include <filesystem>
#include <map>
#include <memory>

#include "base/error.h"
#include "base/node.h"
#include "base/printable.h"
#include "data/text/text_files.h"

namespace mnemo::data {
namespace {

using Attributes = std::map<std::string, std::string>;

constexpr int kMaxElements = 256;  // inside one another; the parser keeps every open one
constexpr std::array<const char*, 2> kLabels = {"false", "true"};

/// Calls handlers for the elements and the characters of an XML file. An exception of a handler ends the reading.
class XmlReader {
 public:
  virtual ~XmlReader() = default;

  void read(const std::string& path) {
    path_ = path;
    const std::unique_ptr<XML_ParserStruct, decltype(&XML_ParserFree)> parser(XML_ParserCreate(nullptr),
                                                                              &XML_ParserFree);
    base::ensure(parser != nullptr, "no memory for a parser of XML");
    parser_ = parser.get();
    XML_SetUserData(parser_, this);
    XML_SetElementHandler(
        parser_,
        [](void* self, const char* name, const char** attributes) {
          of(self).guarded([&] {
            of(self).enters();
            Attributes found;
            for (; *attributes != nullptr; attributes += 2) found[attributes[0]] = attributes[1];
            of(self).starts(name, found);
          });
        },
        [](void* self, const char* name) {
          of(self).guarded([&] {
            --of(self).depth_;
            of(self).ends(name);
          });
        });
    XML_SetCharacterDataHandler(parser_, [](void* self, const char* text, int length) {
      of(self).guarded([&] { of(self).characters({text, static_cast<size_t>(length)}); });
    });
    XML_SetStartDoctypeDeclHandler(parser_, [](void* self, const char*, const char*, const char*, int) {
      of(self).guarded(
          [&] { base::input_error("{}: expected XML without a document type, found <!DOCTYPE", of(self).where()); });
    });
    open_text(path).for_each_chunk([&](std::string_view chunk) {
      parse(chunk, false);
      return true;
    });
    parse({}, true);
  }

 protected:
  virtual void starts(std::string_view name, const Attributes& attributes) = 0;
  virtual void ends(std::string_view /*name*/) {}
  virtual void characters(std::string_view /*text*/) {}
  uint64_t line() const { return XML_GetCurrentLineNumber(parser_); }
  std::string where() const { return fmt::format("{}:{}", path_, line()); }

 private:
  static XmlReader& of(void* self) { return *static_cast<XmlReader*>(self); }

  void enters() {
    base::require(++depth_ <= kMaxElements, "{}: expected elements at most {} deep, found one inside {} others",
                  where(), kMaxElements, kMaxElements);
  }

  /// Exceptions must not pass through the parser, which is C.
  template <class F>
  void guarded(F&& f) {
    if (thrown_) return;
    try {
      f();
    } catch (...) {
      thrown_ = std::current_exception();
      XML_StopParser(parser_, XML_FALSE);
    }
  }

  void parse(std::string_view chunk, bool last) {
    const XML_Status status = XML_Parse(parser_, chunk.data(), static_cast<int>(chunk.size()), last ? 1 : 0);
    if (thrown_) std::rethrow_exception(thrown_);
    base::require(status != XML_STATUS_ERROR, "{}:{}: broken XML: {}", where(), XML_GetCurrentColumnNumber(parser_) + 1,
                  XML_ErrorString(XML_GetErrorCode(parser_)));
  }

  std::string path_;
  XML_Parser parser_ = nullptr;
  int depth_ = 0;  // elements that are open
  std::exception_ptr thrown_;
};

const std::string& attribute(const Attributes& attributes, const std::string& name, const std::string& where) {
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
  void starts(std::string_view name, const Attributes& attributes) override {
    if (name != "article") return;
    const std::string &id = attribute(attributes, "id", where()),
                      &label = attribute(attributes, "hyperpartisan", where());
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

  std::vector<LabelledText> texts;

 private:
  void starts(std::string_view name, const Attributes& attributes) override {
    if (name == "p") space();
    if (name != "article") return;
    const std::string& id = attribute(attributes, "id", where());
    const auto label = labels_.of_id.find(id);
    base::require(label != labels_.of_id.end(), "{}: expected a label of article {} in {}, found none", where(),
                  base::in_quotes(id), labels_path_);
    texts.push_back({where(), {}, {}, label->second.text});
    inside_ = true;
  }

  void ends(std::string_view name) override {
    if (name == "p") space();
    if (name != "article") return;
    inside_ = false;
    if (texts.back().first.ends_with(' ')) texts.back().first.pop_back();
    require_words(texts.back().where, texts.back().first, std::nullopt);
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
  base::require(name.starts_with(kArticles), "{}: expected a file articles-NAME.xml, beside it ground-truth-NAME.xml",
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
