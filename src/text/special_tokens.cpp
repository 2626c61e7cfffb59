#include "text/special_tokens.h"

#include <initializer_list>

namespace mnemo::text {
namespace {

using TemplateItem = SequenceTemplate::Part;

TemplateItem token_item(int32_t id, int32_t type = 0) { return {TemplateItem::Kind::token, id, type}; }
constexpr TemplateItem kFirstText{.kind = TemplateItem::Kind::first};
TemplateItem second_text(int32_t type = 0) { return {TemplateItem::Kind::second, 0, type}; }

}  // namespace

SpecialTokens find_special_tokens(const std::function<int64_t(std::string_view)>& find) {
  const auto first_of = [&](std::initializer_list<std::string_view> names) {
    for (const std::string_view name : names) {
      if (const int64_t id = find(name); id >= 0) return id;
    }
    return int64_t{-1};
  };
  return {.begin = first_of({"[CLS]", "<s>", "<|begin_of_text|>", "<|endoftext|>"}),
          .end = first_of({"[SEP]", "</s>", "<|end_of_text|>", "<|endoftext|>"}),
          .padding = first_of({"[PAD]", "<pad>", "<|endoftext|>"}),
          .mask = first_of({"[MASK]", "<mask>"})};
}

ModelInput SequenceTemplate::apply(std::span<const int32_t> first,
                                   std::optional<std::span<const int32_t>> other) const {
  ModelInput out;
  for (const TemplateItem& part : other ? pair : single) {
    if (part.kind == TemplateItem::Kind::token) {
      out.ids.push_back(part.id);
    } else {
      const std::span<const int32_t> text = part.kind == TemplateItem::Kind::first ? first : *other;
      out.ids.insert(out.ids.end(), text.begin(), text.end());
    }
    out.types.resize(out.ids.size(), part.type);
  }
  return out;
}

std::vector<int32_t> SequenceTemplate::leading() const {
  std::vector<int32_t> ids;
  for (const TemplateItem& part : single) {
    if (part.kind != TemplateItem::Kind::token) break;
    ids.push_back(part.id);
  }
  return ids;
}

SequenceTemplate SequenceTemplate::bert(int32_t cls, int32_t sep) {
  return {.single = {token_item(cls), kFirstText, token_item(sep)},
          .pair = {token_item(cls), kFirstText, token_item(sep), second_text(1), token_item(sep, 1)}};
}

SequenceTemplate SequenceTemplate::roberta(int32_t begin, int32_t end) {
  return {.single = {token_item(begin), kFirstText, token_item(end)},
          .pair = {token_item(begin), kFirstText, token_item(end), token_item(end), second_text(), token_item(end)}};
}

SequenceTemplate SequenceTemplate::ending(int32_t end) {
  return {.single = {kFirstText, token_item(end)},
          .pair = {kFirstText, token_item(end), second_text(), token_item(end)}};
}

SequenceTemplate SequenceTemplate::bounded(std::optional<int32_t> begin, std::optional<int32_t> end) {
  SequenceTemplate out{.single = {}, .pair = {}};
  for (const TemplateItem& text : {kFirstText, second_text()}) {
    if (begin) out.pair.push_back(token_item(*begin));
    out.pair.push_back(text);
    if (end) out.pair.push_back(token_item(*end));
    if (text.kind == TemplateItem::Kind::first) out.single = out.pair;
  }
  return out;
}

}  // namespace mnemo::text
