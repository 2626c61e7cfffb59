#include "serve/answers.h"

#include <algorithm>

#include "base/base64.h"
#include "base/error.h"
#include "base/json_value.h"
#include "base/printable.h"
#include "core/input.h"
#include "data/images/image_reader.h"
#include "experiment/experiment.h"
#include "experiment/text_classifier.h"
#include "experiment/translation_search.h"
#include "infer/image_classifier.h"
#include "infer/object_detector.h"
#include "infer/translator.h"
#include "models/detection_options.h"
#include "models/model.h"
#include "serve/api_error.h"

namespace mnemo::serve {
namespace {

constexpr size_t kMostTexts = 64, kMostImages = 8;
constexpr int64_t kTop = 100;
constexpr int64_t kMaskBytes = int64_t{1} << 31;  // of an image's masks: a byte a pixel and object
constexpr const char* kInput = "input";

void require_members(const Question& question, std::initializer_list<std::string_view> known) {
  for (const auto& [key, value] : question.body.members()) {
    if (!question.lenient && key != "model" && std::ranges::find(known, key) == known.end())
      throw ApiError(400, fmt::format("'{}' is not supported", base::printable(key, 60)), base::json_text(key));
  }
}

int64_t number(const base::Node& body, const std::string& key, int64_t high, int64_t absent) {
  const base::Node* found = body.find(key);
  if (found == nullptr || found->is_null()) return absent;
  if (!found->is_int() || found->as_int() < 1 || found->as_int() > high)
    throw ApiError(400, fmt::format("'{}': expected an integer from 1 to {}, found {}", key, high, found->found()),
                   key);
  return found->as_int();
}

[[noreturn]] void refuse_input(const std::string& message) {
  throw ApiError(400, fmt::format("'{}': {}", kInput, message), kInput);
}

/// One element, or a list of them.
base::Node::Array inputs(const base::Node& body, size_t most) {
  const base::Node* found = body.find(kInput);
  if (found == nullptr || found->is_null()) refuse_input("expected it, found none");
  const base::Node::Array all = found->is_array() ? found->items() : base::Node::Array{*found};
  if (all.empty() || all.size() > most) refuse_input(fmt::format("expected 1 to {}, found {}", most, all.size()));
  return all;
}

const std::string& string_of(const base::Node& node) {
  if (!node.is_string()) refuse_input(fmt::format("expected a string, found {}", node.found()));
  return node.as_string();
}

const std::string& text_of(const base::Node& node) {
  const std::string& text = string_of(node);
  if (text.find_first_not_of(" \t\r\n\v\f") == std::string::npos) refuse_input("a text has no words");
  return text;
}

void require_texts(const Question& question) {
  if (question.image) throw ApiError(400, "expected a JSON object, found an image: this model reads texts");
}

/// The bytes of the images that a request has: its body, or Base64 in a list.
std::vector<std::string> images_of(const Question& question) {
  std::vector<std::string> images;
  if (question.image) {
    images.push_back(*question.image);
  } else {
    for (const base::Node& input : inputs(question.body, kMostImages)) {
      std::string_view text = string_of(input);
      // As browsers write it: "data:image/png;base64,...".
      if (text.starts_with("data:image/")) text = text.substr(std::min(text.size() - 1, text.find(',')) + 1);
      images.push_back(base::from_base64(text, kInput));
    }
  }
  if (std::ranges::any_of(images, &std::string::empty)) refuse_input("expected a JPEG or PNG image, found no bytes");
  return images;
}

std::string name_of_image(size_t number) { return fmt::format("{}[{}]", kInput, number); }

base::Node classes_of(const std::vector<infer::ClassShare>& best, int64_t top) {
  base::Node classes = base::Node::array();
  for (const infer::ClassShare& share : best) {
    if (static_cast<int64_t>(classes.size()) == top) break;
    classes.push_back(base::Node::table(
        {{"label", base::json_text(share.label)}, {"probability", base::json_number(share.probability)}}));
  }
  return classes;
}

base::Node list_of(base::Node::Array items) {
  base::Node data = base::Node::array();
  for (base::Node& item : items) {
    item.set("index", static_cast<int64_t>(data.size()));
    data.push_back(std::move(item));
  }
  return base::Node::table({{"object", "list"}, {"data", std::move(data)}});
}

class TranslateAnswers : public Answers {
 public:
  TranslateAnswers(const bundle::Bundle& stored, std::optional<ops::Precision> precision)
      : translator_(stored, precision) {
    const auto own = experiment::own_search(stored);
    if (!own && translator_.settings()) {
      options_.generation = translator_.settings();
    } else {
      options_.search = own.value_or(search::BeamSearchOptions());
    }
    translator_.require_fitting(options_);
  }
  std::string route() const override { return "/v1/translate"; }
  base::Node answer(const Question& question, const base::ShouldStop& should_stop) override {
    require_texts(question);
    require_members(question, {kInput, "n"});
    infer::TranslateOptions options = options_;
    const int64_t beams = options.generation ? options.generation->num_beams : options.search.beam_size;
    options.nbest = number(question.body, "n", beams, 1);
    options.should_stop = should_stop;
    std::vector<std::string> lines;
    for (const base::Node& input : inputs(question.body, kMostTexts)) {
      lines.push_back(text_of(input));
      if (lines.back().find_first_of("\n\r") != std::string::npos) refuse_input("expected texts of one line each");
    }
    base::Node::Array found(lines.size());
    const infer::SourceCounts counts = translator_.translate(
        lines, options,
        [&](size_t i, const std::vector<infer::TranslatedText>& texts) {
          base::Node all = base::Node::array();
          for (const infer::TranslatedText& text : texts)
            all.push_back(base::Node::table({{"text", base::json_text(text.text)},
                                             {"score", base::json_number(text.score)},
                                             {"tokens", text.tokens}}));
          found[i].set("translations", std::move(all));
        },
        kInput);
    translator_.report_unknown(counts, kInput);
    return list_of(std::move(found));
  }

