// Published encoders that learn to classify texts, and commands that use them.
#include <gtest/gtest.h>
#include <torch/types.h>

#include <algorithm>
#include <filesystem>

#include "distributed/group.h"
#include "tests/integration/text_training.h"
#include "weights/safetensors.h"

namespace mnemo {
namespace {

using namespace test;

const std::string kClassifier = R"(
[data]
type = "text_classification"
metric = "f1"
[model]
head = { type = "classification", pool = "first", pooler = "tanh" }
backbone = { type = "encoder", dropout = 0.0 }
)" + train_table(60, 16, 0.005);

TEST_F(TextTraining, AnEncoderLearnsToClassifyTexts) {
  const std::string bert = published("bert_mlm"), texts = table("train.tsv", false);
  const std::vector<std::string> settings = {"model.from=" + bert, "data.tokenizer=" + bert, "data.train=" + texts,
                                             "data.valid=" + texts};
  const std::string out = folder_ / "run";
  const Finished trained = train(kClassifier, settings, out);
  ASSERT_EQ(trained.status, 0) << trained.err;
  EXPECT_TRUE(holds(trained.err, "fresh: head.pooler.weight")) << trained.err;
  EXPECT_FALSE(holds(trained.out, "mnemo generate")) << trained.out;
  const base::Node found = metrics_of(out);
  EXPECT_GE(found.at("f1").as_double(), 0.95);
  EXPECT_GE(found.at("matthews").as_double(), 0.9);
  EXPECT_EQ(found.at("predictions").as_int(), 64);
  EXPECT_EQ(content(out + "/model/classes.txt"), "0\n1\n");
  EXPECT_TRUE(std::filesystem::exists(out + "/model/vocab.txt"));
  EXPECT_FALSE(holds(content(out + "/model/README.md"), "text-generation"));
  EXPECT_EQ(classes_of(out, "the film was good w13\n"), std::vector<std::string>{"1"});
  if (distributed::available()) {  // a job of one rank is one process
    const Finished one = run({"classify", out, folder_ / "lines.txt", "--processes", "1"});
    EXPECT_EQ(one.status, 0) << one.err;
    EXPECT_TRUE(one.out.starts_with("1\t")) << one.out;
  }
  const Finished wide = run({"classify", out, folder_ / "lines.txt", "--batch", "4097"});
  EXPECT_TRUE(holds(wide.err, "classify: --batch: expected 1 to 4096, found 4097")) << wide.err;
  const Finished shown = run({"data", folder_ / "recipe.toml", "--set", "data.train=" + texts, "-n", "1"});
  EXPECT_EQ(shown.status, 0) << shown.err;
  EXPECT_TRUE(holds(shown.out, "train: 64 texts, 32 0, 32 1\n")) << shown.out;
  EXPECT_TRUE(holds(shown.out, "\n0\tthe film was bad w13\n")) << shown.out;
  // Data may change afterwards, and with them what a class's number means.
  write(out + "/model/classes.txt", "1\n0\n");
  const Finished other = run({"eval", out});
  EXPECT_EQ(other.status, 2);
  EXPECT_TRUE(holds(other.err, "class 0 of the model is \"1\", of the data \"0\"")) << other.err;
}

// Numbers of words are those of the model, whatever the run's data are now.
TEST_F(TextTraining, ARunWhoseWordsHaveChangedIsNotMeasured) {
  const std::string texts = table("train.tsv", false);
  const std::string recipe = R"(
[data]
type = "text_classification"
unit = "words"
valid_fraction = 0.25
[model]
head = { type = "classification", pool = "mean" }
backbone = { type = "encoder", num_layers = 1, dim = 8, num_heads = 2 }
)" + train_table(2, 16, 0.005);
  const std::string out = folder_ / "run";
  const Finished trained = train(recipe, {"data.train=" + texts, "data.valid=" + texts}, out);
  ASSERT_EQ(trained.status, 0) << trained.err;
  EXPECT_EQ(run({"eval", out}).status, 0);
  EXPECT_EQ(run({"inspect", out, "--sample", "0"}).status, 0);
  // A part of its own is held out still where texts come twice.
  std::string more = content(texts);
  more += more.substr(more.find('\n') + 1);
  const std::string valid = folder_ / "valid.tsv";
  std::filesystem::copy(texts, valid);
  ASSERT_EQ(train(recipe, {"data.train=" + texts, "data.valid=" + valid}, folder_ / "other").status, 0);
  write(texts, more);
  const Finished twice = run({"eval", folder_ / "other"});
  EXPECT_EQ(twice.status, 0) << twice.err;
  EXPECT_FALSE(holds(twice.err, "have changed")) << twice.err;
  for (int i = 0; i < 90; ++i) more += "good good good w13\t1\n";
  write(texts, more);
  const Finished changed = run({"eval", out}), seen = run({"inspect", out, "--sample", "0"});
  EXPECT_EQ(changed.status, 2);
  EXPECT_TRUE(holds(changed.err, "their vocabulary is not the model's")) << changed.err;
  EXPECT_EQ(seen.status, 2);
  EXPECT_TRUE(holds(seen.err, "its vocabulary is not that of the recipe's data")) << seen.err;
}

