// Translation as a user runs it: train, resume, translate, evaluate, and refusals.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <regex>
#include <sstream>

#include "metrics/bleu.h"
#include "tests/support/translation_run.h"
#include "weights/safetensors.h"

namespace mnemo {
namespace {

using namespace test;
namespace fs = std::filesystem;

/// Translations in JSON, their scores apart: float32 products of the encoder may round differently beside other lines.
struct ScoredLines {
  std::string text;
  std::vector<double> scores;

  explicit ScoredLines(const std::string& json) {
    static const std::regex score("(\"(?:score|log_probability)\":)([-+.0-9e]+)");
    for (std::sregex_iterator it(json.begin(), json.end(), score), end; it != end; ++it) {
      scores.push_back(std::stod((*it)[2]));
    }
    text = std::regex_replace(json, score, "$1");
  }
  /// The largest difference of a score; infinite if anything else differs.
  double distance(const ScoredLines& other) const {
    if (text != other.text || scores.size() != other.scores.size()) return std::numeric_limits<double>::infinity();
    double largest = 0.0;
    for (size_t i = 0; i < scores.size(); ++i) largest = std::max(largest, std::abs(scores[i] - other.scores[i]));
    return largest;
  }
};
constexpr double kRounding = 3e-6;

TEST_F(TranslationRun, TrainsResumesTranslatesAndEvaluates) {
  const std::string whole = folder_ / "whole", parts = folder_ / "parts";
  ASSERT_EQ(run({"train", pair_recipe_, "--out", whole, "-q"}).status, 0);
  ASSERT_EQ(run({"train", pair_recipe_, "--out", parts, "-q", "--set", "train.steps=3"}).status, 0);
  const Finished resumed = run({"train", "--resume", parts, "-q", "--set", "train.steps=6"});
  ASSERT_EQ(resumed.status, 0) << resumed.err;
  EXPECT_EQ(content(whole + "/model/model.safetensors"), content(parts + "/model/model.safetensors"));

  const Finished lines = translate("number 3 of 4\n\nnumber 5 of 1\r\nsomething else\n", whole + " --beam 3");
  ASSERT_EQ(lines.status, 0) << lines.err;
  EXPECT_EQ(std::count(lines.out.begin(), lines.out.end(), '\n'), 4);
  EXPECT_TRUE(holds(lines.out, "\n\n")) << lines.out;
  const Finished best = translate("number 3 of 4\n", whole + " --beam 3 --nbest 2");
  EXPECT_EQ(std::count(best.out.begin(), best.out.end(), '\t'), 2) << best.out;
  const Finished as_json = translate("number 3 of 4\nyes\n", whole + " --json --precision int8");
  ASSERT_EQ(as_json.status, 0) << as_json.err;
  const base::Node first = json(as_json.out.substr(0, as_json.out.find('\n')));
  EXPECT_EQ(first.at("source").as_string(), "number 3 of 4");
  EXPECT_EQ(first.at("translations").size(), 1u);

  const Finished measured = run({"eval", whole, "--part", "test", "--json"});
  ASSERT_EQ(measured.status, 0) << measured.err;
  const base::Node metrics = json(measured.out);
  for (const char* name : {"perplexity", "accuracy", "bleu", "chrf"}) EXPECT_TRUE(metrics.contains(name)) << name;
  EXPECT_EQ(metrics.at("bleu_signature").as_string(), metrics::bleu_signature({}, 1));
  EXPECT_TRUE(metrics.contains("chrf_signature"));
  EXPECT_EQ(metrics.at("translated").as_int(), std::min<int64_t>(8, metrics.at("translated_of").as_int()));
  const Finished shown = run({"data", pair_recipe_});
  EXPECT_TRUE(holds(shown.out, "train: ")) << shown.err;
}

TEST_F(TranslationRun, AlignsReplacesUnknownWordsAndDraws) {
  const std::string model = folder_ / "model";
  ASSERT_EQ(run({"train", pair_recipe_, "--out", model, "-q", "--set", "train.steps=1", "--set", "data.unit=words",
                 "--set", "data.max_vocabulary=8"})
                .status,
            0);
  const std::string line = "number 3 of Gloucester\n";
  const Finished aligned = translate(line, model + " --alignment --nbest 2");
  ASSERT_EQ(aligned.status, 0) << aligned.err;
  EXPECT_EQ(std::count(aligned.out.begin(), aligned.out.end(), '\t'), 4) << aligned.out;
  const Finished as_json = translate(line, model + " --alignment --json");
  const base::Node parsed = json(as_json.out);
  for (const base::Node& link : parsed.at("translations").items().front().at("alignment").items()) {
    EXPECT_LT(link.items()[0].as_int(), 4);
    EXPECT_GE(link.items()[1].as_int(), 0);
  }

  const std::string drawn = model + " --sample --nbest 20 --max-len-b 6 --seed ";
  const Finished first = translate(line, drawn + "1"), again = translate(line, drawn + "1");
  ASSERT_EQ(first.status, 0) << first.err;
  EXPECT_EQ(std::count(first.out.begin(), first.out.end(), '\n'), 20);
  EXPECT_EQ(first.out, again.out);
  EXPECT_NE(first.out, translate(line, drawn + "2").out);
  EXPECT_FALSE(holds(first.out, "<unk>")) << first.out;
  // The second of two lines is drawn as if it came alone after an empty one.
  const std::string both = translate(line + line, model + " --sample --seed 3 --max-len-b 6").out;
  EXPECT_EQ(both.substr(both.find('\n')), translate("\n" + line, model + " --sample --seed 3 --max-len-b 6").out);

  const auto refused = [&](const std::string& arguments, const std::string& words) {
    const Finished outcome = translate(line, model + arguments);
    EXPECT_EQ(outcome.status, 2) << arguments;
    EXPECT_TRUE(holds(outcome.err, words)) << outcome.err;
  };
  refused(" --temperature 2", "add --sample");
  refused(" --sample --beam 2", "without --beam");
  refused(" --sample --temperature 0 --nbest 2", "would be equal");
  refused(" --sample --top-p 0", "top_p");
}

// A model that knows no word writes <unk> wherever it may; each becomes a word of the source.
TEST_F(TranslationRun, UnknownWordsComeFromTheSource) {
  write(folder_ / "pairs.tsv", [] {
    std::string pairs;
    for (int i = 0; i < 400; ++i) pairs += fmt::format("w{} v{}\tx{} y{}\n", i, i + 7, i + 3, i + 9);
    return pairs;
  }());
  const std::string model = folder_ / "model";
  const Finished made = run({"train", pair_recipe_, "--out", model, "-q", "--set", "train.steps=60", "--set",
                             "data.unit=words", "--set", "data.max_vocabulary=3", "--set",
                             "train.optimiser={type=\"adam\", lr=0.01}"});
  ASSERT_EQ(made.status, 0) << made.err;
  const Finished plain = translate("Ada Babbage\n", model),
                 shown = translate("Ada Babbage\n", model + " --unknown '?'");
  ASSERT_TRUE(holds(plain.out, "<unk>")) << plain.out;
  EXPECT_TRUE(holds(shown.out, "?"));
  EXPECT_TRUE(holds(plain.err, "warning: standard input: 2 of 2 words are not in the model's vocabulary")) << plain.err;
  const Finished replaced = translate("Ada Babbage\n", model + " --replace-unknown");
  EXPECT_FALSE(holds(replaced.out, "<unk>")) << replaced.out;
  EXPECT_TRUE(holds(replaced.out, "Ada") || holds(replaced.out, "Babbage")) << replaced.out;
}

TEST_F(TranslationRun, WeightsThatAreNotFiniteAreFoundByName) {
  const std::string model = folder_ / "run";
  ASSERT_EQ(run({"train", pair_recipe_, "--out", model, "-q", "--set", "train.steps=1"}).status, 0);
  const std::string weights = model + "/model/model.safetensors";
  weights::TensorFile file = weights::read_safetensors(weights);
  for (auto& [name, tensor] : file.tensors)
    if (name == "embed.weight") tensor[0][0] = std::numeric_limits<float>::quiet_NaN();
  weights::write_safetensors(weights, file.tensors, file.metadata);
  const Finished refused = translate("number 1 of 2\n", model);
  EXPECT_EQ(refused.status, 2);
  EXPECT_EQ(refused.out, "");
  EXPECT_TRUE(holds(refused.err, "'embed.weight' expected finite numbers")) << refused.err;
}

// The benchmark searches with the engine directly; its BLEU is that of the same sentences by `mnemo eval`.
TEST_F(TranslationRun, TheBenchmarkOfATrainedModelTranslatesAsTheCommandDoes) {
  const std::string plain = folder_ / "plain", memory = folder_ / "memory", pairs = folder_ / "few.tsv";
  const std::vector<std::string> shape = {"--set", "model.preset=transformer_iwslt_de_en", "--set",
                                          "model.backbone.encoder={num_layers=1}"};
  std::vector<std::string> words = {"train",
                                    pair_recipe_,
                                    "--out",
                                    plain,
                                    "-q",
                                    "--set",
                                    "train.steps=200",
                                    "--set",
                                    "train.optimiser={type=\"adam\", lr=0.01}"};
  words.insert(words.end(), shape.begin(), shape.end());
  const Finished trained = run(words);
  ASSERT_EQ(trained.status, 0) << trained.err;
  write(pairs, "number 1 of 2\tZahl 1 von 2\nnumber 7 of 9\tZahl 7 von 9\n");
  const auto bench = [&](const std::string& model) {
    const std::string command = fmt::format(
        "{} translation --model {} --pairs {} --no-peers --repeats 1 --threads 1 "
        "--json > {} 2> {}",
        MNEMO_BINARY_DIR "/mnemo-bench", model, pairs, folder_ / "out", folder_ / "err");
    const int status = std::system(command.c_str());
    return Finished{WEXITSTATUS(status), content(folder_ / "out"), content(folder_ / "err")};
  };
  const Finished measured = bench(plain);
  ASSERT_EQ(measured.status, 0) << measured.err;
  const base::Node rows = json(measured.out).at("results");
  ASSERT_EQ(rows.items().size(), 12u);
  const std::vector<std::vector<std::string>> references = {{"Zahl 1 von 2", "Zahl 7 von 9"}};
  for (int beam : {1, 5}) {
    const Finished translated = translate(
        "number 1 of 2\nnumber 7 of 9\n",
        fmt::format("{} --beam {} --min-len 0 --max-len-a 0 --max-len-b 200", plain, beam));
    ASSERT_EQ(translated.status, 0) << translated.err;
    std::vector<std::string> lines;
    std::istringstream text(translated.out);
    for (std::string line; std::getline(text, line);) lines.push_back(line);
    const double bleu = metrics::corpus_bleu(lines, references).score;
    EXPECT_GT(bleu, 1.0) << "too little trained to show anything";
    for (const char* batch : {"1", "32"}) {
      const std::string work = fmt::format("float32, batch {}, beam {}", batch, beam);
      const auto row = std::find_if(rows.items().begin(), rows.items().end(),
                                    [&](const base::Node& one) { return one.at("work").as_string() == work; });
      ASSERT_NE(row, rows.items().end()) << work;
      EXPECT_NEAR(row->at("bleu").as_double(), bleu, 1e-9) << work;
    }
  }

  ASSERT_EQ(run({"train", pair_recipe_, "--out", memory, "-q", "--set", "train.steps=1"}).status, 0);
  const Finished refused = bench(memory);
  EXPECT_EQ(refused.status, 2);
  EXPECT_TRUE(holds(refused.err, "found another shape")) << refused.err;
}

TEST_F(TranslationRun, AStudyComparesModelsOfPairs) {
  write(folder_ / "study.toml", std::string(kPairRecipe) + R"(
[[study]]
name = "sides"
[[study.variant]]
name = "softmax"
model.backbone.encoder.memory = []
[[study.variant]]
name = "ABC across"
model.backbone.encoder.memory = []
model.backbone.decoder.cross_attention = { type = "abc", num_slots = 3 }
)");
  const std::string out = folder_ / "study";
  const Finished compared = run({"compare", folder_ / "study.toml", "--out", out, "--jobs", "1", "-q"});
  ASSERT_EQ(compared.status, 0) << compared.err;
  const base::Node variants = json(content(out + "/results.json")).at("studies").items()[0].at("variants");
  ASSERT_EQ(variants.items().size(), 2u);
  for (const base::Node& one : variants.items())
    for (const base::Node& result : one.at("runs").items())
      EXPECT_NEAR(result.at("train_tokens_per_second").as_double() * result.at("seconds").as_double(),
                  result.at("tokens").as_double(), 1.0);
  const std::string page = content(out + "/report.html");
  for (const char* part : {"[decoder.cross_attention]", "num_slots = 3", "BLEU"})
    EXPECT_TRUE(holds(page, part)) << part;
}

// By documents: memory goes on inside a document only, however the lines are cut; training resumes exactly.
TEST_F(TranslationRun, DocumentsCarryTheEncodersMemory) {
  std::string pairs;
  for (int i = 0; i < 120; ++i)
    pairs += fmt::format("line {} of {}\tZeile {} von {}\t{}\n", i % 7, i, i % 7, i, i / (3 + i % 2));
  write(folder_ / "pairs.tsv", pairs);
  const std::vector<std::string> settings = {
      "-q",
      "--set",
      "data.document_column=3",
      "--set",
      "data.reset=documents",
      "--set",
      "train.segments_per_step=2",
      "--set",
      "model.backbone.encoder.memory=[{type=\"grc\", cache_len=4, lifetime=\"sequence\"}]"};
  const auto train = [&](const std::string& out, std::vector<std::string> more) {
    std::vector<std::string> words = {"train"};
    words.insert(words.end(), more.begin(), more.end());
    if (more.front() != "--resume") words.insert(words.end(), {"--out", out});
    for (const std::string& word : settings) {
      if (more.front() != "--resume" || word == "-q") words.push_back(word);
    }
    const Finished done = run(words);
    EXPECT_EQ(done.status, 0) << done.err;
  };
  const std::string whole = folder_ / "whole", parts = folder_ / "parts";
  train(whole, {pair_recipe_});
  train(parts, {pair_recipe_, "--set", "train.steps=3"});
  ASSERT_EQ(run({"train", "--resume", parts, "-q", "--set", "train.steps=6"}).status, 0);
  EXPECT_EQ(content(whole + "/model/model.safetensors"), content(parts + "/model/model.safetensors"));
  const base::Node metrics = json(run({"eval", whole, "--part", "valid", "--json"}).out);
  EXPECT_TRUE(metrics.contains("bleu"));

  // One that has learned to look at its source.
  const std::string good = folder_ / "good";
  train(good, {pair_recipe_, "--set", "train.steps=200", "--set", "train.optimiser={type=\"adam\", lr=0.01}"});
  const std::string first = "line 3 of 4\nline 5 of 1\nline 1 of 9\n", second = "line 2 of 2\nline 6 of 0\n";
  const std::string options = good + " --documents --nbest 2 --max-len-b 5 ";
  const std::string both = translate(first + "\n" + second, options).out;
  const std::string one = translate(first, options).out, other = translate(second, options).out;
  EXPECT_EQ(both, one + "\n\n" + other);
  EXPECT_EQ(translate(first + "\n" + second, options + "--batch 1").out, both);
  const std::string exact = translate(first, options + "--json").out;
  const ScoredLines apart(exact + translate(second, options + "--json").out);
  EXPECT_GT(ScoredLines(translate(first + second, options + "--json").out).distance(apart), kRounding)
      << "the memory goes on";
  const ScoredLines lines(translate(first, good + " --nbest 2 --max-len-b 5 --json").out);
  EXPECT_GT(lines.distance(ScoredLines(exact)), kRounding) << "without documents it does not";

  std::vector<std::string> forgets = {"train", pair_recipe_, "--out", folder_ / "forgets"};
  for (const std::string& word : settings) {
    if (word != "-q") forgets.push_back(word);
  }
  forgets.insert(forgets.end(), {"--set", "train.steps=1", "--set", "model.backbone.encoder.memory=[]"});
  const Finished forgetful = run(forgets);
  EXPECT_EQ(forgetful.status, 0);
  EXPECT_TRUE(holds(forgetful.err, "nothing is carried from pair to pair")) << forgetful.err;

  const std::string plain = folder_ / "plain";
  ASSERT_EQ(run({"train", pair_recipe_, "--out", plain, "-q", "--set", "train.steps=1"}).status, 0);
  const Finished refused = translate(first, plain + " --documents");
  EXPECT_EQ(refused.status, 2);
  EXPECT_TRUE(holds(refused.err, "no memory that goes from sentence to sentence")) << refused.err;
  const Finished undivided = run({"train", pair_recipe_, "--out", folder_ / "x", "--set", "data.reset=documents"});
  EXPECT_TRUE(holds(undivided.err, "requires document_column")) << undivided.err;
}

// Memories around the encoder go from sentence to sentence of a document alone; long sources are read by segments.
TEST_F(TranslationRun, MemoriesAroundTheEncoderGoThroughDocuments) {
  std::string pairs;
  for (int i = 0; i < 120; ++i)
    pairs += fmt::format("line {} of {}\tZeile {} von {}\t{}\n", i % 7, i, i % 7, i, i / (3 + i % 2));
  write(folder_ / "pairs.tsv", pairs);
  const std::string first = "line 3 of 4\nline 5 of 1\nline 1 of 9\n", second = "line 2 of 2\nline 6 of 0\n";
  const std::string
      recurrent = "{type=\"recurrent_tokens\", num_mem_tokens=2, layout=\"encoder\", memory_position=\"front\"}",
      cache = "{type=\"segment_cache\", mem_len=6}";
  for (const std::string& memories : {recurrent, cache, recurrent + ", " + cache}) {
    const auto train = [&](const std::string& out, const std::string& steps) {
      const Finished done = run({"train", pair_recipe_, "--out", out, "-q", "--set", "data.document_column=3", "--set",
                                 "data.reset=documents", "--set", "train.segments_per_step=2", "--set",
                                 "model.backbone.encoder.segment_size=8", "--set",
                                 "model.backbone.encoder.memory=[" + memories + "]", "--set", "train.steps=" + steps,
                                 "--set", "train.optimiser={type=\"adam\", lr=0.01}"});
      EXPECT_EQ(done.status, 0) << done.err;
    };
    const std::string whole = folder_ / "whole", parts = folder_ / "parts";
    fs::remove_all(whole);
    fs::remove_all(parts);
    train(whole, "150");
    train(parts, "70");
    ASSERT_EQ(run({"train", "--resume", parts, "-q", "--set", "train.steps=150"}).status, 0);
    EXPECT_EQ(content(whole + "/model/model.safetensors"), content(parts + "/model/model.safetensors")) << memories;
    EXPECT_TRUE(json(run({"eval", whole, "--part", "valid", "--json"}).out).contains("bleu"));
    const base::Node facts = json(run({"inspect", whole, "--json"}).out);
    EXPECT_GE(facts.at("full_state_bytes").as_int(), memories == recurrent ? 2 * 16 * 4 : 6 * 16 * 4) << memories;

    const std::string options = whole + " --documents --json --alignment --max-len-b 5 ";
    const std::string one = translate(first, options).out, other = translate(second, options).out;
    EXPECT_EQ(std::count(one.begin(), one.end(), '\n'), 3);
    const std::string empty = translate("\n", options).out;
    const ScoredLines apart(one + empty + other), both(translate(first + "\n" + second, options).out);
    EXPECT_LE(both.distance(apart), kRounding) << memories << ": a document begins without memory\n" << both.text;
    const ScoredLines alone(translate(first + "\n" + second, options + "--batch 1").out);
    EXPECT_LE(alone.distance(both), kRounding) << memories << '\n' << alone.text;
    const ScoredLines joined(translate(first + second, options).out);
    EXPECT_GT(joined.distance(ScoredLines(one + other)), kRounding) << memories << ": the memory goes on";
  }
}

// Lines that come slowly through a pipe are answered as they come.
TEST_F(TranslationRun, APipeIsTranslatedAsItComes) {
  const std::string model = folder_ / "model", out = folder_ / "out";
  ASSERT_EQ(run({"train", pair_recipe_, "--out", model, "-q", "--set", "train.steps=1"}).status, 0);
  write(out, "");
  // The second line is only written once the answer to the first is there.
  const std::string command = fmt::format(
      "(echo 'number 3'; for i in $(seq 600); do [ -s {0} ] && break; sleep 0.1; done; wc -l < {0} > {0}.early; "
      "echo 'number 4'; printf 'number 5') | {1} translate {2} > {0}",
      out, kBinary, model);
  ASSERT_EQ(std::system(command.c_str()), 0);
  EXPECT_EQ(content(out + ".early"), "1\n");
  const std::string all = content(out);
  EXPECT_EQ(std::count(all.begin(), all.end(), '\n'), 3);
}

TEST_F(TranslationRun, WhatDoesNotFitIsRefused) {
  const std::string text = trained("text"), model = folder_ / "model";
  ASSERT_EQ(run({"train", pair_recipe_, "--out", model, "-q", "--set", "train.steps=1"}).status, 0);
  const auto refused = [&](const Finished& outcome, const std::string& words) {
    EXPECT_EQ(outcome.status, 2) << words;
    EXPECT_TRUE(holds(outcome.err, words)) << "expected: " << words << "\nfound: " << outcome.err;
  };
  refused(translate("a\n", text), "expected a translation model, found a model of texts");
  refused(translate("a\n\xff\n", model), "standard input:2");
  refused(translate("a\n", model + " --beam 3 --nbest 4"), "--nbest: expected 1 to the beam's 3");
  refused(translate("a\n", model + " --beam 1000"), "beam_size: expected at most the vocabulary's");
  refused(translate("a\n", model + " --length-penalty -1"), "length_penalty");
  refused(translate("a\n", model + " --min-len 201"), "--min-len: expected at most 8, the tokens");
  refused(run({"generate", model, "--prompt", "a"}), "expected a model of texts, found a translation model");
  write(folder_ / "no_model.toml", "[data]\ntype = \"pairs\"\ntrain = \"pairs.tsv\"\n");
  refused(run({"train", folder_ / "no_model.toml", "--out", folder_ / "a"}), "needs a translation model");
  refused(run({"train", pair_recipe_, "--out", folder_ / "b", "--set", "data.joint=false"}), "needs one vocabulary");
  refused(run({"train", pair_recipe_, "--out", folder_ / "c", "--set",
               "model.backbone.decoder.cross_attention={type=\"relative\"}"}),
          "cannot attend to an encoder's output");
  write(folder_ / "text.toml", "[model]\nbackbone = { type = \"encoder_decoder\" }\n");
  refused(run({"train", folder_ / "text.toml", "--data", text_, "--out", folder_ / "d"}),
          "needs a model of texts, found model.backbone.type = \"encoder_decoder\", a translation model");
  write(folder_ / "pairs.tsv", "one side\n");
  refused(run({"train", pair_recipe_, "--out", folder_ / "e"}), "pairs.tsv:1");
}

// A line gives a line, or an error before anything is written.
TEST_F(TranslationRun, LinesAndFilesThatHaveNothingOrTooMuch) {
  const std::string model = folder_ / "model", vocabulary = model + "/source.vocabulary.json";
  ASSERT_EQ(run({"train", pair_recipe_, "--out", folder_ / "run", "-q", "--set", "train.steps=1"}).status, 0);
  fs::copy(folder_ / "run" + "/model", model);
  const auto refused = [&](const Finished& outcome, const std::string& words) {
    EXPECT_EQ(outcome.status, 2) << words;
    EXPECT_TRUE(holds(outcome.err, words)) << "expected: " << words << "\nfound: " << outcome.err;
    EXPECT_EQ(outcome.out, "") << words;
  };
  const Finished nothing = translate("", model);
  EXPECT_EQ(nothing.status, 0) << nothing.err;
  EXPECT_EQ(nothing.out, "");
  std::string line;
  while (line.size() < 100'000) line += "number 3 ";
  const Finished cut = translate("\n \n" + line + "\n", model + " --max-len-b 3 --beam 1 --alignment");
  EXPECT_EQ(cut.status, 0) << cut.err;
  EXPECT_TRUE(holds(cut.err, "cut to 1024")) << cut.err;
  EXPECT_EQ(cut.out.substr(0, 2), "\n\n");
  EXPECT_EQ(std::count(cut.out.begin(), cut.out.end(), '\n'), 3);
  refused(translate("number 3\n" + std::string(100'000, 'x') + "\n", model), "standard input:2");
  refused(translate(std::string(2'000'000, 'x'), model), "expected lines of at most");

  const std::string words = content(vocabulary), word = "\"von\",";
  const size_t at = words.find(word), end = words.rfind(']');
  ASSERT_TRUE(at != std::string::npos && end != std::string::npos);
  write(vocabulary, std::string(words).insert(end, ", \"another\""));
  refused(translate("number 3\n", model), "expected a source vocabulary of ");
  write(vocabulary, std::string(words).erase(at, word.size()));
  refused(translate("number 3\n", model), "expected a source vocabulary of ");
  fs::remove(vocabulary);
  refused(translate("number 3\n", model), "expected vocabulary files source.*");
  refused(run({"train", pair_recipe_, "--out", folder_ / "large", "--set", "model.embedding.vocab_size=500"}),
          "expected the data's");

  const auto refused_pairs = [&](const std::string& pairs, const std::string& words) {
    write(folder_ / "pairs.tsv", pairs);
    refused(run({"train", pair_recipe_, "--out", folder_ / "none"}), words);
    EXPECT_FALSE(fs::exists(folder_ / "none")) << words;
  };
  refused_pairs("", "expected at least one pair, found none\n");
  refused_pairs("a\t\n\tb\n", "left out: 2 with an empty side");
  refused_pairs("a\tb\n\xff\tb\n", "pairs.tsv:2");
}

}  // namespace
}  // namespace mnemo
