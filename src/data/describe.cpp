#include "data/describe.h"

#include <algorithm>

#include "base/output.h"
#include "base/text_table.h"
#include "data/text/streams.h"

namespace mnemo::data {
namespace {

PartDescription describe_part(std::string name, const text::TextSource& text,
                              const std::shared_ptr<const TokenStore>& store, int64_t unknown_id) {
  PartDescription part;
  part.name = std::move(name);
  part.path = text.path();
  part.begin = text.begin();
  part.end = text.end();
  part.characters = store->text_characters();
  part.tokens = store->size();
  part.documents = store->num_documents();
  part.predictions = EvalStream(store).total();
  part.memory = store->num_bytes();
  std::vector<int64_t> ids;
  for (int64_t at = 0; unknown_id >= 0 && at < store->size(); at += static_cast<int64_t>(ids.size())) {
    ids.resize(static_cast<size_t>(std::min<int64_t>(store->size() - at, 1 << 16)));
    store->read(at, ids);
    part.unknown += std::count(ids.begin(), ids.end(), unknown_id);
  }
  return part;
}

}  // namespace

TextDescription describe(const TextOptions& options) { return describe(options, load_corpus(options)); }

TextDescription describe(const TextOptions& options, const Corpus& corpus) {
  const TextSplit split = split_text(options);
  const int64_t unknown = corpus.tokenizer->unknown_id();
  TextDescription out{corpus.tokenizer->type(), corpus.tokenizer->size(), {}};
  out.parts.push_back(describe_part("train", split.train, corpus.train, unknown));
  if (split.valid && corpus.valid) out.parts.push_back(describe_part("valid", *split.valid, corpus.valid, unknown));
  if (split.test && corpus.test) out.parts.push_back(describe_part("test", *split.test, corpus.test, unknown));
  return out;
}

std::string to_text(const TextDescription& description) {
  using Align = base::TextTable::Align;
  std::vector<Align> align(9, Align::right);
  align[0] = Align::left;
  base::TextTable table(
      {"part", "first byte", "bytes", "characters", "tokens", "unknown", "documents", "predictions", "memory", "file"},
      align);
  for (const PartDescription& part : description.parts) {
    std::vector<std::string> cells{part.name};
    for (const int64_t number : {part.begin, part.end - part.begin, part.characters, part.tokens, part.unknown,
                                 part.documents, part.predictions, part.memory}) {
      cells.push_back(std::to_string(number));
    }
    cells.push_back(part.path);
    table.add_row(std::move(cells));
  }
  return fmt::format("unit        {}\nvocabulary  {}\n\n{}", description.unit, description.vocabulary_size,
                     table.text(base::output_columns()));
}

base::Node to_node(const TextDescription& description) {
  base::Node parts = base::Node::array();
  for (const PartDescription& part : description.parts) {
    parts.push_back(base::Node::table({{"name", part.name},
                                       {"path", part.path},
                                       {"begin", part.begin},
                                       {"end", part.end},
                                       {"characters", part.characters},
                                       {"tokens", part.tokens},
                                       {"unknown", part.unknown},
                                       {"documents", part.documents},
                                       {"predictions", part.predictions},
                                       {"memory", part.memory}}));
  }
  return base::Node::table(
      {{"unit", description.unit}, {"vocabulary_size", description.vocabulary_size}, {"parts", std::move(parts)}});
}

}  // namespace mnemo::data