TEST_F(TextTraining, AnEncoderWithoutAHeadGetsOne) {
  const std::string bert = published("bert_mlm_published_names"), texts = table("train.tsv", false);
  base::Node config = base::parse_json(content(bert + "/config.json"), "config.json");
  config.set("architectures", base::Node::array({"BertModel"}));
  write(bert + "/config.json", base::to_json(config));
  const std::vector<std::string> settings = {"model.from=" + bert, "data.tokenizer=" + bert, "data.train=" + texts,
                                             "data.valid=" + texts};
  const Finished trained = train(kClassifier, settings, folder_ / "run");
  ASSERT_EQ(trained.status, 0) << trained.err;
  EXPECT_TRUE(holds(trained.err, "fresh: head.classifier.weight, head.classifier.bias\n")) << trained.err;
  EXPECT_GE(metrics_of(folder_ / "run").at("accuracy").as_double(), 0.95);

  const auto with = [&](const std::vector<std::string>& more, const std::string& out) {
    std::vector<std::string> all = settings;
    all.insert(all.end(), more.begin(), more.end());
    return train(kClassifier, all, folder_ / out);
  };
  const Finished frozen = with({"train.lora={rank=2,targets=[\"*.attn.?.weight\"]}", "train.steps=1"}, "frozen");
  EXPECT_EQ(frozen.status, 0) << frozen.err;
  EXPECT_TRUE(holds(frozen.err, "LoRA: also trains fresh weights: head.classifier.weight, head.classifier.bias"))
      << frozen.err;
  const Finished smaller = with({"model.backbone.token_types=0", "train.steps=1"}, "smaller");
  EXPECT_TRUE(holds(smaller.err, "not used: backbone.token_types.weight")) << smaller.err;
  const Finished longer = with({"model.segment_size=100", "data.max_length=90"}, "longer");
  EXPECT_EQ(longer.status, 0) << "the texts are short: " << longer.err;
  std::string words;
  for (int i = 0; i < 90; ++i) words += " good";
  write(folder_ / "long.tsv", "sentence\tlabel\nthe film" + words + "\t0\nthe film\t1\n");
  const Finished outside = with({"data.train=" + (folder_ / "long.tsv"), "model.segment_size=100"}, "outside");
  EXPECT_EQ(outside.status, 2);
  EXPECT_TRUE(holds(outside.err, "'model.segment_size': expected at most ")) << outside.err;
  EXPECT_FALSE(std::filesystem::exists(folder_ / "outside"));

  const Finished kept = run({"convert", bert, "--to", "mnemo", "--out", folder_ / "ours"}),
                 back = run({"convert", folder_ / "ours", "--to", "huggingface_bert", "--out", folder_ / "back"});
  ASSERT_EQ(kept.status, 0) << kept.err;
  ASSERT_EQ(back.status, 0) << back.err;
  EXPECT_TRUE(holds(content(folder_ / "back/config.json"), "\"BertModel\""));
  const auto first = weights::read_safetensors(folder_ / "ours/model.safetensors"),
             again = weights::read_safetensors(folder_ / "back/model.safetensors");
  EXPECT_TRUE(at::equal(again.at("bert.pooler.dense.weight", "back"), first.at("head.pooler.weight", "ours")));
  EXPECT_EQ(again.tensors.size(), first.tensors.size());
  const Finished refused = run({"convert", bert, "--memory",
                                "recurrent_tokens,layout=encoder,num_mem_tokens=2,cls_token=2,sep_token=3,pad_token=0",
                                "--out", folder_ / "no"});
  EXPECT_EQ(refused.status, 2);
  EXPECT_TRUE(holds(refused.err, "the model has no head to train;")) << refused.err;
}

