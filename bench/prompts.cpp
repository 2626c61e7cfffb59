#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <torch/types.h>

#include <algorithm>
#include <map>

#include "base/error.h"
#include "base/text_table.h"
#include "bench/bench.h"
#include "bench/case.h"
#include "bench/decoding.h"
#include "bench/peers.h"
#include "infer/engine.h"
#include "infer/session.h"

namespace mnemo::bench {
namespace {

constexpr int64_t kShortPrompt = 1024, kLongPrompt = 8192;  ///< tokens of a prompt
constexpr int64_t kCompared = 600, kWarm = 64;  ///< tokens after which all must agree; before anything is timed

using PeerList = std::vector<std::pair<std::string, std::unique_ptr<PeerProcess>>>;

/// A model that reads prompts.
struct PromptModel {
  std::string name;
  std::shared_ptr<models::Model> (*build)(const std::string& name);
  PeerList (*peers)(const BenchArguments& arguments, const std::string& name, const models::Model& model);
};

const DecodingCase& published_case(const std::string& name) {
  const std::vector<DecodingCase>& all = decoding_cases();
  return *std::find_if(all.begin(), all.end(), [&](const DecodingCase& c) { return c.name == name; });
}

PeerList published_peers(const BenchArguments& arguments, const std::string& name, const models::Model& model) {
  const HandOver hand_over;
  const std::string file = hand_over.path("tensors.safetensors"),
                    options = base::to_json(published_case(name).as_node(at::get_num_threads()), 0);
  weights::write_safetensors(file, model.parameters().named());
  PeerList list;
  for (const auto& [peer, kind, best] : {std::tuple{"stock", "torch", false},
                                         {"best", "torch", true},
                                         {"transformers", "transformers", true},
                                         {"ctranslate2", "ctranslate2", false}})
    list.emplace_back(peer, start_peer(arguments, "decode.py", {options, file, kind}, best));
  if (published_case(name).kv_heads == 0 && has_package(arguments, "llama_cpp"))
    list.emplace_back("llama_cpp", start_peer(arguments, "decode.py", {options, file, "llama_cpp"}, false));
  return list;
}

/// Models with memory, six layers of 512 each, in segments of 512 tokens.
const BenchCase& memory_case(const std::string& name) {
  // layers, dim, heads, ffn, segment, mem_len, mem_tokens, slots, batch, segments per step
  static const std::vector<BenchCase> all = {{"transformer_xl", "relative", 6, 512, 8, 2048, 512, 512, 0, 0, 1, 1},
                                             {"rmt", "relative", 6, 512, 8, 2048, 512, 0, 16, 0, 1, 1},
                                             {"abc", "abc", 6, 512, 8, 2048, 512, 0, 0, 32, 1, 1}};
  return *std::find_if(all.begin(), all.end(), [&](const BenchCase& c) { return c.name == name; });
}

PeerList memory_peers(const BenchArguments& arguments, const std::string& name, const models::Model&) {
  const BenchCase& c = memory_case(name);
  BenchPeers started = start_peers(arguments, c, BenchSubject(c));
  PeerList list;
  list.emplace_back("stock", std::move(started.stock));
  list.emplace_back("best", std::move(started.best));
  return list;
}

const std::vector<PromptModel>& prompt_models() {
  const auto published = [](const std::string& name) -> std::shared_ptr<models::Model> {
    return published_case(name).build();
  };
  const auto memory = [](const std::string& name) -> std::shared_ptr<models::Model> {
    return memory_case(name).build();
  };
  static const std::vector<PromptModel> all = {{"gpt2_small", published, published_peers},
                                               {"llama_small", published, published_peers},
                                               {"transformer_xl", memory, memory_peers},
                                               {"rmt", memory, memory_peers},
                                               {"abc", memory, memory_peers}};
  return all;
}

/// Our side. Tokens are those of the peers' function of the same name.
class PromptSubject {
 public:
  explicit PromptSubject(std::shared_ptr<models::Model> model) : model_(std::move(model)) {}

