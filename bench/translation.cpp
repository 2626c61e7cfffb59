#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <torch/types.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "base/random.h"
#include "bench/bench.h"
#include "bench/case.h"
#include "bench/peers.h"
#include "bench/translation_rows.h"
#include "data/pairs/pair_batches.h"
#include "data/pairs/pair_vocabulary.h"
#include "infer/engine_search.h"
#include "models/presets.h"
#include "search/beam_search.h"
#include "tasks/token_loss.h"
#include "train/optimiser.h"
#include "train/segment_bptt.h"

namespace mnemo::bench {
namespace {

constexpr int64_t kWords = 10'000, kRows = 128, kLongest = 32, kLength = 24;
constexpr int64_t kSentences = 32, kSteps = 2;
constexpr double kSmoothing = 0.1;

/// transformer_iwslt_de_en with one table, without dropout, on random sentences of 12 to 32 tokens.
class TranslationSubject {
 public:
  TranslationSubject() {
    models::ModelOptions options = models::read_model_options(base::Node::table(
        {{"preset", "transformer_iwslt_de_en"}, {"embedding", base::Node::table({{"shared", "all"}})}}));
    options.embedding.vocab_size = kWords;
    options.backbone.pairs().dropout = 0.0;
    model_ = models::build(options);
    auto generator = at::detail::createCPUGenerator(1);
    spread_parameters(model_->parameters(), generator);
    base::Random random{7};
    const auto sentence = [&] {
      std::vector<int64_t> tokens(kLongest - static_cast<int64_t>(random.below(20)));
      for (int64_t& token : tokens) token = 4 + static_cast<int64_t>(random.below(kWords - 4));
      tokens.back() = data::PairVocabulary::kEos;
      return tokens;
    };
    std::vector<int64_t> all;
    for (int64_t row = 0; row < kRows; ++row) {
      samples_.push_back({sentence(), sentence()});
      all.push_back(row);
    }
    batch_ = data::make_pair_batch(samples_, all);
    optimiser_ = train::make_optimiser(
        train::optimiser_types().complete(
            base::Node::table({{"type", "adam"}, {"lr", 1e-4}, {"betas", base::Node::array({0.9, 0.98})}})),
        model_->parameters().all());
  }

  weights::NamedTensors tensors() const {
    weights::NamedTensors tensors;
    for (const auto& [name, tensor] : model_->parameters().named()) tensors.emplace_back(name, tensor.detach());
    tensors.emplace_back("bench.source", batch_.input.source);
    tensors.emplace_back("bench.previous", batch_.input.tokens);
    tensors.emplace_back("bench.target", data::token_targets(batch_));
    return tensors;
  }

  /// Gradients of a training step; returns the loss.
  double backward() {
    model_->parameters().zero_grad();
    const core::StepResult step = model_->forward(core::in_training(batch_.input),
                                                  model_->initial_state(kRows));
    const at::Tensor loss = tasks::smoothed_token_loss(*model_, step, batch_, batch_.num_targets, kSmoothing).total;
    loss.backward();
    return loss.item<double>();
  }
  double gradient_norm() const { return train::gradient_norm(model_->parameters().all()); }
  void train(int64_t steps, ops::ProductPrecision precision) {
    const ops::ProductPrecisionGuard guard(precision);
    for (int64_t step = 0; step < steps; ++step) {
      backward();
      optimiser_->step();
    }
  }

  /// Translates the first sentences; every translation has kLength tokens and its end.
  std::vector<std::vector<search::Hypothesis>> translate(ops::Precision precision, int64_t batch, int64_t beam,
                                                         int64_t count) {
    std::shared_ptr<const infer::Engine>& engine = engines_[precision];
    if (!engine) engine = std::make_shared<const infer::Engine>(model_, infer::EngineOptions{precision});
    const search::BeamSearchOptions options{.beam_size = beam, .min_len = kLength, .max_len_b = kLength};
    std::vector<int64_t> order;
    for (int64_t i = 0; i < count; ++i) order.push_back(i);
    std::vector<std::vector<search::Hypothesis>> all;
    for (const std::vector<int64_t>& chosen : data::bucket_pairs(samples_, order, batch * kLongest, batch)) {
      const core::Segment pairs = data::make_pair_batch(samples_, chosen).input;
      infer::EngineSearch decoder(engine);
      for (auto& found : search::beam_search(decoder, {}, pairs.source, pairs.source_valid, options))
        all.push_back(std::move(found));
    }
    return all;
  }
  void drop() { engines_.clear(); }

