#include "text/text_splitter.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>

#include "base/error.h"
#include "base/node.h"
#include "base/utf8.h"

namespace mnemo::text {
namespace {

// How many bytes a match may look at, and how many steps for each of them it may take, before that is doubled. The
// expressions of published models take a few steps for each character of a piece.
constexpr size_t kEffort = 1024, kSteps = 4;
// Limit of the sum of one text's doubled efforts: per byte, plus a constant.
constexpr size_t kEffortPerByte = 64, kFreeEffort = size_t{1} << 20;
constexpr uint32_t kDepthLimit = 10'000;
constexpr uint32_t kHeapLimit = 65'536;  // kibibytes
constexpr size_t kMaxPattern = 4096;

constexpr std::string_view
    kWhiteSpace = R"(\x{9}-\x{d}\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";

constexpr std::string_view kWord = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{b2}\x{b3}\x{b9}\x{bc}-\x{be})";

/// An expression of Oniguruma, which the package tokenizers uses, in PCRE2's words. \s is Unicode's white space, which
/// lacks PCRE2's U+180E; \w has marks and connectors; a class inside a class belongs to it. What means something else
/// in PCRE2 is refused.
class Translation {
 public:
  Translation(std::string_view pattern, const std::string& where) : pattern_(pattern), where_(where) {}

  std::string text() {
    for (size_t i = 0; i < pattern_.size(); ++i) {
      const char c = pattern_[i], next = i + 1 < pattern_.size() ? pattern_[i + 1] : '\0';
      if (c == '\\' && next != '\0') {
        escape(pattern_[++i]);
      } else if (c == '[') {
        require(depth_ == 0 || next != '^', "[^ ] inside []");
        require(depth_ == 0 || next != ':', "[: :]");
        if (depth_++ == 0) out_ += c;
      } else if (c == ']' && depth_ > 0) {
        if (--depth_ == 0) out_ += c;
      } else {
        require(depth_ == 0 || c != '&' || next != '&', "&& inside []");
        require(depth_ > 0 || !folds_beyond_ascii(i), "(?i) with characters beyond ASCII");
        out_ += c;
      }
    }
    return std::move(out_);
  }

 private:
  void require(bool holds, std::string_view what) const {
    base::require(holds, "{}: unsupported: {} in the expression {}", where_, what, base::in_quotes(pattern_));
  }

  /// Whether flags begin there with i among them, "(?i)" or "(?mi:", that reach a character beyond ASCII.
  bool folds_beyond_ascii(size_t at) const {
    const std::string_view flags = pattern_.substr(at);
    if (!flags.starts_with("(?")) return false;
    const size_t end = std::min(flags.find_first_not_of("imx", 2), flags.size());
    if (flags.substr(2, end - 2).find('i') == std::string_view::npos) return false;
    const bool to_end = end == flags.size() || flags[end] != ':';
    const std::string_view scope = flags.substr(0, to_end ? flags.npos : flags.find(')'));
    return std::any_of(scope.begin(), scope.end(), [](char c) { return (c & 0x80) != 0; });
  }

  void escape(char letter) {
    const bool in_class = depth_ > 0;
    if (letter == 's' || letter == 'w') {
      const std::string_view members = letter == 's' ? kWhiteSpace : kWord;
      out_ += in_class ? std::string(members) : fmt::format("[{}]", members);
    } else if (letter == 'S' || letter == 'W') {
      require(!in_class, fmt::format("\\{} inside []", letter));
      out_ += fmt::format("[^{}]", letter == 'S' ? kWhiteSpace : kWord);
    } else {
      require(std::string_view("bBhHRKGXNOyY").find(letter) == std::string_view::npos, fmt::format("\\{}", letter));
      out_ += {'\\', letter};
    }
  }

  std::string_view pattern_;
  const std::string& where_;
  std::string out_;
  int depth_ = 0;  // of classes
};

std::string message_of(int error) {
  PCRE2_UCHAR text[256];
  pcre2_get_error_message(error, text, sizeof text);
  return reinterpret_cast<const char*>(text);
}

struct FreeMatch {
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
};

/// The first border between characters at or after a byte.
size_t character_border(std::string_view text, size_t at) {
  while (at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) ++at;
  return std::min(at, text.size());
}

}  // namespace

struct TextSplitter::Code {
  pcre2_code* code = nullptr;
  pcre2_match_context* context = nullptr;
  ~Code() {
    pcre2_code_free(code);
    pcre2_match_context_free(context);
  }
};

