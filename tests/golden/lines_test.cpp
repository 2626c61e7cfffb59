// Every JSON-lines file of tests/golden/data: scores within 1e-9, everything else equal. And files with a wrong value,
// or that are of no known kind.
#include "tests/verify/lines.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/file_io.h"
#include "tests/support/expect_error.h"
#include "tests/support/temporary_folder.h"

namespace mnemo {
namespace {

const std::string kFolder = MNEMO_SOURCE_DIR "/tests/golden/data/text_tools/";

std::string first_line(const std::string& name) {
  const std::string content = base::read_file(kFolder + name);
  return content.substr(0, content.find('\n') + 1);
}

std::string changed_lines(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

class Lines : public testing::TestWithParam<const char*> {};

TEST_P(Lines, AreWhatThisBuildComputes) {
  const verify::LinesReport report = verify::verify_lines(kFolder + GetParam());
  ASSERT_GE(report.lines, 14);
  for (const auto& field : report.fields) EXPECT_EQ(field.wrong, 0) << field.name << ": " << field.first;
}

INSTANTIATE_TEST_SUITE_P(Files, Lines, testing::Values("bleu.jsonl", "chrf.jsonl", "metrics.jsonl"),
                         [](const auto& info) {
                           return std::string(info.param).substr(0, std::string(info.param).find('.'));
                         });

class TokenizerLines : public testing::TestWithParam<const char*> {};

TEST_P(TokenizerLines, AreWhatTheTokenizerOfTheirFolderGives) {
  const std::string folder = kFolder + "tokenizer_" + GetParam();
  const verify::LinesReport report = verify::verify_lines(folder + "/strings.jsonl", folder);
  ASSERT_GE(report.lines, 80);
  for (const auto& field : report.fields) EXPECT_EQ(field.wrong, 0) << field.name << ": " << field.first;
}

INSTANTIATE_TEST_SUITE_P(Files, TokenizerLines,
                         testing::Values("bert_cased", "bert_uncased", "gpt2_roberta", "t5", "albert"),
                         [](const auto& info) { return std::string(info.param); });

TEST(LinesFile, OfATokenizerNeedsItsFolder) {
  const std::string file = kFolder + "tokenizer_albert/strings.jsonl", other = kFolder + "tokenizer_bert_cased";
  test::expect_error<base::InputError>([&] { verify::verify_lines(file); }, {file, "expected --tokenizer FOLDER"});
  test::expect_error<base::InputError>([&] { verify::verify_lines(kFolder + "metrics.jsonl", other); },
                                       {"metrics.jsonl", "need no --tokenizer"});
  const verify::LinesReport report = verify::verify_lines(kFolder + "tokenizer_bert_uncased/strings.jsonl", other);
  EXPECT_FALSE(report.passed());
  EXPECT_TRUE(report.fields.at(0).first.starts_with("line 1: ids: expected [")) << report.fields.at(0).first;
}

TEST(LinesFile, AWrongValueIsNamedByLineAndField) {
  const test::TemporaryFolder folder;
  const auto first_of = [&](const std::string& name, const std::string& from, const std::string& to,
                            const std::string& field) {
    const std::string path = folder / "wrong.jsonl";
    base::write_file_atomic(path, first_line(name) + changed_lines(first_line(name), from, to));
    const verify::LinesReport report = verify::verify_lines(path);
    EXPECT_FALSE(report.passed());
    for (const auto& one : report.fields) {
      EXPECT_EQ(one.wrong, one.name == field ? 1 : 0) << one.name << ": " << one.first;
      if (one.name == field) return one.first;
    }
    return std::string("no such field");
  };
  EXPECT_EQ(first_of("metrics.jsonl", "\"accuracy\": 0.925", "\"accuracy\": 0.92500001", "accuracy"),
            "line 2: accuracy: expected 0.92500001, found 0.925");
  EXPECT_EQ(first_of("metrics.jsonl", "\"accuracy\": 0.925", "\"accuracy\": null", "accuracy"),
            "line 2: accuracy: expected null, found 0.925");
  base::write_file_atomic(folder / "near.jsonl", changed_lines(first_line("metrics.jsonl"), "0.925", "0.9250000001"));
  EXPECT_TRUE(verify::verify_lines(folder / "near.jsonl").passed());
  const std::string counts = first_of("bleu.jsonl", "\"totals\": [", "\"totals\": [9, ", "totals");
  EXPECT_TRUE(counts.starts_with("line 2: results[0].totals: expected [9, ")) << counts;
  const std::string signature = first_of("bleu.jsonl", "nrefs:1", "nrefs:2", "signature");
  EXPECT_TRUE(signature.starts_with("line 2: results[0].signature: expected \"nrefs:2|")) << signature;
}

TEST(LinesFile, WhatIsNoSuchFileIsRefusedByLineAndField) {
  const test::TemporaryFolder folder;
  const std::string path = folder / "other.jsonl", metrics = first_line("metrics.jsonl");
  const auto refused = [&](const std::string& content, const std::string& what) {
    base::write_file_atomic(path, content);
    test::expect_error<base::InputError>([&] { verify::verify_lines(path); }, {path, what});
  };
  refused("", "expected JSON lines, found an empty file");
  refused("{\"a\": 1}\n",
          "line 1: expected the fields of BLEU (hypotheses, references, results, sentence_scores) or of");
  refused("[1]\n", "found list of 1 value");
  refused(metrics + "\n", "line 2");
  refused(metrics + "{\"kind\": \"classification\"}\n", "line 2: the field 'case' is missing");
  refused(changed_lines(metrics, "\"accuracy\": 0.925", "\"accuracy\": 0.925, \"recall\": 1"),
          "line 1: unknown field 'recall'");
  refused(changed_lines(metrics, "\"accuracy\": 0.925", "\"accuracy\": \"high\""), "line 1: accuracy: ");
  refused(changed_lines(metrics, "\"classification\"", "\"ranking\""),
          "line 1: kind: expected \"classification\" or \"regression\"");
  refused(changed_lines(metrics, "\"labels\": [0, ", "\"labels\": ["),
          "line 1: class_scores: expected a prediction for each");
  refused(changed_lines(first_line("bleu.jsonl"), "\"tokenize\": \"13a\"", "\"tokenize\": \"14a\""),
          "line 1: results[0]: BLEU: unknown tokenizer \"14a\"; did you mean '13a'?");
  refused(changed_lines(first_line("bleu.jsonl"), "\"hypotheses\": [", "\"hypotheses\": [\"one more\", "),
          "line 1: BLEU: reference set 0: expected");
}

}  // namespace
}  // namespace mnemo
