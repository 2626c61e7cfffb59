#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <torch/types.h>

#include <algorithm>
#include <map>

#include "base/error.h"
#include "bench/peers.h"
#include "bench/translation_rows.h"
#include "bundle/bundle.h"
#include "data/pairs/pair_options.h"
#include "infer/engine_search.h"
#include "metrics/bleu.h"
#include "models/pair_model.h"
#include "ops/activation.h"
#include "search/beam_search.h"

namespace mnemo::bench {
namespace {

constexpr int64_t kMaxTokens = 200;

/// A trained translation model and the sentences that it translates.
class TrainedSubject {
 public:
  TrainedSubject(const std::string& folder, const std::string& pairs) {
    const bundle::Bundle stored = bundle::read_bundle(folder);
    model_ = models::as<models::PairModel>(stored.model, folder);
    require_known_shape(folder);
    vocabularies_ = data::read_vocabularies(bundle::files_beside(stored.folder), stored.folder);
    data::PairTextOptions text;
    text.train = pairs;
    text.valid_fraction = text.test_fraction = 0.0;
    references_.resize(1);
    for (const data::TextPair& pair : data::read_pairs(text).train.pairs) {
      samples_.push_back({vocabularies_.source->encode(pair.source, pairs), {data::PairVocabulary::kEos}});
      references_[0].push_back(pair.target);
    }
  }

  int64_t count() const { return static_cast<int64_t>(samples_.size()); }
  base::Node shape() const {
    const models::EncoderDecoderOptions& pairs = model_->options().backbone.pairs();
    return base::Node::table({{"dim", pairs.dim},
                              {"heads", pairs.num_heads},
                              {"ffn", pairs.ffn_dim},
                              {"layers", pairs.encoder.num_layers},
                              {"vocab", model_->options().embedding.vocab_size},
                              {"least", 0},
                              {"pre_norm", pairs.norm == models::EncoderDecoderOptions::Norm::pre},
                              {"length", kMaxTokens},
                              {"threads", at::get_num_threads()}});
  }
  weights::NamedTensors tensors() const {
    weights::NamedTensors tensors;
    for (const auto& [name, tensor] : model_->parameters().named()) tensors.emplace_back(name, tensor.detach());
    std::vector<int64_t> all(samples_.size());
    for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int64_t>(i);
    tensors.emplace_back("bench.source", data::make_pair_batch(samples_, all).input.source);
    return tensors;
  }

