// Generates the table of docs/mechanisms.md: every registered mechanism, every control of ABC, feature map of linear
// attention, variant of lsh and version of GRC, law by law, with the size of its state and what it can be combined
// with. It uses the conditions that select the suite's tests, so it states what the suite runs.
//   MNEMO_WRITE_MECHANISMS=1 build/release/tests/test_conformance --gtest_filter='Mechanisms.*'     rewrites the page
#include <cstdlib>
#include <filesystem>
#include <map>
#include <set>

#include "base/error.h"
#include "base/file_io.h"
#include "inspect/cost.h"
#include "memory/abc_control/control.h"
#include "models/registry.h"
#include "tests/conformance/suite.h"
#include "weights/safetensors.h"

namespace mnemo::test {
namespace {

const std::string kPage = MNEMO_SOURCE_DIR "/docs/mechanisms.md";

/// A registered mechanism in the simplest model that accepts it, or one choice of its options that has rules of its
/// own.
struct Mechanism {
  std::string name, seam;
  Configuration plain;
  std::string choice = {};  ///< "" for the mechanism itself, with its default options
};

/// The name of one of ABC's controls, a feature map of linear attention and so on, from an options table that may omit
/// defaults.
std::string choice_of(const base::Node& options) {
  const auto text = [&](const char* key, const char* otherwise) {
    const base::Node* value = options.find(key);
    return value != nullptr && value->is_string() ? value->as_string() : std::string(otherwise);
  };
  const std::string type = options.at("type").as_string();
  if (type == "abc") {
    const base::Node* control = options.find("control");
    if (control == nullptr) return "";
    if (control->is_string()) return control->as_string() == "mlp" ? "" : "control " + control->as_string();
    const std::string name = control->at("type").as_string();
    if (name != "mlp") return "control " + name;
    const base::Node* activation = control->find("activation");
    return activation == nullptr || activation->as_string() == "exp" ? "" : "control mlp, " + activation->as_string();
  }
  if (type == "linear") {
    const base::Node* gate = options.find("gate");
    const std::string map = text("feature_map", "elu");
    const std::string gated = gate != nullptr && gate->as_bool() ? ", gate" : "",
                      authors = text("variant", "paper") == "authors" ? ", authors" : "";
    return map == "elu" && gated.empty() ? "" : "feature map " + map + authors + gated;
  }
  if (type == "lsh") return text("variant", "paper") == "lra" ? "variant lra" : "";
  if (type != "grc") return "";
  if (text("variant", "paper") == "authors") return "variant authors";
  if (text("lifetime", "model") == "sequence") return "lifetime sequence";
  if (text("mem_attention", "softmax") == "same") return "mem_attention same";
  if (text("attend", "sample") == "batch_mean") return "attend batch_mean";
  return text("eval_read", "updated") == "stored" ? "eval_read stored" : "";
}

std::string seam_of(const memory::Entry& entry) {
  if (entry.wrap_attention) return "around an attention";
  return entry.layer_context ? "layer context" : "sequence";
}

/// The suite's own configuration with only this attention or memory: a decoder if possible.
Configuration plain_of(const std::string& attention, const std::string& memory) {
  for (const auto* list : {&combinations(), &encoders()}) {
    for (const Configuration& one : *list) {
      const size_t memories = memory.empty() ? 0 : 1;
      if (one.options.memory.size() != memories || (!memory.empty() && !one.has(memory))) continue;
      if (attention.empty() || one.attention() == attention) return one;
    }
  }
  throw base::InternalError("no configuration of " + attention + memory);
}

std::vector<Mechanism> mechanisms() {
  const auto& registry = models::Mechanisms::all();
  std::vector<Mechanism> list;
  for (const std::string& name : registry.attentions.names()) list.push_back({name, "attention", plain_of(name, "")});
  for (const std::string& name : registry.memories.names()) {
    if (registry.memories.find(name).tasks) continue;  // vision models only
    list.push_back({name, seam_of(registry.memories.find(name)), plain_of("", name)});
  }
  // Each mechanism is followed by its choices, in the order of the suite: decoders before encoders.
  std::vector<Mechanism> all;
  for (const Mechanism& mechanism : list) {
    all.push_back(mechanism);
    std::set<std::string> seen = {""};
    for (const auto* some : {&variants(), &encoders()}) {
      for (const Configuration& one : *some) {
        const bool attention = mechanism.seam == "attention";
        if (one.options.memory.size() != (attention ? 0U : 1U)) continue;
        if (!attention && one.attention() != mechanism.plain.attention() && one.attention() != "relative") continue;
        const base::Node options = (attention ? one.options.backbone.stack().attention : one.options.memory[0]).table();
        if (options.at("type").as_string() != mechanism.name) continue;
        const std::string choice = choice_of(options);
        if (seen.insert(choice).second) all.push_back({mechanism.name, mechanism.seam, one, choice});
      }
    }
  }
  return all;
}

bool causal(const Configuration& c) { return c.options.backbone.causal(); }

/// A law, and whether it applies to a model: "" if the suite checks it, otherwise the reason why not.
struct Law {
  std::string title;
  std::function<std::string(const Mechanism&)> exemption;
};

const std::vector<Law>& laws() {
  static const std::vector<Law> all = {
      {"1 a segment in any parts, also token by token",
       [](const Mechanism& m) -> std::string {
         if (!causal(m.plain))
           return "bidirectional: a row depends on rows to its right, so partial segments are not possible";
         return parts_are_the_whole(m.plain)
                    ? ""
                    : "later rows move the chunk boundaries: the output of a token is that of the segment up to it";
       }},
      {"1 a sequence in any segments",
       [](const Mechanism& m) -> std::string {
         if (!causal(m.plain)) return "bidirectional";
         return any_segments(m.plain)
                    ? ""
                    : "memory is updated at segment boundaries, so different boundaries give different outputs";
       }},
      {"2 causal, bit for bit",
       [](const Mechanism& m) -> std::string {
         if (!causal(m.plain)) return "bidirectional";
         return parts_are_the_whole(m.plain) ? "" : "buckets are sorted together with later rows";
       }},
      {"3 equals softmax attention where the maths says so",
       [](const Mechanism& m) -> std::string {
         if (m.name != "abc") return "only for abc";
         static const std::set<std::string> alone = {"",
                                                     "control mlp, relu",
                                                     "control identity",
                                                     "control window",
                                                     "control dilated",
                                                     "control local_to_global",
                                                     "control compressive"};
         return alone.contains(m.choice) ? "" : "no option gives every visible token its own slot";
       }},
      {"4 with gate 0 equals the inner attention; frozen in evaluation",
       [](const Mechanism& m) -> std::string { return m.name == "grc" ? "" : "only for grc"; }},
      {"4 independent of order and other samples in the batch", [](const Mechanism&) -> std::string { return ""; }},
      {"5 gradients reach exactly bptt_depth segments back", [](const Mechanism&) -> std::string { return ""; }},
      {"6 no gradient into stored rows; 0 rows equal the baseline",
       [](const Mechanism& m) -> std::string { return m.seam == "layer context" ? "" : "only for layer contexts"; }},
      {"8 the state is a value; padding does not matter",
       [](const Mechanism& m) -> std::string {
         return masks_padding(m.plain) ? "" : "masks no rows, not even padding, like the code of the Long Range Arena";
       }},
      {"9 gradcheck; uninitialized memory filled with NaN", [](const Mechanism&) -> std::string { return ""; }},
  };
  return all;
}

/// The number of golden files that use each mechanism, and each choice of it ("abc control random").
std::map<std::string, int64_t> golden_files() {
  std::map<std::string, int64_t> counts;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(MNEMO_SOURCE_DIR "/tests/golden/data")) {
    if (entry.path().extension() != ".safetensors") continue;
    const weights::TensorFile file = weights::read_safetensors(entry.path().string());
    const auto text = file.metadata.find("config");
    if (text == file.metadata.end()) continue;  // a model of another library, or images
    const base::Node config = base::parse_json(text->second, entry.path().string());
    std::set<std::string> used;
    const auto add = [&](const base::Node& options) {
      used.insert(options.at("type").as_string());
      if (const std::string choice = choice_of(options); !choice.empty())
        used.insert(options.at("type").as_string() + " " + choice);
    };
    const base::Node* attention = config.find("attention");
    if (const base::Node* backbone = config.find("backbone"); attention == nullptr && backbone != nullptr)
      attention = backbone->find("attention");
    if (attention != nullptr) add(*attention);
    if (const base::Node* memories = config.find("memory"); memories != nullptr) {
      for (const base::Node& memory : memories->items()) add(memory);
    }
    for (const std::string& name : used) ++counts[name];
  }
  return counts;
}

/// Options of a typical size, using the option names.
const std::map<std::string, std::string> kUsual = {
    {"num_slots", "32"}, {"cache_len", "64"},    {"mem_len", "512"},        {"num_mem_tokens", "16"},
    {"max_len", "4096"}, {"window_size", "256"}, {"compressed_len", "256"}, {"compression_rate", "4"},
    {"chunk_len", "64"}, {"num_buckets", "16"},  {"num_features", "32"}};

struct Sizes {
  std::string between, open, flops;
};

/// For one layer of the mechanism, width 64, 4 heads: the bytes of one sequence's state after three segments of 512
/// tokens, just before the last token of the fourth, and the cost of one token of the fourth without feed-forward and
/// head.
Sizes sizes(const Mechanism& mechanism) {
  Configuration plain = mechanism.plain;
  models::ModelOptions& options = plain.options;
  options.backbone.stack().num_layers = 1;
  options.backbone.stack().dim = 64;
  options.backbone.stack().num_heads = 4;
  const auto enlarge = [](base::Node& node) {
    for (const auto& [key, value] : kUsual) {
      if (const base::Node* own = node.find(key); own != nullptr && own->is_int())
        node.set(key, static_cast<int64_t>(std::stoll(value)));
    }
  };
  base::Node attention = options.backbone.stack().attention.table();
  if (mechanism.name == "grc")
    attention = models::Mechanisms::all().attention_types.complete(base::Node::table({{"type", "softmax"}}));
  enlarge(attention);
  if (mechanism.name == "abc") {
    base::Node control = attention.at("control");
    enlarge(control);
    // The slots must have room for four segments.
    if (mechanism.choice == "control identity") attention.set("num_slots", int64_t{2048});
    if (mechanism.choice == "control compressive") control.set("compression", int64_t{64});
    if (mechanism.choice == "control local_to_global") {
      base::Node places = base::Node::array();
      for (int64_t slot = 0; slot < 32; ++slot) places.push_back(64 * slot);
      control.set("global_positions", places);
    }
    attention.set("control", control);
  }
  options.backbone.stack().attention = attention;
  for (base::TypedOptions& memory : options.memory) {
    base::Node table = memory.table();
    enlarge(table);
    memory = table;
  }
  options.backbone.stack().position.max_len = 1024;
  const auto model = models::build(options);
  const at::NoGradGuard no_grad;
  const at::Tensor tokens = Numbers(3).tokens({1, 2048}, kVocab);
  const core::State between = run(*model, tokens.narrow(1, 0, 1536), segments({512, 512, 512}), model->initial_state(1))
                                  .state;
  const auto bytes = [](const core::State& state) { return fmt::format("{}", core::num_bytes(state)); };
  const inspect::ModelCost cost = inspect::count_cost(models::as<models::TextModel>(*model, "test"), {1, 512, 1536});
  int64_t flops = cost.total.flops;
  for (const inspect::PartCost& part : cost.parts) {
    if (part.part == "head" || part.part == "feed_forward") flops -= part.flops;
  }
  const std::string a_token = fmt::format("{}", flops / 512);
  if (!causal(plain)) return {bytes(between), "whole only", a_token};
  return {bytes(between), bytes(run(*model, tokens.narrow(1, 1536, 511), Plan{{511, {true, false}}}, between).state),
          a_token};
}

/// Whether an attention and a memory can be combined: whether a model with both can be built.
std::string together(const Mechanism& attention, const std::string& memory) {
  std::string where;
  for (const char* letter : {"D", "E"}) {
    const bool encoder = *letter == 'E';
    std::vector<std::string> assignments = {encoder ? "backbone.type=encoder" : "backbone.type=decoder",
                                            "memory[0].type=" + memory};
    if (encoder && memory == "recurrent_tokens") {
      for (const char* one : {"layout=encoder", "cls_token=1", "sep_token=2", "pad_token=0"})
        assignments.push_back(std::string("memory[0].") + one);
    }
    try {
      models::ModelOptions options = configuration("together", assignments).options;
      options.backbone.stack().attention = attention.plain.options.backbone.stack().attention;
      models::build(options);
    } catch (const base::InputError&) {
      continue;
    }
    where += where.empty() ? letter : std::string(" ") + letter;
  }
  return where.empty() ? "–" : where;
}

/// "`abc`", "`abc` control random".
std::string title_of(const Mechanism& mechanism) {
  return fmt::format("`{}`{}{}", mechanism.name, mechanism.choice.empty() ? "" : " ", mechanism.choice);
}

std::string page() {
  std::string text =
      "# Mechanisms, law by law\n\n"
      "This page is generated by the conformance suite (`tests/conformance/mechanisms_test.cpp`), which fails if it "
      "is out of\n"
      "date. ✓: the suite checks the law for the mechanism, alone, in its variants and with other memories. A "
      "letter: the law\n"
      "does not apply, for the reason below. The first row of a mechanism is for its defaults, further rows are for "
      "options to\n"
      "which different laws apply. [testing.md](testing.md) lists the laws.\n\n";
  const std::vector<Mechanism> all = mechanisms();
  const auto golden = golden_files();
  std::vector<std::string> reasons;
  std::string header = "| mechanism | seam |", line = "|---|---|", rows;
  for (size_t i = 0; i < laws().size(); ++i) {
    header += fmt::format(" {} |", laws()[i].title);
    line += "---|";
  }
  text += header + " 10 golden files | state, bytes | in an open segment | FLOPs a token |\n" + line +
          "---:|---:|---:|---:|\n";
  for (const Mechanism& mechanism : all) {
    text += fmt::format("| {} | {} |", title_of(mechanism), mechanism.seam);
    for (const Law& law : laws()) {
      const std::string reason = law.exemption(mechanism);
      if (reason.empty()) {
        text += " ✓ |";
        continue;
      }
      auto found = std::find(reasons.begin(), reasons.end(), reason);
      if (found == reasons.end()) found = reasons.insert(reasons.end(), reason);
      text += fmt::format(" {} |", static_cast<char>('a' + (found - reasons.begin())));
    }
    const auto [between, open, flops] = sizes(mechanism);
    const auto files = golden.find(mechanism.choice.empty() ? mechanism.name : mechanism.name + " " + mechanism.choice);
    text += fmt::format(" {} | {} | {} | {} |\n", files == golden.end() ? 0 : files->second, between, open, flops);
  }
  text += "\n";
  for (size_t i = 0; i < reasons.size(); ++i) text += fmt::format("- {}: {}\n", static_cast<char>('a' + i), reasons[i]);
  text +=
      "\nIn image models an image is one bidirectional segment, so laws 1, 2, 3, 5 and 6 do not apply; the tests "
      "`VisionGrc`,\n"
      "`VisionAttentionCache` and `LearnableMemory` check the others.\n\n"
      "State: bytes of one sequence in float32, for one layer of width 64 with 4 heads, after three segments of 512 "
      "tokens, and\n"
      "before the last token of the fourth, with state that belongs to the model. FLOPs: twice the multiply-adds of "
      "matrix\n"
      "products in the forward pass of that segment, divided by its tokens, without feed-forward and head. GRC is "
      "measured\n"
      "around softmax attention. Options:";
  for (const auto& [key, value] : kUsual) {
    const std::string one = fmt::format("`{}` {},", key, value);
    text += text.size() - text.rfind('\n') + one.size() > 118 ? "\n" : " ";
    text += one;
  }
  text.back() = ';';
  text +=
      "\n`control identity` 2,048 slots, `control compressive` 64 tokens per slot, `control local_to_global` every "
      "64th token.\nThe golden files of an option are included in those of its mechanism.";
  text +=
      "\n\n## Combinations\n\nWhich memory can be combined with which attention: D in a decoder, E in an encoder, – in "
      "neither (the error says why).\n\n| |";
  const auto& registry = models::Mechanisms::all();
  line = "|---|";
  std::vector<std::string> of_tokens = registry.memories.names();
  std::erase_if(of_tokens, [&](const std::string& name) { return registry.memories.find(name).tasks != nullptr; });
  for (const std::string& memory : of_tokens) {
    text += fmt::format(" `{}` |", memory);
    line += "---|";
  }
  text += "\n" + line + "\n";
  for (const Mechanism& attention : all) {
    if (attention.seam != "attention") continue;
    text += fmt::format("| {} |", title_of(attention));
    for (const std::string& memory : of_tokens) text += fmt::format(" {} |", together(attention, memory));
    text += "\n";
  }
  text +=
      "\nMemories can be combined in one model: on different seams; around an attention, where the first in the list "
      "is "
      "the\ninnermost; and as contexts of different layers (`layers`). An attention that keeps the past in its own "
      "state "
      "does not\nsee the rows of a layer context, and supports recurrent tokens with `block_mask = \"causal\"`.\n";
  return text;
}

TEST(Mechanisms, EveryControlHasARow) {
  std::set<std::string> rows;
  for (const Mechanism& mechanism : mechanisms()) rows.insert(title_of(mechanism));
  for (const std::string& control : memory::abc_control_types().types()) {
    EXPECT_TRUE(rows.contains(control == "mlp" ? "`abc`" : "`abc` control " + control)) << control;
  }
  for (const char* row :
       {"`abc` control mlp, relu", "`abc` control mlp, sigmoid", "`linear` feature map t2r", "`linear` feature map rfa",
        "`linear` feature map rfa, authors", "`linear` feature map rfa, gate", "`lsh` variant lra",
        "`grc` variant authors", "`grc` lifetime sequence", "`grc` mem_attention same", "`grc` attend batch_mean",
        "`grc` eval_read stored"}) {
    EXPECT_TRUE(rows.contains(row)) << row;
  }
}

TEST(Mechanisms, ThePageIsWhatTheSuiteRuns) {
  const std::string expected = page();
  if (std::getenv("MNEMO_WRITE_MECHANISMS") != nullptr) base::write_file_atomic(kPage, expected);
  EXPECT_EQ(base::read_file(kPage, 1 << 20), expected) << "write it anew as tests/conformance/mechanisms_test.cpp says";
}

}  // namespace
}  // namespace mnemo::test
