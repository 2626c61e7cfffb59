#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <span>
#include <string_view>

#include "base/file_io.h"
#include "base/text_table.h"
#include "bench/bench.h"
#include "bench/peers.h"
#include "text/open_tokenizer.h"

namespace mnemo::bench {
namespace {

/// Tokenizers of the golden files; `--tokenizer` names the folder of another one.
const std::vector<std::string> kTokenizerCases = {"bert_uncased", "gpt2_roberta", "t5"};

/// One line of so many may differ.
constexpr int64_t kMaxOthers = 50;

struct TokenizerRow {
  std::string name;
  int64_t vocabulary = 0, ids = 0, others = 0;
  double bytes = 0.0;
  Rounds seconds;
  std::optional<Rounds> times;
};

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

/// The ids of all lines, -1 after each.
std::vector<int32_t> encode_lines(const text::Tokenizer& tokenizer, const std::vector<std::string_view>& lines) {
  std::vector<int32_t> all;
  for (const std::string_view line : lines) {
    const std::vector<int32_t> ids = tokenizer.encode(line);
    all.insert(all.end(), ids.begin(), ids.end());
    all.push_back(-1);
  }
  return all;
}

/// The number of lines that have other ids there.
int64_t other_lines(std::span<const int32_t> ours, std::span<const int32_t> theirs) {
  int64_t count = 0;
  while (!ours.empty() && !theirs.empty()) {
    const auto here = std::find(ours.begin(), ours.end(), -1), there = std::find(theirs.begin(), theirs.end(), -1);
    count += !std::equal(ours.begin(), here, theirs.begin(), there);
    ours = {here + (here != ours.end()), ours.end()};
    theirs = {there + (there != theirs.end()), theirs.end()};
  }
  return count;
}

int64_t other_lines(PeerProcess& peer, const std::vector<int32_t>& ours) {
  const HandOver hand_over;
  peer.ask("ids " + hand_over.path("ids"));
  const std::string bytes = base::read_file(hand_over.path("ids"));
  std::vector<int32_t> theirs(bytes.size() / sizeof(int32_t));
  std::memcpy(theirs.data(), bytes.data(), theirs.size() * sizeof(int32_t));
  return other_lines(ours, theirs);
}

std::string tokenizer_text(const std::vector<TokenizerRow>& rows) {
  using Align = base::TextTable::Align;
  base::TextTable table(
      {"tokenizer", "entries", "tokens", "other lines", "MB/s, median", "least", "most", "x tokenizers"},
      {Align::left, Align::right, Align::right, Align::right, Align::right, Align::right, Align::right, Align::right});
  for (const TokenizerRow& row : rows) {
    const auto speed = [&](double seconds) { return fmt::format("{:.1f}", row.bytes / seconds / 1e6); };
    table.add_row({row.name, std::to_string(row.vocabulary), std::to_string(row.ids), std::to_string(row.others),
                   speed(row.seconds.median), speed(row.seconds.most), speed(row.seconds.least),
                   range_text(row.times)});
  }
  return table.text() +
         "\nx tokenizers: how many times as fast as the package tokenizers with the same files, line by "
         "line, one thread; rounds turn about. other lines: those with other ids there (a tokenizer of SentencePiece "
         "is "
         "converted for the package, which changes few lines)\n";
}

}  // namespace

std::vector<std::string> tokenizer_case_names() { return kTokenizerCases; }

BenchReport bench_tokenizers(const BenchArguments& arguments, Bars& bars) {
  const std::string file = arguments.text.empty() ? "data/tinyshakespeare/input.txt" : arguments.text;
  const std::string text = base::read_file(file);
  const std::vector<std::string_view> lines = lines_of(text);
  std::vector<std::pair<std::string, std::string>> folders;
  if (!arguments.tokenizer.empty()) {
    folders.emplace_back(arguments.tokenizer, arguments.tokenizer);
  } else {
    for (const std::string& name : kTokenizerCases) {
      if (arguments.wants(name)) folders.emplace_back(name, "tests/golden/data/text_tools/tokenizer_" + name);
    }
  }
  BenchReport report;
  std::vector<TokenizerRow> rows;
  for (const auto& [name, folder] : folders) {
    const auto tokenizer = text::open_tokenizer(folder, {.fairseq_ids = false});
    const std::vector<int32_t> ids = encode_lines(*tokenizer, lines);
    std::unique_ptr<PeerProcess> peer;
    int64_t others = 0;
    if (!arguments.no_peers) {
      peer = start_peer(arguments, "tokenize_text.py",
                        {std::filesystem::absolute(folder).string(), std::filesystem::absolute(file).string()}, false);
      others = other_lines(*peer, ids);
      const auto count = static_cast<int64_t>(lines.size());
      if (others > count / kMaxOthers) {
        report.differences.push_back(fmt::format("{}: {} of {} lines have other ids there", name, others, count));
        continue;
      }
    }
    std::vector<double> ours, times;
    for (int64_t round = -1; round < arguments.repeats; ++round) {
      const double mine = fastest_of(1, [&] { encode_lines(*tokenizer, lines); });
      const double theirs = peer ? peer->seconds("encode") : 0.0;
      if (round < 0) continue;  // warm-up
      ours.push_back(mine);
      times.push_back(theirs / mine);
    }
    const auto count = static_cast<int64_t>(ids.size() - lines.size());
    TokenizerRow row{name, tokenizer->size(), count, others, static_cast<double>(text.size()), rounds_of(ours), {}};
    if (peer) row.times = rounds_of(times);
    if (row.times) bars.at_least("tokenizers", "peer", row.times->median, name + ": times as fast as tokenizers");
    rows.push_back(std::move(row));
  }
  base::Node results = base::Node::array();
  for (const TokenizerRow& row : rows) {
    base::Node node = base::Node::table({{"tokenizer", row.name}, {"ids", row.ids}, {"seconds", as_node(row.seconds)}});
    if (row.times) node.set("times", as_node(*row.times));
    results.push_back(node);
  }
  report.figures = base::Node::table({{"text", file}, {"results", results}});
  if (!rows.empty()) report.text = tokenizer_text(rows);
  return report;
}

}  // namespace mnemo::bench