TEST_F(TextTraining, NamesOfClassesGoAlong) {
  const std::string ours = folder_ / "ours", back = folder_ / "back", t2r = folder_ / "t2r";
  ASSERT_EQ(run({"convert", published("bert_cls"), "--to", "mnemo", "--out", ours}).status, 0);
  const std::string names = "bad\nmiddling\ngood\nbest\n";
  write(ours + "/classes.txt", names);
  ASSERT_EQ(run({"convert", ours, "--to", "huggingface_bert", "--out", back}).status, 0);
  const base::Node labels = base::parse_json(content(back + "/config.json"), "config.json").at("id2label");
  EXPECT_EQ(labels.at("1"), base::Node("middling"));
  ASSERT_EQ(run({"convert", ours, "--to", "t2r", "--out", t2r}).status, 0);
  EXPECT_EQ(content(t2r + "/classes.txt"), names);
  write(ours + "/classes.txt", "bad\ngood\n");
  const Finished refused = run({"convert", ours, "--to", "huggingface_bert", "--out", back});
  EXPECT_EQ(refused.status, 2);
  EXPECT_TRUE(holds(refused.err, "classes.txt: expected 4 lines, found 2")) << refused.err;
}

TEST_F(TextTraining, APublishedClassifierStartsOneOfOtherClasses) {
  const std::string bert = published("bert_cls"), two = table("train.tsv", false);  // four classes, and two labels
  const auto started = [&](const std::vector<std::string>& more, const std::string& out) {
    std::vector<std::string> settings = {"model.from=" + bert, "data.tokenizer=" + bert, "data.metric=accuracy"};
    settings.insert(settings.end(), more.begin(), more.end());
    return train(kClassifier, settings, folder_ / out);
  };
  const std::string fresh = "fresh: head.classifier.weight, head.classifier.bias\n";
  const Finished trained = started({"data.train=" + two, "data.valid=" + two}, "run");
  ASSERT_EQ(trained.status, 0) << trained.err;
  EXPECT_TRUE(holds(trained.err, fresh)) << trained.err;
  EXPECT_GE(metrics_of(folder_ / "run").at("accuracy").as_double(), 0.9);
  const Finished left = started({"data.train=" + two, "model.head.num_classes=0", "train.steps=1"}, "left");
  EXPECT_EQ(left.status, 0) << left.err;
  EXPECT_TRUE(holds(left.err, fresh)) << left.err;
  const Finished refused = started({"data.train=" + two, "model.head.num_classes=4", "train.steps=1"}, "refused");
  EXPECT_EQ(refused.status, 2);
  EXPECT_TRUE(holds(refused.err, "'model.head.num_classes': expected 0 or the data's 2, found 4")) << refused.err;

  std::string texts = "body\tlabel\n";
  for (int i = 0; i < 32; ++i) texts += "the film was w" + std::to_string(13 + i % 4) + "\t" + "abcd"[i % 4] + "\n";
  write(folder_ / "four.tsv", texts);
  const auto of_names = [&](const std::string& names, const std::string& out) {
    base::Node config = base::parse_json(content(bert + "/config.json"), "config.json"), labels = base::Node::table();
    for (size_t i = 0; i < names.size(); ++i) labels.set(std::to_string(i), names.substr(i, 1));
    config.set("id2label", labels);
    write(bert + "/config.json", base::to_json(config));
    const Finished done = started({"data.train=" + (folder_ / "four.tsv"), "data.text_column=body", "train.steps=1"},
                                  out);
    EXPECT_EQ(done.status, 0) << done.err;
    EXPECT_FALSE(holds(done.err, "fresh")) << done.err;
    return done.err;
  };
  EXPECT_FALSE(holds(of_names("abcd", "same"), "its classes"));
  EXPECT_TRUE(holds(of_names("dcba", "turned"), "classes are reordered"));
  const std::string other = of_names("wxyz", "other");
  EXPECT_TRUE(holds(other, "other names: 'a', 'b', 'c', 'd'")) << other;
  const auto weights_in = [&](const std::string& out) {
    return weights::read_safetensors(folder_ / out + "/model/model.safetensors").at("head.classifier.weight", out);
  };
  EXPECT_FALSE(at::equal(weights_in("same"), weights_in("turned")));
  EXPECT_TRUE(at::equal(weights_in("same"), weights_in("other")));
}

