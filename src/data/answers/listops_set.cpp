#include "data/answers/listops_set.h"

#include <algorithm>
#include <tuple>
#include <unordered_set>

#include "base/checksum.h"
#include "base/error.h"

namespace mnemo::data {
namespace {

constexpr int64_t kLongestListOpsLine = 1 << 24;  // bytes
// With the arena's options about one draw in twenty is kept; if the options allow almost nothing, drawing must stop.
constexpr int64_t kMaxRefused = 2'000'000;
constexpr std::string_view kHeader = "Source\tTarget";

uint64_t fingerprint(const std::vector<uint8_t>& tokens) {
  base::Fingerprint sum;
  for (const uint8_t token : tokens) sum.mix(token);
  return sum.value() ^ (sum.value() >> 29);
}

void add_to(LabelledDocuments& documents, const ListOpsExpression& expression) {
  documents.add(std::vector<int32_t>(expression.tokens.begin(), expression.tokens.end()), expression.value);
}

std::shared_ptr<LabelledDocuments> empty_set() { return std::make_shared<LabelledDocuments>(kListOpsVocabulary, 10); }

std::shared_ptr<LabelledDocuments> load_file(const std::string& path) {
  if (path.empty()) return nullptr;
  auto documents = empty_set();
  read_listops(path, [&](const ListOpsExpression& expression) { add_to(*documents, expression); });
  return documents;
}

}  // namespace

void ListOpsOptions::validate(const base::Where& where) const {
  where.require(!train.empty() || (valid.empty() && test.empty()), "train",
                "expected a file, because valid or test is one; if all three are empty, samples are generated");
  where.require(!train.empty() || min_length + 1 < max_length, "min_length",
                "expected at most max_length - 2 = {}, found {}; expressions have more than min_length and fewer than "
                "max_length tokens",
                max_length - 2, min_length);
  const ListOpsOptions plain;
  for (const auto& [key, value, usual] : {std::tuple("train_samples", train_samples, plain.train_samples),
                                          {"valid_samples", valid_samples, plain.valid_samples},
                                          {"test_samples", test_samples, plain.test_samples},
                                          {"max_depth", max_depth, plain.max_depth},
                                          {"max_args", max_args, plain.max_args},
                                          {"min_length", min_length, plain.min_length},
                                          {"seed", seed, plain.seed}}) {
    where.require(train.empty() || value == usual, key,
                  "has no effect on expressions that are read from a file; leave it out, found {}", value);
  }
}

void make_listops(const ListOpsOptions& options, const std::function<bool(Part, const ListOpsExpression&)>& use) {
  base::Random random{static_cast<uint64_t>(options.seed)};
  const ListOpsShape shape = options.shape();
  std::unordered_set<uint64_t> seen;
  for (const auto& [part, count] :
       {std::pair(Part::train, options.train_samples), std::pair(Part::valid, options.valid_samples),
        std::pair(Part::test, options.test_samples)}) {
    int64_t refused = 0;
    for (int64_t made = 0; made < count;) {
      const auto expression = draw_listops(shape, random);
      if (expression && seen.insert(fingerprint(expression->tokens)).second) {
        if (!use(part, *expression)) return;
        ++made;
        refused = 0;
      } else {
        base::require(
            ++refused < kMaxRefused,
            "listops: of the {} different expressions wanted with data.min_length = {}, data.max_length = {}, "
            "data.max_depth = {}, data.max_args = {}, {} were found, and none in {} tries more; ask for fewer, or "
            "widen the limits",
            options.train_samples + options.valid_samples + options.test_samples, options.min_length,
            options.max_length, options.max_depth, options.max_args, seen.size(), kMaxRefused);
      }
    }
  }
}

void read_listops(const std::string& path, const std::function<void(const ListOpsExpression&)>& use) {
  bool value_first = false;
  int64_t count = 0;
  for_each_line(
      text::TextSource(path).without_byte_order_mark(), kLongestListOpsLine,
      [&](const LinePlace& place, std::string_view line) {
        if (place.line == 1) {
          if (line == kHeader) return;
          value_first = line.size() > 1 && line[0] >= '0' && line[0] <= '9' && line[1] == '\t';
          base::require(
              value_first,
              "{}: expected a line \"Source<TAB>Target\" (Long Range Arena), or a value from 0 to 9, a tab and an "
              "expression (Nangia and Bowman)",
              place.at(1));
        }
        use(parse_listops_line(line, place, value_first));
        ++count;
      });
  base::require(count > 0, "{}: expected ListOps expressions, found none", path);
}

LabelledSets load_listops(const ListOpsOptions& options) {
  if (!options.train.empty()) return {load_file(options.train), load_file(options.valid), load_file(options.test)};
  const auto train = empty_set(), valid = empty_set(), test = empty_set();
  make_listops(options, [&](Part part, const ListOpsExpression& expression) {
    add_to(part == Part::train ? *train : part == Part::valid ? *valid : *test, expression);
    return true;
  });
  return {train, valid->size() > 0 ? valid : nullptr, test->size() > 0 ? test : nullptr};
}

}  // namespace mnemo::data
