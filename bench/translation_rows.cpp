#include "bench/translation_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/text_table.h"

namespace mnemo::bench {

std::string TranslationWork::name() const {
  return fmt::format("{}, batch {}, beam {}", ops::name_of(precision), batch, beam);
}
std::string TranslationWork::key() const { return fmt::format("{}_batch_{}", ops::name_of(precision), batch); }
std::string TranslationWork::request() const {
  return fmt::format("{} {} {}", precision == ops::Precision::float32 ? "float32" : "int8", batch, beam);
}

std::vector<TranslationWork> translation_works() {
  std::vector<TranslationWork> works;
  for (const ops::Precision precision : {ops::Precision::float32, ops::Precision::int8, ops::Precision::w8a8}) {
    for (const int64_t batch : {1, 32}) {
      for (const int64_t beam : {1, 5}) works.push_back({precision, batch, beam, batch == 32 && beam == 5});
    }
  }
  return works;
}

TranslationRow measure_row(std::string what, std::string key, int64_t repeats, const std::function<void()>& ours,
                           const std::vector<std::pair<std::string, std::function<double()>>>& peers) {
  std::vector<double> seconds;
  std::vector<std::vector<double>> times(peers.size());
  for (int64_t round = -1; round < repeats; ++round) {
    const double mine = seconds_of(1, ours).front();
    for (size_t i = 0; i < peers.size(); ++i) {
      const double their = peers[i].second();
      if (round >= 0) times[i].push_back(their / mine);
    }
    if (round >= 0) seconds.push_back(mine);
  }
  TranslationRow row{std::move(what), std::move(key), rounds_of(seconds), {}};
  for (size_t i = 0; i < peers.size(); ++i) row.times.emplace_back(peers[i].first, rounds_of(times[i]));
  return row;
}

BenchReport report_of(const std::vector<TranslationRow>& rows, const std::string& note, Bars& bars) {
  using Align = base::TextTable::Align;
  const auto any = [&rows](std::optional<double> TranslationRow::*figure) {
    return std::any_of(rows.begin(), rows.end(), [figure](const TranslationRow& row) { return row.*figure; });
  };
  std::vector<std::string> titles = {"work", "ms, median", "least", "most", "x stock", "x best", "x CTranslate2"};
  if (any(&TranslationRow::bleu)) titles.push_back("BLEU");
  if (any(&TranslationRow::peers_bleu)) titles.insert(titles.end(), {"CTranslate2's", "alike"});
  std::vector<Align> sides(titles.size(), Align::right);
  sides[0] = Align::left;
  base::TextTable table(titles, sides);
  base::Node results = base::Node::array();
  for (const TranslationRow& row : rows) {
    std::vector<std::string> cells = {row.what, fmt::format("{:.1f}", row.seconds.median * 1e3),
                                      fmt::format("{:.1f}", row.seconds.least * 1e3),
                                      fmt::format("{:.1f}", row.seconds.most * 1e3)};
    base::Node peers = base::Node::table();
    for (const char* name : {"stock", "best", "ctranslate2"}) {
      const auto found = std::find_if(row.times.begin(), row.times.end(),
                                      [&](const auto& p) { return p.first == name; });
      cells.push_back(found == row.times.end() ? std::string() : range_text(found->second));
      if (found == row.times.end()) continue;
      peers.set(name, as_node(found->second));
      bars.at_least(fmt::format("translation.{}", name), row.key, found->second.median, row.what + ", times " + name);
    }
    base::Node result = base::Node::table({{"work", row.what}, {"seconds", as_node(row.seconds)}, {"times", peers}});
    if (row.bleu) {
      cells.push_back(fmt::format("{:.2f}", *row.bleu));
      result.set("bleu", *row.bleu);
    }
    if (row.peers_bleu) {
      cells.insert(cells.end(), {fmt::format("{:.2f}", *row.peers_bleu), fmt::format("{}", row.equal)});
      result.set("bleu_ctranslate2", *row.peers_bleu);
      result.set("alike", row.equal);
      bars.at_most("translation.bleu", "difference", std::abs(*row.bleu - *row.peers_bleu),
                   row.what + ", BLEU beside CTranslate2");
    }
    table.add_row(std::move(cells));
    results.push_back(result);
  }
  return {.figures = base::Node::table({{"results", results}}), .text = table.text() + "\n" + note + "\n"};
}

}  // namespace mnemo::bench