TEST_F(TextTraining, PairsAndTheirTypes) {
  const std::string bert = published("bert_mlm");
  std::string rte = "index\tsentence1\tsentence2\tlabel\n";
  for (int i = 0; i < 32; ++i)
    rte += std::to_string(i) + "\tthe film was " + (i % 4 < 2 ? "good" : "bad") + "\ta " +
           (i % 2 == 1 ? "good" : "bad") + " film\t" + ((i % 4 < 2) == (i % 2 == 1) ? "" : "not_") + "entailment\n";
  write(folder_ / "rte.tsv", rte);
  const Finished trained = train(kClassifier,
                                 {"model.from=" + bert, "data.tokenizer=" + bert, "data.train=" + (folder_ / "rte.tsv"),
                                  "data.valid=" + (folder_ / "rte.tsv"), "train.steps=200", "data.metric=accuracy"},
                                 folder_ / "run");
  ASSERT_EQ(trained.status, 0) << trained.err;
  EXPECT_GE(metrics_of(folder_ / "run").at("accuracy").as_double(), 0.9);
  EXPECT_EQ(content(folder_ / "run/model/classes.txt"), "entailment\nnot_entailment\n");
  // A file of its own, and texts without labels.
  EXPECT_EQ(metrics_of(folder_ / "run", {"--data", folder_ / "rte.tsv"}).at("nll"),
            metrics_of(folder_ / "run").at("nll"));
  EXPECT_EQ(classes_of(folder_ / "run", "the film was good\ta good film\nthe film was good\ta bad film\n"),
            (std::vector<std::string>{"entailment", "not_entailment"}));
  const auto refused = [&](const std::vector<std::string>& words, const std::string& part) {
    const Finished found = run(words);
    EXPECT_EQ(found.status, 2) << found.err;
    EXPECT_TRUE(holds(found.err, part)) << found.err;
  };
  const std::string lines = folder_ / "lines.txt", model = folder_ / "run";
  refused({"classify", model, lines, "--broken", "skip"}, "--task and --broken go with models of images");
  refused({"classify", model, lines, "--top", "0"}, "--top: expected at least 1");
  write(lines, "good\tbad\tfilm\n");
  refused({"classify", model, lines}, "lines.txt:1: expected a text, or two with a tab between them");
  // A line without words has no class and stays where it is; words that the vocabulary lacks are counted once.
  write(lines, "good\n \nbad \xe2\x98\x83\n\n");
  const Finished blank = run({"classify", model, lines});
  ASSERT_EQ(blank.status, 0) << blank.err;
  EXPECT_EQ(std::count(blank.out.begin(), blank.out.end(), '\n'), 4) << blank.out;
  EXPECT_TRUE(holds(blank.out, "\n\n") && blank.out.ends_with("\n\n")) << blank.out;
  EXPECT_TRUE(holds(blank.err, "lines.txt: 1 of 3 pieces are not in the model's vocabulary")) << blank.err;
  write(lines, "good\n\xff\n");
  refused({"classify", model, lines}, "lines.txt:2: invalid UTF-8");
  refused({"classify", kFolders + "bert_cls", lines}, "found one without a tokenizer");
  refused({"classify", kFolders + "gpt2", lines}, "expected a model that classifies texts");
  write(folder_ / "three.tsv", "sentence\tlabel\ngood\t2\n");
  refused({"eval", model, "--data", folder_ / "three.tsv"}, "expected a label of 0, 1");
}

