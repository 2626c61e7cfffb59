#include "data/answers/labelled_text.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "base/file_io.h"
#include "base/log.h"
#include "base/node.h"
#include "base/printable.h"
#include "base/random.h"
#include "data/answers/hyperpartisan.h"
#include "text/open_tokenizer.h"
#include "text/utf8_error.h"

namespace mnemo::data {
namespace {

constexpr int64_t kMaxListOfIds = int64_t{1} << 24;

bool is_whole_number(const std::string& text) {
  return !text.empty() && text.size() < 10 && text.find_first_not_of("0123456789") == std::string::npos;
}

std::vector<std::string> sorted_labels(const LabelledTextList& texts) {
  std::set<std::string> found;
  for (const LabelledText& text : texts) found.insert(text.label);
  std::vector<std::string> labels(found.begin(), found.end());
  if (std::all_of(labels.begin(), labels.end(), is_whole_number)) {
    std::sort(labels.begin(), labels.end(),
              [](const std::string& a, const std::string& b) { return std::stol(a) < std::stol(b); });
  }
  return labels;
}

/// Throws InputError that names file and line of invalid UTF-8.
void require_text_in_utf8(const LabelledText& text, std::string_view advice) {
  for (const std::string_view part :
       {std::string_view(text.first), text.second ? std::string_view(*text.second) : ""}) {
    const std::optional<size_t> bad = base::first_invalid_utf8(part);
    if (!bad) continue;
    const auto lines = std::count(part.begin(), part.begin() + static_cast<std::ptrdiff_t>(*bad), '\n');
    text::invalid_utf8(text.whole_file ? fmt::format("{}:{}", text.where(), lines + 1) : text.where(),
                       static_cast<int64_t>(*bad), part.substr(*bad), advice);
  }
}

/// The numbers of labels.
class Classes {
 public:
  /// labels: must outlive it.
  explicit Classes(const std::vector<std::string>& labels) : labels_(labels) {
    for (size_t i = 0; i < labels.size(); ++i) numbers_.emplace(labels[i], static_cast<int64_t>(i));
  }
  /// remedy: the end of the message about another label.
  int64_t of(const LabelledText& text, const char* remedy = "") const {
    const auto found = numbers_.find(text.label);
    if (found == numbers_.end())
      base::input_error("{}: expected a label of {}, found {}{}", text.where(),
                        base::printable(fmt::format("{}", fmt::join(labels_, ", ")), 400), base::in_quotes(text.label),
                        remedy);
    return found->second;
  }