  /// The tokens of the best hypotheses, without their end, in the order of the sentences.
  std::vector<std::vector<int64_t>> translate(const TranslationWork& work) {
    std::shared_ptr<const infer::Engine>& engine = engines_[work.precision];
    if (!engine) engine = std::make_shared<const infer::Engine>(model_, infer::EngineOptions{work.precision});
    const search::BeamSearchOptions options{.beam_size = work.beam, .min_len = 0, .max_len_b = kMaxTokens};
    std::vector<int64_t> order(samples_.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int64_t>(i);
    std::vector<std::vector<int64_t>> all(samples_.size());
    for (const std::vector<int64_t>& chosen :
         data::bucket_pairs(samples_, order, work.batch * kMaxTokens, work.batch)) {
      const core::Segment batch = data::make_pair_batch(samples_, chosen).input;
      infer::EngineSearch decoder(engine);
      const auto found = search::beam_search(decoder, {}, batch.source, batch.source_valid, options);
      for (size_t i = 0; i < chosen.size(); ++i) {
        std::vector<int64_t>& tokens = all[static_cast<size_t>(chosen[i])];
        tokens = found[i].front().tokens;
        if (!tokens.empty() && tokens.back() == data::PairVocabulary::kEos) tokens.pop_back();
      }
    }
    return all;
  }
  void drop() { engines_.clear(); }
  double bleu(const std::vector<std::vector<int64_t>>& translations) const {
    std::vector<std::string> texts;
    for (const std::vector<int64_t>& tokens : translations) texts.push_back(vocabularies_.target->decode(tokens));
    return metrics::corpus_bleu(texts, references_).score;
  }

 private:
  /// CTranslate2's side is written for this family of shapes alone.
  void require_known_shape(const std::string& folder) const {
    const models::ModelOptions& options = model_->options();
    const models::EncoderDecoderOptions& pairs = options.backbone.pairs();
    const auto plain = [](const base::TypedOptions& attention) { return attention.type() == "softmax"; };
    using Positions = models::PairPositionOptions;
    const bool known = options.embedding.shared == models::EmbeddingOptions::Shared::all && options.embedding.scale &&
                       pairs.encoder.memory.empty() && !pairs.encoder.segment_size &&
                       pairs.activation == ops::Activation::relu && !pairs.ffn_gated &&
                       pairs.encoder.num_layers == pairs.decoder.num_layers && !pairs.encoder.num_heads &&
                       !pairs.decoder.num_heads && !pairs.encoder.ffn_dim && !pairs.decoder.ffn_dim &&
                       plain(pairs.encoder.attention) && plain(pairs.decoder.attention) &&
                       plain(pairs.decoder.cross_attention) && options.tokens.first() == options.tokens.eos &&
                       pairs.position.frequencies == Positions::Frequencies::fairseq && pairs.position.first == 2 &&
                       !model_->parameters().find("head.weight").defined() &&
                       !model_->parameters().find("head.bias").defined();
    base::require(known,
                  "--model: {}: expected a model like transformer_iwslt_de_en: relu, softmax attention, one "
                  "table for source, target and output, no memories; found another shape",
                  folder);
  }

  std::shared_ptr<models::Model> model_;
  data::PairVocabularies vocabularies_;
  std::vector<data::PairSample> samples_;
  std::vector<std::vector<std::string>> references_;
  std::map<ops::Precision, std::shared_ptr<const infer::Engine>> engines_;
};

std::vector<std::vector<int64_t>> peers_translations(PeerProcess& peer, const TranslationWork& work) {
  std::vector<std::vector<int64_t>> all;
  const base::Node answer = base::parse_json(peer.ask("hypotheses " + work.request()), "the peer's answer");
  for (const base::Node& row : answer.at("tokens").items()) {
    all.emplace_back();
    for (const base::Node& token : row.items()) all.back().push_back(token.as_int());
  }
  return all;
}

}  // namespace

BenchReport bench_trained_translation(const BenchArguments& arguments, Bars& bars) {
  TrainedSubject subject(arguments.model, arguments.pairs);
  std::unique_ptr<PeerProcess> peer;
  if (!arguments.no_peers) {
    const HandOver hand_over;
    const std::string file = hand_over.path("tensors.safetensors");
    weights::write_safetensors(file, subject.tensors());
    peer = start_peer(arguments, "translate.py", {base::to_json(subject.shape(), 0), file, "ctranslate2"}, false);
  }
  std::vector<TranslationRow> rows;
  for (const TranslationWork& work : translation_works()) {
    std::vector<std::pair<std::string, std::function<double()>>> others;
    const auto ours = subject.translate(work);
    std::optional<double> peers_bleu;
    int64_t equal = 0;
    if (peer) {
      const auto theirs = peers_translations(*peer, work);
      base::require(theirs.size() == ours.size(), "the peer translated {} of {} sentences", theirs.size(), ours.size());
      for (size_t i = 0; i < ours.size(); ++i) equal += ours[i] == theirs[i] ? 1 : 0;
      peers_bleu = subject.bleu(theirs);
      others.emplace_back("ctranslate2", [&] {
        return peer->seconds(fmt::format("translate {} {}", work.request(), subject.count()));
      });
    }
    rows.push_back(measure_row(
        work.name(), work.key(), arguments.repeats, [&] { subject.translate(work); }, others));
    rows.back().bleu = subject.bleu(ours);
    rows.back().peers_bleu = peers_bleu;
    rows.back().equal = equal;
    if (work.last) subject.drop();
  }
  return report_of(
      rows,
      fmt::format("{} sentences of {}, translated by {}; BLEU of the best hypotheses, and how many of them "
                  "both programs find alike.",
                  subject.count(), arguments.pairs, arguments.model),
      bars);
}

}  // namespace mnemo::bench