TEST_F(TextTraining, LabelsOfAFileAreMatchedWithThoseOfTheModel) {
  const std::string bert = published("bert_cls"), out = folder_ / "run";
  std::string texts = "body\tlabel\n", turned = "body\tlabel\n", other = turned;
  for (int i = 0; i < 32; ++i) {
    const std::string word = i % 2 == 1 ? "good" : "bad";
    texts += "the film was " + word + "\t" + (i % 2 == 1 ? "fine" : "poor") + "\n";
    turned += "the film was " + word + "\t" + (i % 2 == 1 ? "poor" : "fine") + "\n";
    other += "the film was " + word + "\t" + (i % 2 == 1 ? "1" : "2") + "\n";
  }
  write(folder_ / "texts.tsv", texts);
  write(folder_ / "turned.tsv", turned);
  write(folder_ / "other.tsv", other);
  write(folder_ / "one.tsv", "body\tlabel\nthe film was bad\tpoor\n");
  const Finished trained = train(kClassifier,
                                 {"model.from=" + bert, "data.tokenizer=" + bert, "data.metric=accuracy",
                                  "data.train=" + (folder_ / "texts.tsv"), "data.text_column=body"},
                                 out);
  ASSERT_EQ(trained.status, 0) << trained.err;
  const auto accuracy = [&](const char* file) {
    return metrics_of(out, {"--data", folder_ / file}).at("accuracy").as_double();
  };
  EXPECT_EQ(accuracy("texts.tsv"), 1.0);
  EXPECT_EQ(accuracy("turned.tsv"), 0.0);
  EXPECT_EQ(accuracy("one.tsv"), 1.0) << "by its name, though it is the file's first";
  EXPECT_EQ(accuracy("other.tsv"), 1.0) << "other names are matched by order";
}

TEST_F(TextTraining, ARecurrentMemoryCarriesTheLabelThroughTheSegments) {
  const std::string bert = published("bert_mlm"), texts = table("long.tsv", true);
  std::vector<std::string> settings = {"model.from=" + bert,
                                       "data.tokenizer=" + bert,
                                       "data.train=" + texts,
                                       "data.valid=" + texts,
                                       "data.max_length=12",
                                       "data.align=left",
                                       "data.loss=every",
                                       "model.segment_size=4",
                                       "train.steps=150",
                                       "model.memory=[{type=\"recurrent_tokens\",layout=\"encoder\",num_mem_tokens=2,"
                                       "cls_token=2,sep_token=3,pad_token=0}]"};
  const Finished trained = train(kClassifier, settings, folder_ / "run");
  ASSERT_EQ(trained.status, 0) << trained.err;
  EXPECT_GE(metrics_of(folder_ / "run").at("accuracy").as_double(), 0.9);
  EXPECT_EQ(metrics_of(folder_ / "run", {"--data", texts}).at("nll"), metrics_of(folder_ / "run").at("nll"));
  EXPECT_EQ(classes_of(folder_ / "run", "good w20 the a was film the a was .\nbad w20 the a was film the a was .\n"),
            (std::vector<std::string>{"1", "0"}));
  // Without a memory the last segment does not know the first.
  settings.pop_back();
  const Finished refused = train(kClassifier, settings, folder_ / "none");
  EXPECT_EQ(refused.status, 2);
  EXPECT_TRUE(holds(refused.err, "expected at most model.segment_size = 4, found 12")) << refused.err;
}