 private:
  const std::vector<std::string>& labels_;
  std::unordered_map<std::string_view, int64_t> numbers_;
};

/// Moves the texts for which chosen(place, text) is true to the end of `to`; both stay in order.
template <class F>
void move_chosen(LabelledTextList& from, LabelledTextList& to, F&& chosen) {
  LabelledTextList kept;
  for (size_t i = 0; !from.empty(); ++i, from.pop_front()) {
    const bool moves = chosen(i, std::as_const(from.front()));
    (moves ? to : kept).push_back(std::move(from.front()));
  }
  from = std::move(kept);
}

/// Moves a fraction of the texts, chosen by the seed, into a part of its own; both stay in order.
void hold_out(LabelledTextList& from, LabelledTextList& to, double fraction, size_t whole, base::Random& random) {
  std::vector<size_t> order(from.size());
  std::iota(order.begin(), order.end(), size_t{0});
  random.shuffle(order);
  order.resize(std::min(order.size(), static_cast<size_t>(fraction * static_cast<double>(whole))));
  const std::set<size_t> chosen(order.begin(), order.end());
  move_chosen(from, to, [&](size_t i, const LabelledText&) { return chosen.contains(i); });
}

/// Moves every `folds`-th of the texts, in an order drawn by the seed, into a part of its own; both stay in order.
void deal_out(LabelledTextList& from, LabelledTextList& to, int64_t folds, int64_t fold, base::Random& random) {
  std::vector<size_t> order(from.size());
  std::iota(order.begin(), order.end(), size_t{0});
  random.shuffle(order);
  std::set<size_t> chosen;
  for (auto at = static_cast<size_t>(fold); at < order.size(); at += static_cast<size_t>(folds))
    chosen.insert(order[at]);
  move_chosen(from, to, [&](size_t i, const LabelledText&) { return chosen.contains(i); });
}

bool is_list_of_ids(const std::string& path) { return path.ends_with(".json"); }

/// Ids are compared without leading zeros, and may be numbers.
std::string plain_id(std::string id) { return id.erase(0, std::min(id.find_first_not_of('0'), id.size() - 1)); }

/// Moves the texts whose ids a file lists under one of the names into a part of its own, in their order.
void hold_out_listed(LabelledTextList& from, LabelledTextList& to, const std::string& path,
                     const std::vector<const char*>& names) {
  const base::Node lists = base::parse_json(base::read_file(path, kMaxListOfIds), path);
  const auto found = std::find_if(names.begin(), names.end(), [&](const char* name) { return lists.contains(name); });
  base::require(found != names.end() && lists.at(*found).is_array(),
                "{}: expected a list of ids under \"{}\", found none", path, fmt::join(names, "\" or \""));
  std::set<std::string> ids;
  for (const base::Node& id : lists.at(*found).items())
    ids.insert(plain_id(id.is_int() ? std::to_string(id.as_int()) : id.as_string()));
  const size_t before = to.size();
  move_chosen(from, to,
              [&](size_t, const LabelledText& text) { return !text.id.empty() && ids.contains(plain_id(text.id)); });
  base::require(to.size() - before == ids.size(),
                "{}: expected the ids of {} training articles under \"{}\", found texts of {}", path, ids.size(),
                *found, to.size() - before);
}

/// Cuts the ends of the texts of a pair, the longer one first, to `room` tokens together.
void truncate(std::vector<int32_t>& first, std::vector<int32_t>& second, size_t room) {
  if (first.size() + second.size() <= room) return;
  const size_t half = room - room / 2;
  const size_t keep = std::min(first.size(), std::max(half, room - std::min(room, second.size())));
  second.resize(std::min(second.size(), room - keep));
  first.resize(keep);
}

/// Without the outer special tokens, which a memory has of its own.
void strip(text::ModelInput& input, const text::SpecialTokens& special) {
  const auto drop = [&](size_t at) {
    input.ids.erase(input.ids.begin() + static_cast<int64_t>(at));
    input.types.erase(input.types.begin() + static_cast<int64_t>(at));
  };
  if (!input.ids.empty() && input.ids.back() == special.end) drop(input.ids.size() - 1);
  if (!input.ids.empty() && input.ids.front() == special.begin) drop(0);
}

std::shared_ptr<const LabelledDocuments> encode(const LabelledTextList& texts, const std::vector<std::string>& labels,
                                                const text::Tokenizer& tokenizer, const LabelledTextShape& shape) {
  if (texts.empty()) return nullptr;
  const text::SpecialTokens special = tokenizer.special_tokens();
  auto documents = std::make_shared<LabelledDocuments>(tokenizer.size(), static_cast<int64_t>(labels.size()),
                                                       shape.token_types);
  const auto made = [&](std::span<const int32_t> first, const std::optional<std::span<const int32_t>>& second) {
    text::ModelInput input = tokenizer.with_special_tokens(first, second);
    if (!shape.special_tokens) strip(input, special);
    return input;
  };
  const auto room = [&](const std::optional<std::span<const int32_t>>& second) {
    const auto beside = static_cast<int64_t>(made({}, second).ids.size());
    base::require(shape.max_length > beside,
                  "data.max_length: expected more than the {} special tokens of a text, found {}", beside,
                  shape.max_length);
    return static_cast<size_t>(shape.max_length - beside);
  };
  const auto tokens_of = [&](std::string_view words, const std::string& where) {
    std::vector<int32_t> ids;
    const auto encoder = tokenizer.encoder(where);
    encoder->put(words, ids);
    encoder->finish(ids);
    documents->count_read(static_cast<int64_t>(ids.size()), encoder->num_unknown());
    return ids;
  };
  const Classes classes(labels);
  for (const LabelledText& text : texts) {
    std::vector<int32_t> first = tokens_of(text.first, text.where()), second;
    std::optional<std::span<const int32_t>> other;
    size_t whole = first.size();
    if (text.second) {
      second = tokens_of(*text.second, text.where());
      whole += second.size();
      truncate(first, second, room(std::span<const int32_t>()));
      other = second;
    } else {
      first.resize(std::min(first.size(), room({})));
    }
    if (first.size() + second.size() < whole) documents->count_cut();
    const text::ModelInput input = made(first, other);
    base::require(!input.ids.empty(), "{}: the text is empty", text.where());
    documents->add(input.ids, classes.of(text), shape.token_types ? input.types : std::span<const int32_t>());
  }
  return documents;
}

/// Names of columns say nothing of folders and articles.
void require_columns(const LabelledTextOptions& options) {
  const auto is_table = [](const std::string& path) {
    return !path.empty() && !base::is_folder(path) && !path.ends_with(".xml") && !is_list_of_ids(path);
  };
  if (is_table(options.train) || is_table(options.valid) || is_table(options.test)) return;
  for (const auto& [key, set] : {std::pair("text_column", !options.text_column.empty()),
                                 {"second_column", !options.second_column.empty()},
                                 {"label_column", options.label_column != LabelledTextOptions().label_column}})
    base::require(!set, "data.{}: applies to tables only, and {} is {}; remove it", key, options.train,
                  base::is_folder(options.train) ? "a folder with a folder for each label" : "a file of articles");
}

}  // namespace

void LabelledTextOptions::validate(const base::Where& where) const {
  where.require(valid_fraction + test_fraction < 1.0, "test_fraction",
                "expected valid_fraction + test_fraction below 1, found {} + {}", valid_fraction, test_fraction);
  where.require(folds != 1 && (folds == 0 ? fold == 0 : fold < folds), "fold",
                "expected folds of at least 2 and fold below them, found folds = {} and fold = {}", folds, fold);
  where.require(folds == 0 || (valid.empty() && valid_fraction == 0.0), "folds",
                "one of the parts is the validation text; remove valid and valid_fraction");
  where.require(second_column.empty() || !text_column.empty(), "text_column",
                "expected the column of the first text, since second_column is set");
  where.require(label_column == "label" || !text_column.empty(), "text_column",
                "expected the column of the text, since label_column is set");
  where.require(tokenizer.empty() || (unit == LabelledTextOptions().unit && min_count == 1 && max_vocabulary == 0),
                "tokenizer", "'{}' has a vocabulary of its own; remove unit, min_count and max_vocabulary", tokenizer);
  where.require(unit != "bytes" || (min_count == 1 && max_vocabulary == 0), "unit",
                "unit = \"bytes\" has no vocabulary to limit; remove min_count and max_vocabulary");
  where.require(labels.empty() || labels.size() > 1, "labels", "expected at least 2, found 1");
  where.require(std::set<std::string>(labels.begin(), labels.end()).size() == labels.size(), "labels",
                "expected different labels, found one twice");
}

LabelledTexts read_labelled_file(const std::string& path, const LabelledTextOptions& options) {
  LabelledTexts read = base::is_folder(path)    ? read_labelled_folder(path, options.labels)
                       : path.ends_with(".xml") ? read_hyperpartisan(path)
                                                : read_labelled_table(path, {options.text_column, options.second_column,
                                                                             options.label_column});
  base::require(!read.texts.empty(), "{}: expected at least one text with a label, found none", path);
  return read;
}

std::vector<std::string> labels_of(const LabelledTexts& read) {
  return read.labels.empty() ? sorted_labels(read.texts) : read.labels;
}

LabelledTextSets read_labelled_texts(const LabelledTextOptions& options) {
  base::require(!options.train.empty(),
                "data.train: expected labelled texts, found none; use --set data.train=PATH, or train's --data PATH");
  require_columns(options);
  LabelledTexts train = read_labelled_file(options.train, options);
  LabelledTextSets sets{.train = {}, .valid = {}, .test = {}, .labels = options.labels};
  if (sets.labels.empty()) sets.labels = labels_of(train);
  sets.train = std::move(train.texts);
  base::require(sets.labels.size() > 1, "{}: expected texts of at least 2 labels, found {}", options.train,
                sets.labels.size());
  const size_t whole = sets.train.size();
  base::Random random{static_cast<uint64_t>(options.seed)};
  if (options.folds > 0) {
    deal_out(sets.train, sets.valid, options.folds, options.fold, random);
  } else if (is_list_of_ids(options.valid)) {
    hold_out_listed(sets.train, sets.valid, options.valid, {"dev", "valid"});
  } else if (!options.valid.empty()) {
    sets.valid = read_labelled_file(options.valid, options).texts;
  } else {
    hold_out(sets.train, sets.valid, options.valid_fraction, whole, random);
    if (sets.valid.empty() && options.valid_fraction > 0)
      base::log_warning("{}: valid_fraction = {:g} of {} texts is none, so nothing is held out for evaluations",
                        base::printable(options.train, 400), options.valid_fraction, whole);
  }
  if (is_list_of_ids(options.test)) {
    hold_out_listed(sets.train, sets.test, options.test, {"test"});
  } else if (!options.test.empty()) {
    sets.test = read_labelled_file(options.test, options).texts;
  } else {
    hold_out(sets.train, sets.test, options.test_fraction, whole, random);
  }
  base::require(!sets.train.empty(), "{}: expected at least one text for training, found none", options.train);
  // A header of one's own may be that of a published table, such as SST-2's.
  const char* remedy = options.text_column.empty() && !base::is_folder(options.train) && options.labels.empty()
                           ? "; for a table of your own name its columns: data.text_column, data.label_column"
                           : "";
  const Classes classes(sets.labels);
  for (const auto* part : {&sets.train, &sets.valid, &sets.test}) {
    for (const LabelledText& text : *part) classes.of(text, remedy);
  }
  return sets;
}

std::shared_ptr<const text::Tokenizer> tokenizer_of(const LabelledTextOptions& options, const LabelledTextSets& sets) {
  if (!options.tokenizer.empty() || options.unit != "bytes") {
    for (const auto* part : {&sets.train, &sets.valid, &sets.test}) {
      for (const LabelledText& text : *part)
        require_text_in_utf8(text, options.tokenizer.empty() ? text::kUseBytes : text::kConvertFile);
    }
  }
  if (!options.tokenizer.empty()) return text::open_tokenizer(options.tokenizer);
  base::require(!sets.train.front().second,
                "{}: expected data.tokenizer, the folder of a pretrained model's tokenizer, since a vocabulary of the "
                "texts' own has no token between the texts of a pair",
                options.train);
  std::string all;
  for (const LabelledText& text : sets.train) all += text.first + "\n";
  return text::make_tokenizer(options.unit, text::TextSource::in_memory(options.train, std::move(all)),
                              {options.min_count, options.max_vocabulary});
}

LabelledSets encode_labelled_texts(const LabelledTextSets& sets, const text::Tokenizer& tokenizer,
                                   const LabelledTextShape& shape) {
  const auto part = [&](const LabelledTextList& texts) { return encode(texts, sets.labels, tokenizer, shape); };
  return {part(sets.train), part(sets.valid), part(sets.test)};
}

}  // namespace mnemo::data
