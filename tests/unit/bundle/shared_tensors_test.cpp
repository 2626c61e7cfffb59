// Files of safetensors' save_model, which keeps one name of tensors that a model shares.
#include <gtest/gtest.h>
#include <torch/types.h>

#include <filesystem>

#include "base/error.h"
#include "base/file_io.h"
#include "bundle/load.h"
#include "tests/support/expect_error.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/text_folders.h"
#include "weights/safetensors.h"

namespace mnemo::bundle {
namespace {

using test::expect_error;
using test::kTexts;

/// A golden folder whose embedding is there under another name alone, as `metadata` may say.
struct Renamed {
  Renamed(const std::string& of, const std::string& embedding, const std::string& kept, bool metadata)
      : config(base::parse_json(base::read_file(kTexts + of + "/config.json", 1 << 20), "config.json")) {
    weights::TensorFile file = weights::read_safetensors(kTexts + of + "/model.safetensors");
    const at::Tensor shared = file.at(embedding, of);
    std::erase_if(file.tensors, [&](const auto& named) { return named.first == embedding || named.first == kept; });
    file.tensors.emplace_back(kept, shared);
    weights::Metadata said;
    if (metadata) said[embedding] = kept;
    weights::write_safetensors(folder / "model.safetensors", file.tensors, said);
  }
  std::shared_ptr<models::Model> load() const {
    base::write_file_atomic(folder / "config.json", base::to_json(config));
    return load_any(folder.path()).model;
  }
  test::TemporaryFolder folder;
  base::Node config;
};

void expect_same_weights(const models::Model& found, const std::string& of) {
  const auto expected = load_any(kTexts + of).model;
  EXPECT_EQ(base::write_options(found.options()), base::write_options(expected->options())) << of;
  for (const auto& [name, tensor] : expected->parameters().named())
    EXPECT_TRUE(at::equal(found.parameters().find(name), tensor)) << of << ": " << name;
}

TEST(SharedTensors, TheNameThatSaveModelKeepsIsFound) {
  struct Case {
    const char *of, *embedding, *kept;
  };
  for (const auto& [of, embedding, kept] :
       {Case{"gpt2", "transformer.wte.weight", "lm_head.weight"},
        Case{"qwen2", "model.embed_tokens.weight", "lm_head.weight"},
        Case{"t5_v10", "shared.weight", "decoder.embed_tokens.weight"},
        Case{"t5_v10", "shared.weight", "lm_head.weight"},
        Case{"t5_v11", "shared.weight", "decoder.embed_tokens.weight"},  // its output matrix is another
        Case{"roberta_mlm", "roberta.embeddings.word_embeddings.weight", "lm_head.decoder.weight"},
        Case{"bert_mlm", "bert.embeddings.word_embeddings.weight", "cls.predictions.decoder.weight"},
        Case{"marian", "model.shared.weight", "lm_head.weight"}}) {
    for (const bool metadata : {true, false}) {
      SCOPED_TRACE(testing::Message() << of << ", " << kept << (metadata ? ", said" : ", not said"));
      expect_same_weights(*Renamed(of, embedding, kept, metadata).load(), of);
    }
  }
}

TEST(SharedTensors, AnyTensorMayHaveKeptAnotherName) {
  const Renamed renamed("roberta_mlm", "lm_head.bias", "lm_head.decoder.bias", true);
  expect_same_weights(*renamed.load(), "roberta_mlm");
  expect_error<base::InputError>([] { Renamed("roberta_mlm", "lm_head.bias", "lm_head.decoder.bias", false).load(); },
                                 {"missing 1: 'lm_head.bias'"});
}

// transformers uses each of them.
TEST(SharedTensors, OneThatDiffersFromTheEmbeddingIsRefused) {
  struct Case {
    const char *of, *embedding, *copy;
  };
  for (const auto& [of, embedding, copy] : {Case{"t5_v10", "shared.weight", "encoder.embed_tokens.weight"},
                                            Case{"t5_v11", "shared.weight", "decoder.embed_tokens.weight"},
                                            Case{"marian", "model.shared.weight", "model.encoder.embed_tokens.weight"},
                                            Case{"marian", "model.shared.weight", "lm_head.weight"}}) {
    SCOPED_TRACE(testing::Message() << of << ", " << copy);
    const Renamed folder(of, embedding, "other.weight", false);
    const at::Tensor table = weights::read_safetensors(kTexts + of + "/model.safetensors").at(embedding, of);
    weights::TensorFile file = weights::read_safetensors(folder.folder / "model.safetensors");
    std::erase_if(file.tensors, [](const auto& named) { return named.first == "other.weight"; });
    file.tensors.emplace_back(embedding, table);
    const auto with = [&](const at::Tensor& numbers) {
      weights::NamedTensors tensors = file.tensors;
      std::erase_if(tensors, [copy = copy](const auto& named) { return named.first == copy; });
      tensors.emplace_back(copy, numbers);
      weights::write_safetensors(folder.folder / "model.safetensors", tensors);
    };
    with(table.clone());
    expect_same_weights(*folder.load(), of);
    with(table * 1.5);
    expect_error<base::InputError>([&] { folder.load(); }, {"unsupported", copy, "found other numbers"});
  }
}

// An output matrix that is not tied stands for no embedding.
TEST(SharedTensors, AnOutputOfItsOwnIsNoCopy) {
  Renamed untied("gpt2", "transformer.wte.weight", "lm_head.weight", false);
  untied.config.set("tie_word_embeddings", false);
  expect_error<base::InputError>([&] { untied.load(); }, {"missing 1: 'transformer.wte.weight'"});
}

TEST(SharedTensors, MetadataThatNamesNothingIsNoHelp) {
  const Renamed renamed("llama3", "model.norm.weight", "model.norm.other", true);
  expect_same_weights(*renamed.load(), "llama3");
  weights::TensorFile file = weights::read_safetensors(renamed.folder / "model.safetensors");
  std::erase_if(file.tensors, [](const auto& named) { return named.first == "model.norm.other"; });
  weights::write_safetensors(renamed.folder / "model.safetensors", file.tensors, file.metadata);
  expect_error<base::InputError>([&] { renamed.load(); }, {"missing 1: 'model.norm.weight'"});
}

}  // namespace
}  // namespace mnemo::bundle