TEST_F(TextTraining, MistakesAreToldWithStatusTwo) {
  const std::string bert = published("bert_mlm"), texts = table("train.tsv", false);
  write(folder_ / "bad.tsv", "sentence\tlabel\nfine\t3\n");
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"data.train=" + (folder_ / "bad.tsv")}, "bad.tsv:2: expected a label of 0, 1, found \"3\""},
      {{"data.train=" + (folder_ / "none.tsv")}, "none.tsv"},
      {{"data.train=" + texts, "data.align=left"}, "'data.align': the model has no memory, so every text is one"},
      {{"data.train=" + texts, "data.loss=every"}, "'data.loss': the model has no memory, so every text is one"},
      {{"data.train=" + texts, "data.label_column=class"}, "'data.text_column': expected the column of the text"},
      {{"data.train=" + texts, "data.metric=\"f1\"", "data.labels=[\"0\",\"1\",\"2\"]"}, "'data.metric'"},
      {{"data.train=" + texts, "data.tokenizer=" + (folder_ / "none")}, "none"},
  };
  for (const auto& [more, part] : cases) {
    std::vector<std::string> settings = {"model.from=" + bert, "data.tokenizer=" + bert};
    settings.insert(settings.end(), more.begin(), more.end());
    const Finished refused = train(kClassifier, settings, folder_ / "refused");
    EXPECT_EQ(refused.status, 2) << refused.err;
    EXPECT_TRUE(holds(refused.err, part)) << refused.err;
  }
}

TEST_F(TextTraining, LowRankUpdatesLieInASmallFile) {
  const std::string bert = published("bert_cls"), out = folder_ / "run";
  std::string table = "body\tlabel\n";
  for (int i = 0; i < 32; ++i)
    table += "the film was " + std::string(i % 2 == 1 ? "good" : "bad") + "\t" + std::to_string(i % 4) + "\n";
  write(folder_ / "t.tsv", table);
  const Finished trained = train(
      kClassifier,
      {"model.from=" + bert, "data.tokenizer=" + bert, "data.train=" + (folder_ / "t.tsv"), "data.text_column=body",
       "data.metric=accuracy", "train.lora={rank=2,targets=[\"*.attn.?.weight\"]}",
       "train.only=[\"head.classifier.*\"]", "train.steps=20"},
      out);
  ASSERT_EQ(trained.status, 0) << trained.err;
  EXPECT_TRUE(holds(trained.err, "trains ")) << trained.err;
  EXPECT_FALSE(holds(trained.err, "with random initial values")) << trained.err;
  const Finished merged = run({"convert", bert, "--lora", out + "/lora.safetensors", "--out", folder_ / "merged"});
  ASSERT_EQ(merged.status, 0) << merged.err;
  const auto whole = weights::read_safetensors(out + "/model/model.safetensors"),
             again = weights::read_safetensors(folder_ / "merged/model.safetensors"),
             small = weights::read_safetensors(out + "/lora.safetensors");
  EXPECT_EQ(small.tensors.size(), 2U * 2 * 4 + 2);
  for (const auto& [name, tensor] : whole.tensors)
    EXPECT_TRUE(at::allclose(again.at(name, "merged"), tensor, 1e-6, 1e-7)) << name;
  const Finished twice = run(
      {"convert", folder_ / "merged", "--lora", out + "/lora.safetensors", "--out", folder_ / "twice"});
  EXPECT_EQ(twice.status, 2);
  EXPECT_TRUE(holds(twice.err, "found another, or one that it is merged into already")) << twice.err;
  // As an adapter of PEFT it gives the same model.
  const Finished written = run(
      {"convert", bert, "--lora", out + "/lora.safetensors", "--to", "peft", "--out", folder_ / "adapter"});
  ASSERT_EQ(written.status, 0) << written.err;
  const Finished read = run({"convert", bert, "--lora", folder_ / "adapter", "--out", folder_ / "read"});
  ASSERT_EQ(read.status, 0) << read.err;
  const auto by_peft = weights::read_safetensors(folder_ / "read/model.safetensors");
  for (const auto& [name, tensor] : again.tensors)
    EXPECT_TRUE(at::allclose(by_peft.at(name, "read"), tensor, 1e-5, 1e-6)) << name;
  const Finished refused = run({"convert", bert, "--lora", bert + "/model.safetensors", "--out", folder_ / "no"});
  EXPECT_EQ(refused.status, 2);
  EXPECT_TRUE(holds(refused.err, "lora_scale")) << refused.err;
}

}  // namespace
}  // namespace mnemo