  /// A session that has read a prompt.
  infer::Session read(const std::string& precision, int64_t count) {
    std::shared_ptr<const infer::Engine>& engine = engines_[precision];
    if (!engine)
      engine = std::make_shared<infer::Engine>(model_,
                                               infer::EngineOptions{ops::precision_of(precision, "--precision")});
    infer::Session session(engine, infer::GenerateOptions::greedy());
    session.feed(prompt_tokens(count));
    return session;
  }
  double seconds(const std::string& precision, int64_t count) {
    return fastest_of(1, [&] { read(precision, count).next(); });
  }
  const models::Model& model() const { return *model_; }

 private:
  at::Tensor prompt_tokens(int64_t count) const {
    return at::arange(count, at::kLong).mul_(7919).remainder_(core::token_input(model_->input()).vocab_size);
  }

  std::shared_ptr<models::Model> model_;
  std::map<std::string, std::shared_ptr<const infer::Engine>> engines_;
};

struct PromptRow {
  std::string model, precision;
  int64_t tokens = 0;
  Rounds seconds;
  std::vector<std::pair<std::string, Rounds>> times;  ///< how many times as fast as each peer
  std::optional<Rounds> fastest;                      ///< likewise, as the fastest of them in each round

  std::string what() const { return fmt::format("{}, {}, a prompt of {}", model, precision, tokens); }
};

PromptRow measure_prompt(PromptRow row, PromptSubject& subject, const PeerList& all, int64_t repeats) {
  std::vector<const PeerList::value_type*> peers;
  const bool four_bits = row.precision.starts_with("int4"),
             eight_bits = row.precision == "int8" || row.precision == "w8a8";
  for (const auto& peer : all) {
    bool can = !four_bits || peer.first == "llama_cpp";
    // It has no bf16, and computes all scores of a prompt at once.
    if (peer.first == "ctranslate2") can = row.precision == "float32" && row.tokens == kShortPrompt;
    if (peer.first == "transformers") can = can && !eight_bits;
    if (can) peers.push_back(&peer);
  }
  const std::string theirs = four_bits ? "int4" : eight_bits ? "int8" : row.precision;
  const auto request = [&](int64_t tokens) { return fmt::format("prompt {} {}", theirs, tokens); };
  subject.seconds(row.precision, kWarm);
  for (const auto* peer : peers) peer->second->seconds(request(kWarm));
  std::vector<double> ours, fastest;
  std::vector<std::vector<double>> ratios(peers.size());
  for (int64_t round = 0; round < repeats; ++round) {
    const double mine = subject.seconds(row.precision, row.tokens);
    ours.push_back(mine);
    for (size_t i = 0; i < peers.size(); ++i)
      ratios[i].push_back(peers[i]->second->seconds(request(row.tokens)) / mine);
    if (peers.empty()) continue;
    fastest.push_back(ratios[0].back());
    for (const auto& ratio : ratios) fastest.back() = std::min(fastest.back(), ratio.back());
  }
  row.seconds = rounds_of(ours);
  for (size_t i = 0; i < peers.size(); ++i) row.times.emplace_back(peers[i]->first, rounds_of(ratios[i]));
  if (!fastest.empty()) row.fastest = rounds_of(fastest);
  return row;
}

/// Peers that find another token likeliest after a prompt.
std::vector<std::string> other_tokens(const PeerList& peers, const std::string& name, PromptSubject& subject) {
  const int64_t ours = subject.read("float32", kCompared).next();
  std::vector<std::string> found;
  for (const auto& [peer, process] : peers) {
    const auto theirs = static_cast<int64_t>(process->number(process->ask(fmt::format("after {}", kCompared))));
    if (theirs != ours) found.push_back(fmt::format("{}, {}: likeliest token {}, ours {}", name, peer, theirs, ours));
  }
  return found;
}

void compare_with_bars(const std::vector<PromptRow>& rows, Bars& bars) {
  std::map<std::pair<std::string, std::string>, double> near;
  for (const PromptRow& row : rows) {
    if (row.fastest)
      bars.at_least("prompts.fastest", row.precision, row.fastest->median, row.what() + ", times the fastest peer");
    const std::pair key(row.model, row.precision);
    if (row.tokens == kShortPrompt) near[key] = row.seconds.median;
    if (row.tokens == kLongPrompt && near.contains(key))
      bars.at_most("prompts.growth", row.model, row.seconds.median / near[key],
                   fmt::format("{} over one of {}", row.what(), kShortPrompt));
  }
}

base::Node prompt_figures(const std::vector<PromptRow>& rows) {
  base::Node results = base::Node::array();
  for (const PromptRow& r : rows) {
    base::Node row = base::Node::table(
        {{"case", r.model}, {"precision", r.precision}, {"tokens", r.tokens}, {"seconds", as_node(r.seconds)}});
    for (const auto& [peer, times] : r.times) row.set("times_" + peer, as_node(times));
    if (r.fastest) row.set("times_fastest", as_node(*r.fastest));
    results.push_back(row);
  }
  return base::Node::table({{"results", results}});
}

std::string prompt_text(const std::vector<PromptRow>& rows) {
  using Align = base::TextTable::Align;
  base::TextTable table({"model", "precision", "tokens", "ms, median", "least", "most", "x stock", "x best",
                         "x transformers", "x CTranslate2", "x llama.cpp", "x fastest"},
                        {Align::left, Align::left, Align::right, Align::right, Align::right, Align::right, Align::right,
                         Align::right, Align::right, Align::right, Align::right, Align::right});
  for (const PromptRow& r : rows) {
    std::vector<std::string> cells = {r.model,
                                      r.precision,
                                      std::to_string(r.tokens),
                                      fmt::format("{:.1f}", r.seconds.median * 1e3),
                                      fmt::format("{:.1f}", r.seconds.least * 1e3),
                                      fmt::format("{:.1f}", r.seconds.most * 1e3)};
    for (const char* name : {"stock", "best", "transformers", "ctranslate2", "llama_cpp"}) {
      const auto peer = std::find_if(r.times.begin(), r.times.end(), [&](const auto& p) { return p.first == name; });
      cells.push_back(peer == r.times.end() ? std::string() : range_text(peer->second));
    }
    cells.push_back(range_text(r.fastest));
    table.add_row(std::move(cells));
  }
  return table.text() +
         "\nfrom the tokens of a prompt to the first token of the answer. x stock, x best: how many times as fast as "
         "the same model in eager PyTorch with LibTorch's fused attention in the same precision, as installed and with "
         "our two process settings, which transformers has too. x llama.cpp: in BF16, Q8_0 or Q4_0\n";
}

std::string case_name(const PromptModel& model, int64_t tokens) { return fmt::format("{}_{}", model.name, tokens); }

}  // namespace

std::vector<std::string> prompt_case_names() {
  std::vector<std::string> names;
  for (const PromptModel& model : prompt_models()) {
    for (const int64_t tokens : {kShortPrompt, kLongPrompt}) names.push_back(case_name(model, tokens));
  }
  return names;
}

BenchReport bench_prompts(const BenchArguments& arguments, Bars& bars) {
  const std::vector<std::string> precisions = arguments.precisions.empty() ? std::vector<std::string>{"float32", "bf16"}
                                                                           : arguments.precisions;
  std::vector<PromptRow> rows;
  for (const PromptModel& model : prompt_models()) {
    std::vector<int64_t> lengths;
    for (const int64_t tokens : {kShortPrompt, kLongPrompt}) {
      if (arguments.wants(case_name(model, tokens))) lengths.push_back(tokens);
    }
    if (lengths.empty()) continue;
    PromptSubject subject(model.build(model.name));
    PeerList peers;
    if (!arguments.no_peers) {
      peers = model.peers(arguments, model.name, subject.model());
      BenchReport different;
      different.differences = other_tokens(peers, model.name, subject);
      if (!different.differences.empty()) return different;
    }
    for (const std::string& precision : precisions) {
      for (const int64_t tokens : lengths) {
        PromptRow row;
        row.model = model.name;
        row.precision = precision;
        row.tokens = tokens;
        rows.push_back(measure_prompt(std::move(row), subject, peers, arguments.repeats));
      }
    }
  }
  compare_with_bars(rows, bars);
  return {.figures = prompt_figures(rows), .text = prompt_text(rows)};
}

}  // namespace mnemo::bench