 private:
  infer::Translator translator_;
  infer::TranslateOptions options_;
};

class TextClassAnswers : public Answers {
 public:
  explicit TextClassAnswers(const bundle::Bundle& stored)
      : classifier_(stored, experiment::own_recipe(stored), "serve") {}
  std::string route() const override { return "/v1/classify"; }
  base::Node answer(const Question& question, const base::ShouldStop& should_stop) override {
    require_texts(question);
    require_members(question, {kInput, "top"});
    const int64_t top = number(question.body, "top", kTop, 5);
    data::LabelledTextList texts;
    for (const base::Node& input : inputs(question.body, kMostTexts)) {
      data::LabelledText text{
          .file = std::make_shared<const std::string>(kInput), .first = {}, .second = {}, .label = {}};
      if (input.is_array() && input.size() == 2) {  // a pair
        text.first = text_of(input.items().front());
        text.second = text_of(input.items().back());
      } else {
        text.first = text_of(input);
      }
      texts.push_back(std::move(text));
    }
    experiment::TextClassifier::ReadCount count;
    base::Node::Array found;
    for (const auto& best : classifier_(std::move(texts), top, count, should_stop))
      found.push_back(base::Node::table({{"classes", classes_of(best, top)}}));
    classifier_.report_left_out(count, kInput);
    return list_of(std::move(found));
  }

 private:
  experiment::TextClassifier classifier_;
};

class ImageClassAnswers : public Answers {
 public:
  explicit ImageClassAnswers(const bundle::Bundle& stored)
      : classifier_(stored,
                    {.top = kTop,
                     .read = [this](const std::string& name) { return data::decode_image(images_.at(name), name); },
                     .should_stop = [this] { return should_stop_ ? should_stop_() : 0; }}) {}
  std::string route() const override { return "/v1/classify"; }
  base::Node answer(const Question& question, const base::ShouldStop& should_stop) override {
    require_members(question, {kInput, "top"});
    const int64_t top = number(question.body, "top", kTop, 5);
    std::vector<std::string> names;
    images_.clear();
    for (std::string& bytes : images_of(question)) {
      names.push_back(name_of_image(names.size()));
      images_[names.back()] = std::move(bytes);
    }
    should_stop_ = should_stop;
    base::Node::Array found;
    classifier_(names, [&](const infer::ImageAnswer& answer) {
      base::Node heads = base::Node::table();
      for (const infer::HeadAnswer& head : answer.heads) heads.set(head.head, classes_of(head.best, top));
      found.push_back(base::Node::table({{"heads", std::move(heads)}}));
    });
    return list_of(std::move(found));
  }

 private:
  std::map<std::string, std::string> images_;
  base::ShouldStop should_stop_;
  infer::ImageClassifier classifier_;
};

class ObjectAnswers : public Answers {
 public:
  explicit ObjectAnswers(const bundle::Bundle& stored)
      : detector_(stored), gives_masks_(models::gives_masks(stored.options())) {}
  std::string route() const override { return "/v1/detect"; }
  base::Node answer(const Question& question, const base::ShouldStop& should_stop) override {
    require_members(question, {kInput, "top", "threshold", "masks"});
    infer::DetectOptions options;
    options.top = number(question.body, "top", kTop, options.top);
    if (const base::Node* said = question.body.find("threshold"); said != nullptr && !said->is_null()) {
      if (!(said->is_int() || said->is_real()) || said->as_double() < 0 || said->as_double() > 1)
        throw ApiError(400, fmt::format("'threshold': expected 0 to 1, found {}", said->found()), "threshold");
      options.threshold = said->as_double();
    }
    if (const base::Node* said = question.body.find("masks"); said != nullptr && !said->is_null()) {
      if (!said->is_bool())
        throw ApiError(400, fmt::format("'masks': expected true or false, found {}", said->found()), "masks");
      options.masks = said->as_bool();
    }
    base::Node::Array found;
    for (const std::string& bytes : images_of(question)) {
      base::stop_if_asked(should_stop, "serve");
      data::Image image = data::decode_image(bytes, name_of_image(found.size()));
      if (gives_masks_ && options.masks && image.height * image.width > kMaskBytes / options.top)
        refuse_input(
            fmt::format("masks of {} objects of {} x {} pixels are too large; ask for a smaller 'top', or for "
                        "none with 'masks': false",
                        options.top, image.width, image.height));
      found.push_back(detector_.node(detector_(std::move(image), options)));
    }
    return list_of(std::move(found));
  }

 private:
  infer::ObjectDetector detector_;
  bool gives_masks_;
};

}  // namespace

std::unique_ptr<Answers> open_answers(const bundle::Bundle& stored, const std::optional<std::string>& precision) {
  constexpr const char* kNoPrecision = "serve: --precision is for models that write texts";
  switch (core::kind_of(stored.model->input())) {
    case core::InputKind::pairs: {
      std::optional<ops::Precision> weights;
      if (precision) weights = ops::precision_of(*precision, "serve: --precision");
      return std::make_unique<TranslateAnswers>(stored, weights);
    }
    case core::InputKind::images:
      base::require(!precision, kNoPrecision);
      if (models::is_detector(stored.options())) return std::make_unique<ObjectAnswers>(stored);
      return std::make_unique<ImageClassAnswers>(stored);
    case core::InputKind::tokens:
      break;
  }
  if (stored.model->num_classes() == 0) return nullptr;
  base::require(!precision, kNoPrecision);
  return std::make_unique<TextClassAnswers>(stored);
}

}  // namespace mnemo::serve