 private:
  std::shared_ptr<models::Model> model_;
  std::vector<data::PairSample> samples_;
  data::Batch batch_;
  std::unique_ptr<train::Optimiser> optimiser_;
  std::map<ops::Precision, std::shared_ptr<const infer::Engine>> engines_;
};

struct TranslationPeers {
  std::unique_ptr<PeerProcess> stock, best, ctranslate2;
};

TranslationPeers start_translation_peers(const BenchArguments& arguments, const TranslationSubject& subject) {
  const HandOver hand_over;
  const std::string file = hand_over.path("tensors.safetensors");
  weights::write_safetensors(file, subject.tensors());
  const base::Node options = base::Node::table({{"dim", 512},
                                                {"heads", 4},
                                                {"ffn", 1024},
                                                {"layers", 6},
                                                {"vocab", kWords},
                                                {"least", kLength},
                                                {"pre_norm", false},
                                                {"length", kLength},
                                                {"threads", at::get_num_threads()}});
  const auto start = [&](std::vector<std::string> words, bool best) {
    words.insert(words.begin(), {base::to_json(options, 0), file});
    return start_peer(arguments, "translate.py", words, best);
  };
  return {start({"torch"}, false), start({"torch", "--fused"}, true), start({"ctranslate2"}, false)};
}

/// Peers that compute something else from the same parameters.
std::vector<std::string> other_results(const TranslationPeers& peers, TranslationSubject& subject) {
  const double loss = subject.backward(), norm = subject.gradient_norm();
  std::vector<std::string> found;
  for (PeerProcess* peer : {peers.stock.get(), peers.best.get()}) {
    const base::Node theirs = base::parse_json(peer->ask("check"), "the peer's answer");
    for (const std::string& line : {unlike("loss", loss, theirs.at("loss").as_double(), 1e-4),
                                    unlike("gradient norm", norm, theirs.at("gradient_norm").as_double(), 1e-3)}) {
      if (!line.empty()) found.push_back("training: " + line);
    }
  }
  const base::Node answer = base::parse_json(peers.ctranslate2->ask("check"), "the peer's answer");
  const auto ours = subject.translate(ops::Precision::float32, 4, 1, 4);
  // Sentences of a batch are sorted by length here, so compare the sets, not the order.
  std::vector<std::vector<int64_t>> mine, theirs;
  for (const auto& hypotheses : ours) {
    mine.push_back(hypotheses.front().tokens);
    mine.back().pop_back();  // the end, which CTranslate2 does not write at the limit
  }
  for (const base::Node& row : answer.at("tokens").items()) {
    theirs.emplace_back();
    for (const base::Node& token : row.items()) theirs.back().push_back(token.as_int());
  }
  std::sort(mine.begin(), mine.end());
  std::sort(theirs.begin(), theirs.end());
  if (mine != theirs) found.emplace_back("translation: CTranslate2 finds other tokens");
  return found;
}

}  // namespace

std::vector<std::string> translation_case_names() { return {"training", "translation"}; }

BenchReport bench_translation(const BenchArguments& arguments, Bars& bars) {
  if (!arguments.model.empty()) return bench_trained_translation(arguments, bars);
  TranslationSubject subject;
  TranslationPeers peers;
  if (!arguments.no_peers) {
    peers = start_translation_peers(arguments, subject);
    BenchReport different;
    different.differences = other_results(peers, subject);
    if (!different.differences.empty()) return different;
  }
  using Peer = std::pair<std::string, std::function<double()>>;
  std::vector<TranslationRow> rows;
  if (arguments.wants("training")) {
    std::vector<Peer> others;
    const auto add = [&](const char* name, PeerProcess* peer) {
      if (peer != nullptr) others.emplace_back(name, [peer] { return peer->seconds(fmt::format("train {}", kSteps)); });
    };
    add("stock", peers.stock.get());
    add("best", peers.best.get());
    for (const auto& [precision, name, key] :
         {std::tuple(ops::ProductPrecision::float32, "training step x 2", "training"),
          std::tuple(ops::ProductPrecision::bf16, "training step x 2, bf16", "training_bf16")}) {
      rows.push_back(measure_row(
          name, key, arguments.repeats, [&, chosen = precision] { subject.train(kSteps, chosen); }, others));
    }
  }
  const std::string note = fmt::format(
      "Training: a step on {} pairs of at most {} tokens. Translation: {} sentences, {} tokens each. Peers train in "
      "float32.",
      kRows, kLongest, kSentences, kLength);
  if (!arguments.wants("translation")) return report_of(rows, note, bars);
  for (const TranslationWork& work : translation_works()) {
    std::vector<Peer> others;
    if (peers.ctranslate2) {
      others.emplace_back("ctranslate2", [&] {
        return peers.ctranslate2->seconds(fmt::format("translate {} {}", work.request(), kSentences));
      });
    }
    rows.push_back(measure_row(
        work.name(), work.key(), arguments.repeats,
        [&] { subject.translate(work.precision, work.batch, work.beam, kSentences); }, others));
    if (work.last) subject.drop();
  }
  return report_of(rows, note, bars);
}

}  // namespace mnemo::bench