TextSplitter::TextSplitter(const std::string& pattern, const std::string& where)
    : code_(std::make_unique<Code>()), pattern_(pattern), where_(where) {
  base::require(pattern.size() <= kMaxPattern, "{}: expected an expression of at most {} bytes, found {}", where,
                kMaxPattern, pattern.size());
  const std::string written = Translation(pattern, where).text();
  int error = 0;
  PCRE2_SIZE at = 0;
  code_->code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(written.data()), written.size(),
                              PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE, &error, &at, nullptr);
  base::require(code_->code != nullptr, "{}: the expression {}: {} (after {})", where, base::in_quotes(pattern),
                message_of(error), base::in_quotes(std::string_view(written).substr(0, at)));
  // Where the machine does not allow code to be made, matching is slower, and the same.
  pcre2_jit_compile(code_->code, PCRE2_JIT_COMPLETE | PCRE2_JIT_PARTIAL_HARD);
  code_->context = pcre2_match_context_create(nullptr);
  base::ensure(code_->context != nullptr, "pcre2_match_context_create failed");
  pcre2_set_depth_limit(code_->context, kDepthLimit);
  pcre2_set_heap_limit(code_->context, kHeapLimit);
}

TextSplitter::~TextSplitter() = default;

void TextSplitter::split(std::string_view text, const std::function<void(std::string_view)>& use) const {
  const std::unique_ptr<pcre2_match_data, FreeMatch> data(pcre2_match_data_create(1, nullptr));
  const std::unique_ptr<pcre2_match_context, FreeMatch> context(pcre2_match_context_copy(code_->context));
  base::ensure(data != nullptr && context != nullptr, "pcre2_match_data_create failed");
  const auto subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  size_t done = 0, from = 0, effort = kEffort, spent = 0;
  while (from < text.size()) {
    // A match that looks beyond `end_seen` is partial, and is looked for again with more text.
    const size_t end_seen = character_border(text, from + std::min(effort, text.size() - from));
    const uint32_t options = PCRE2_NO_UTF_CHECK | (end_seen < text.size() ? PCRE2_PARTIAL_HARD : 0);
    pcre2_set_match_limit(context.get(), static_cast<uint32_t>(std::min<size_t>(kSteps * effort, UINT32_MAX)));
    int found = pcre2_match(code_->code, subject, end_seen, from, options, data.get(), context.get());
    if (found == PCRE2_ERROR_JIT_STACKLIMIT)
      found = pcre2_match(code_->code, subject, end_seen, from, options | PCRE2_NO_JIT, data.get(), context.get());
    if (found == PCRE2_ERROR_PARTIAL || found == PCRE2_ERROR_MATCHLIMIT) {
      spent += effort;
      effort *= 2;
      base::require(spent <= kEffortPerByte * text.size() + kFreeEffort,
                    "{}: the expression {} takes too many steps at byte {} of a text of {} bytes", where_,
                    base::in_quotes(pattern_), from, text.size());
      continue;
    }
    effort = kEffort;
    if (found == PCRE2_ERROR_NOMATCH) {
      from = end_seen;
      continue;
    }
    base::require(found >= 0, "{}: the expression {} at byte {} of a text of {} bytes: {}", where_,
                  base::in_quotes(pattern_), from, text.size(), message_of(found));
    const PCRE2_SIZE* range = pcre2_get_ovector_pointer(data.get());
    const size_t begin = range[0], end = range[1];
    if (end <= begin && begin == end_seen) {  // perhaps the end that is no end
      from = end_seen;
      continue;
    }
    if (end <= begin) {  // a match of nothing is no piece
      from = begin + static_cast<size_t>(begin < text.size() ? base::front_character(text.substr(begin)).length : 1);
      continue;
    }
    if (begin > done) use(text.substr(done, begin - done));
    use(text.substr(begin, end - begin));
    done = from = end;
  }
  if (done < text.size()) use(text.substr(done));
}

const std::string& TextSplitter::gpt2_pattern() {
  static const std::string pattern = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
  return pattern;
}

bool TextSplitter::ends_at_words(std::string_view pattern) {
  static constexpr std::string_view kQwen2 =
      R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
  static constexpr std::string_view kLlama3 =
      R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
  return pattern == gpt2_pattern() || pattern == kQwen2 || pattern == kLlama3;
}

}  // namespace mnemo::text
