#include "tests/support/configurations.h"

#include <torch/types.h>

#include <algorithm>
#include <map>
#include <ostream>

#include "base/error.h"
#include "core/backbone.h"
#include "models/registry.h"
#include "tests/support/numbers.h"
#include "tests/support/run.h"

namespace mnemo::test {
namespace {

/// Sizes for a quick test, using the option names.
std::vector<std::string> small_sizes(const base::OptionTypes& types, const std::string& type,
                                     const std::string& where) {
  const std::map<std::string, std::string> small = {
      {"num_slots", "3"},   {"cache_len", "3"},   {"mem_len", "32"},  {"num_mem_tokens", "2"}, {"max_len", "64"},
      {"window_size", "4"}, {"num_buckets", "4"}, {"chunk_len", "2"}, {"memory_len", "10"},    {"top_k", "2"}};
  std::vector<std::string> assignments = {where + ".type=" + type};
  for (const base::OptionDoc& option : types.describe(type)) {
    if (const auto found = small.find(option.path); found != small.end()) {
      assignments.push_back(where + "." + option.path + "=" + found->second);
    }
  }
  return assignments;
}

struct Combinations {
  std::vector<Configuration> accepted;
  std::vector<std::vector<std::string>> refused;
};

Combinations combine() {
  const auto& mechanisms = models::Mechanisms::all();
  const auto& memories = mechanisms.memories.names();
  Combinations result;
  for (const std::string& attention : mechanisms.attentions.names()) {
    for (size_t set = 0; set < size_t{1} << memories.size(); ++set) {
      std::vector<std::string> names = {attention};
      std::vector<std::string> assignments = small_sizes(mechanisms.attention_types, attention, "backbone.attention");
      for (size_t i = 0; i < memories.size(); ++i) {
        if ((set >> i & 1) == 0) continue;
        const auto more = small_sizes(mechanisms.memory_types, memories[i],
                                      fmt::format("memory[{}]", names.size() - 1));
        assignments.insert(assignments.end(), more.begin(), more.end());
        names.push_back(memories[i]);
      }
      std::string name = names[0];
      for (size_t i = 1; i < names.size(); ++i) name += "_" + names[i];
      try {
        Configuration whole = configuration(name, assignments);
        models::build(whole.options);  // building the model shows what an attention does not support
        result.accepted.push_back(std::move(whole));
      } catch (const base::InputError&) {
        result.refused.push_back(names);
      }
    }
  }
  return result;
}

const Combinations& combined() {
  static const Combinations all = combine();
  return all;
}

}  // namespace

bool Configuration::has(const std::string& memory) const {
  return std::any_of(options.memory.begin(), options.memory.end(),
                     [&](const base::TypedOptions& one) { return one.type() == memory; });
}

bool Configuration::has_layer_context() const {
  return std::any_of(options.memory.begin(), options.memory.end(), [](const base::TypedOptions& one) {
    return models::Mechanisms::all().memories.find(one.type()).layer_context != nullptr;
  });
}

base::Node Configuration::memory_option(const std::string& memory, const std::string& key,
                                        const base::Node& otherwise) const {
  for (const base::TypedOptions& one : options.memory) {
    if (one.type() == memory) return one.table().at(key);
  }
  return otherwise;
}

std::string Configuration::attention() const { return options.backbone.stack().attention.type(); }

std::ostream& operator<<(std::ostream& stream, const Configuration& configuration) {
  return stream << configuration.name;
}

base::Node options_of(const std::vector<std::string>& assignments) {
  base::Node node = base::parse_toml(
      "segment_size = 4\n[embedding]\nvocab_size = 13\n[backbone]\nnum_layers = 2\ndim = 8\nnum_heads = 2\nffn_dim = "
      "12\n"
      "activation = \"gelu\"\n",
      "conformance");
  for (const std::string& assignment : assignments) base::set_value(node, assignment);
  return node;
}

Configuration configuration(const std::string& name, const std::vector<std::string>& assignments) {
  return {name, base::read_options<models::ModelOptions>(options_of(assignments))};
}

const std::vector<Configuration>& combinations() { return combined().accepted; }
const std::vector<std::vector<std::string>>& refused_combinations() { return combined().refused; }

const std::vector<Configuration>& variants() {
  static const std::vector<Configuration> all = [] {
    std::vector<Configuration> list;
    const auto add = [&](const std::string& name, const std::string& attention,
                         const std::vector<std::string>& memories, const std::vector<std::string>& more = {}) {
      std::vector<std::string> assignments = {"backbone.attention.type=" + attention};
      for (size_t i = 0; i < memories.size(); ++i)
        assignments.push_back(fmt::format("memory[{}].type={}", i, memories[i]));
      assignments.insert(assignments.end(), more.begin(), more.end());
      list.push_back(configuration(name, assignments));
    };
    const std::string slots = "backbone.attention.num_slots=3", two = "memory[0].num_mem_tokens=2",
                      short_cache = "memory[1].mem_len=6", read = "memory[0].read_mem_from_cache=true",
                      no_rows = "memory[1].keep_memory_rows=false", grc_len = "memory[0].cache_len=3";
    const std::vector<std::string> rmt_xl = {"recurrent_tokens", "segment_cache"},
                                   mt_xl = {"memory_tokens", "segment_cache"};

    add("rmt_one_token", "relative", {"recurrent_tokens"}, {"memory[0].num_mem_tokens=1"});
    add("rmt_no_tokens", "relative", {"recurrent_tokens"}, {"memory[0].num_mem_tokens=0"});
    add("rmt_faithful", "relative", {"recurrent_tokens"}, {two, "backbone.attention.rel_shift=faithful"});
    add("rmt_causal_learned", "softmax", {"recurrent_tokens"},
        {two, "memory[0].block_mask=causal", "backbone.position.type=learned", "backbone.position.max_len=64",
         "backbone.norm=pre", "backbone.final_norm=true"});
    add("rmt_xl_rows", "relative", rmt_xl, {two, short_cache});
    add("rmt_xl_tokens", "relative", rmt_xl, {two, short_cache, no_rows});
    add("rmt_xl_read_rows", "relative", rmt_xl, {two, short_cache, read});
    add("rmt_xl_read_tokens", "relative", rmt_xl, {two, short_cache, read, no_rows});
    add("rmt_xl_faithful", "relative", rmt_xl, {two, short_cache, "backbone.attention.rel_shift=faithful"});
    add("rmt_xl_grc_sequence", "relative", {"recurrent_tokens", "segment_cache", "grc"},
        {two, short_cache, "memory[2].cache_len=5", "memory[2].lifetime=sequence"});

    const std::string rotary = "backbone.attention.rotary.base=50.0", grouped = "backbone.attention.num_kv_heads=1";
    add("rotary", "softmax", {}, {rotary, "backbone.norm=pre", "backbone.parallel_residual=true"});
    add("rotary_grouped_rmt", "softmax", {"recurrent_tokens"},
        {rotary, grouped, two, "memory[0].block_mask=causal", "backbone.norm=pre", "backbone.final_norm=true",
         "backbone.norm_type=rms", "backbone.ffn_gated=true", "backbone.activation=silu", "backbone.ffn_bias=false"});
    add("rotary_xl", "softmax", {"segment_cache"}, {rotary, grouped, "memory[0].mem_len=5"});
    add("rotary_rmt_xl_grc", "softmax", {"recurrent_tokens", "segment_cache", "grc"},
        {rotary, two, short_cache, "memory[2].cache_len=5", "memory[2].lifetime=sequence"});
    add("mt_no_tokens", "relative", {"memory_tokens"}, {"memory[0].num_mem_tokens=0"});
    add("mt_authors", "relative", {"memory_tokens"}, {two, "memory[0].variant=authors"});
    add("mt_sinusoidal", "softmax", {"memory_tokens"}, {two, "backbone.position.type=sinusoidal"});
    add("mt_xl_read", "relative", mt_xl, {two, short_cache, read});
    add("mt_xl_authors_read_tokens", "relative", mt_xl, {two, short_cache, read, no_rows, "memory[0].variant=authors"});

    add("xl_zero", "relative", {"segment_cache"}, {"memory[0].mem_len=0"});
    add("xl_short", "relative", {"segment_cache"}, {"memory[0].mem_len=3"});
    add("xl_same_length", "relative", {"segment_cache"}, {"memory[0].mem_len=4", "memory[0].same_length=true"});
    add("xl_eval_same_length", "relative", {"segment_cache"},
        {"memory[0].mem_len=4", "memory[0].eval_same_length=true", "backbone.attention.eval_clamp_len=2"});
    add("xl_eval_longer", "relative", {"segment_cache"}, {"memory[0].mem_len=2", "memory[0].eval_mem_len=7"});
    add("xl_pre", "relative", {"segment_cache"},
        {"memory[0].mem_len=32", "backbone.norm=pre", "backbone.final_norm=true"});
    add("xl_clamp", "relative", {"segment_cache"}, {"memory[0].mem_len=32", "backbone.attention.clamp_len=3"});
    add("xl_learned", "softmax", {"segment_cache"},
        {"memory[0].mem_len=5", "backbone.position.type=learned", "backbone.position.max_len=64"});
    add("attention_cache_short", "softmax", {"attention_cache"}, {"memory[0].mem_len=3", "backbone.norm=pre"});

    const auto compresses = [](const std::string& function, int at = 0) {
      const std::string memory = fmt::format("memory[{}].", at);
      return std::vector<std::string>{memory + "compression=" + function, memory + "mem_len=3",
                                      memory + "compressed_len=4", memory + "compression_rate=2"};
    };
    for (const char* function : {"mean_pooling", "max_pooling", "conv", "dilated_conv", "most_used"}) {
      add(std::string("compressive_") + function, "relative", {"compressive"}, compresses(function));
    }
    auto pre = compresses("conv"), rmt_compressive = compresses("conv", 1);
    pre.insert(pre.end(), {"backbone.norm=pre", "memory[0].compression_rate=3"});
    add("compressive_pre", "softmax", {"compressive"}, pre);
    rmt_compressive.push_back(two);
    auto turned = compresses("conv"), used = compresses("most_used");
    turned.insert(turned.end(), {rotary, grouped, "backbone.norm=pre"});
    used.insert(used.end(), {rotary, grouped});
    add("compressive_rotary", "softmax", {"compressive"}, turned);
    add("compressive_rotary_most_used", "softmax", {"compressive"}, used);
    add("compressive_rmt", "relative", {"recurrent_tokens", "compressive"}, rmt_compressive);
    add("compressive_uncompressed", "relative", {"compressive"},
        {"memory[0].mem_len=5", "memory[0].compressed_len=0", "memory[0].compression_rate=1"});

    add("xl_upper_layer", "relative", {"segment_cache"}, {"memory[0].mem_len=5", "memory[0].layers=[1]"});
    auto apart = compresses("conv", 1);
    apart.insert(apart.end(), {"memory[0].mem_len=5", "memory[0].layers=[1]", "memory[1].layers=[0]"});
    add("xl_above_compressive", "relative", {"segment_cache", "compressive"}, apart);
    apart.insert(apart.end(), {"memory[2].type=recurrent_tokens", "memory[2].num_mem_tokens=2"});
    add("xl_above_compressive_rmt", "relative", {"segment_cache", "compressive"}, apart);

    add("adaptive", "relative", {"segment_cache"},
        {"memory[0].mem_len=6", "embedding.type=adaptive", "embedding.cutoffs=[4,9]", "embedding.div_val=2",
         "head.adaptive.cutoffs=[4,9]", "head.adaptive.div_val=2"});

    add("relative_own_biases", "relative", {},
        {"backbone.attention.shared_uv=false", "backbone.attention.bias=true", "backbone.head_dim=3"});

    add("abc_relu", "abc", {}, {slots, "backbone.attention.control.activation=relu"});
    add("abc_sigmoid", "abc", {}, {slots, "backbone.attention.control.activation=sigmoid"});
    add("abc_shared", "abc", {}, {slots, "backbone.attention.control.shared_across_heads=true"});
    add("abc_unscaled_one_slot", "abc", {}, {"backbone.attention.num_slots=1", "backbone.attention.scale=none"});
    add("abc_more_slots", "abc", {}, {"backbone.attention.num_slots=9", "backbone.attention.bias=false"});
    add("abc_learned", "abc", {}, {slots, "backbone.position.type=learned", "backbone.position.max_len=64"});
    const std::string masked = "backbone.attention.mask_empty_slots=true", control = "backbone.attention.control.";
    add("abc_tied", "abc", {}, {slots, "backbone.attention.tied_across_layers=true"});
    add("abc_random", "abc", {}, {slots, control + "type=random", control + "seed=3"});
    add("abc_gated", "abc", {}, {slots, control + "gate=true"});
    add("abc_gated_shared_tied", "abc", {},
        {slots, control + "gate=true", control + "shared_across_heads=true",
         "backbone.attention.tied_across_layers=true"});
    add("abc_random_redrawn", "abc", {}, {slots, control + "type=random", control + "redraw=sequence"});
    add("abc_random_redrawn_segment", "abc", {}, {slots, control + "type=random", control + "redraw=segment"});
    add("abc_random_masked", "abc", {}, {slots, masked, control + "type=random"});
    add("abc_identity", "abc", {}, {"backbone.attention.num_slots=40", masked, control + "type=identity"});
    add("abc_linformer", "abc", {}, {slots, control + "type=linformer", control + "max_len=40"});
    add("abc_linformer_tied_masked", "abc", {},
        {slots, masked, control + "type=linformer", control + "max_len=40",
         "backbone.attention.tied_across_layers=true"});
    add("abc_clustering", "abc", {}, {slots, control + "type=clustering"});
    add("abc_clustering_masked", "abc", {}, {slots, masked, control + "type=clustering"});
    add("abc_window", "abc", {}, {slots, control + "type=window"});
    add("abc_window_masked", "abc", {}, {slots, masked, control + "type=window"});
    add("abc_dilated", "abc", {}, {slots, control + "type=dilated"});
    add("abc_dilated_masked", "abc", {}, {slots, masked, control + "type=dilated"});
    add("abc_local_to_global", "abc", {},
        {slots, masked, control + "type=local_to_global", control + "global_positions=[1,4,9]"});
    add("abc_compressive", "abc", {},
        {"backbone.attention.num_slots=14", control + "type=compressive", control + "compression=3"});
    add("abc_window_rmt_grc", "abc", {"recurrent_tokens", "grc"},
        {slots, masked, control + "type=window", two, "memory[0].block_mask=causal", "memory[1].cache_len=4"});
    add("abc_rmt", "abc", {"recurrent_tokens"}, {slots, two, "memory[0].block_mask=causal"});
    add("abc_rmt_grc", "abc", {"recurrent_tokens", "grc"},
        {slots, two, "memory[0].block_mask=causal", "memory[1].cache_len=4"});
    add("abc_relu_grc_sequence", "abc", {"grc"},
        {slots, "backbone.attention.control.activation=relu", grc_len, "memory[0].lifetime=sequence"});

    add("abc_rotary", "abc", {}, {slots, rotary, "backbone.norm=pre"});
    add("abc_rotary_grouped", "abc", {},
        {slots, rotary, "backbone.num_heads=4", "backbone.attention.num_kv_heads=2", "backbone.head_dim=4",
         "backbone.attention.rotary.dims=2"});
    add("abc_rotary_relu_rmt_grc", "abc", {"recurrent_tokens", "grc"},
        {slots, rotary, grouped, "backbone.attention.control.activation=relu", two, "memory[0].block_mask=causal",
         "memory[1].cache_len=4", "memory[1].lifetime=sequence"});
    add("abc_rotary_random_masked", "abc", {}, {slots, rotary, masked, control + "type=random"});
    add("abc_rotary_clustering", "abc", {}, {slots, rotary, grouped, control + "type=clustering"});
    add("abc_rotary_window_masked", "abc", {}, {slots, rotary, grouped, masked, control + "type=window"});
    add("abc_rotary_dilated", "abc", {}, {slots, rotary, control + "type=dilated"});

    const std::string linear = "backbone.attention.feature_map=", few = "backbone.attention.num_features=3",
                      many = "backbone.attention.num_features=32", window = "backbone.attention.window_size=3",
                      hash = "backbone.attention.num_buckets=4", chunk = "backbone.attention.chunk_len=3";
    add("linear_t2r", "linear", {}, {linear + "t2r", few});
    add("linear_rfa", "linear", {}, {linear + "rfa", many});
    add("linear_rfa_authors", "linear", {},
        {linear + "rfa", many, "backbone.attention.variant=authors", "backbone.attention.tau=2.0"});
    add("linear_rfa_redrawn", "linear", {}, {linear + "rfa", many, "backbone.attention.redraw=sequence"});
    add("linear_rfa_gate", "linear", {}, {linear + "rfa", many, "backbone.attention.gate=true"});
    add("linear_gate_grc_same", "linear", {"grc"},
        {"backbone.attention.gate=true", grc_len, "memory[0].mem_attention=same"});
    add("linear_rotary", "linear", {}, {rotary, "backbone.norm=pre"});
    add("linear_rotary_grouped_gate_grc", "linear", {"grc"},
        {rotary, grouped, "backbone.attention.gate=true", grc_len, "memory[0].mem_attention=same",
         "memory[0].lifetime=sequence"});
    add("linear_rotary_t2r", "linear", {}, {linear + "t2r", few, rotary, "backbone.attention.rotary.dims=2", grouped});
    add("linear_rotary_rfa_rmt", "linear", {"recurrent_tokens"},
        {linear + "rfa", many, "backbone.attention.variant=authors", rotary, grouped, two,
         "memory[0].block_mask=causal"});
    add("linear_rmt", "linear", {"recurrent_tokens"}, {two, "memory[0].block_mask=causal"});
    add("window_one", "sliding_window", {}, {"backbone.attention.window_size=1"});
    add("window_rmt_xl", "sliding_window", rmt_xl, {two, short_cache, window});
    add("window_rotary", "sliding_window", {}, {window, rotary, "backbone.norm=pre"});
    add("window_rotary_grouped_rmt_xl", "sliding_window", rmt_xl, {two, short_cache, window, rotary, grouped});
    add("window_xl_covered", "sliding_window", {"segment_cache"},
        {window, "memory[0].mem_len=32", "backbone.norm=pre"});
    add("window_xl_short", "sliding_window", {"segment_cache"},
        {"backbone.attention.window_size=9", "memory[0].mem_len=3"});
    add("window_grc_sequence", "sliding_window", {"grc"}, {window, grc_len, "memory[0].lifetime=sequence"});
    add("lsh_one_round", "lsh", {}, {hash, chunk, "backbone.attention.num_hashes=1"});
    add("lsh_across", "lsh", {}, {hash, chunk, "backbone.attention.attend_across_buckets=true"});
    add("lsh_rmt", "lsh", {"recurrent_tokens"}, {hash, chunk, two, "memory[0].block_mask=causal"});

    const std::vector<std::string> few_rows = {"memory[0].memory_len=10", "memory[0].top_k=2"};
    add("knn_plain_one_layer", "relative", {"segment_cache", "knn"},
        {"memory[0].mem_len=6", "memory[1].memory_len=9", "memory[1].top_k=3", "memory[1].normalize=false",
         "memory[1].layers=[1]"});
    add("knn_all_rows", "softmax", {"knn"},
        {"memory[0].memory_len=7", "memory[0].top_k=32", "backbone.norm=pre", "backbone.head_dim=3"});
    add("knn_rotary_grouped", "softmax", {"knn"},
        {rotary, "backbone.num_heads=4", "backbone.attention.num_kv_heads=2", few_rows[0], few_rows[1],
         "backbone.norm=pre"});
    add("knn_rotary_rmt_xl_grc", "softmax", {"recurrent_tokens", "segment_cache", "knn", "grc"},
        {rotary, grouped, two, short_cache, "memory[2].memory_len=9", "memory[2].top_k=3", "memory[2].normalize=false",
         "memory[3].cache_len=5", "memory[3].lifetime=sequence"});
    add("knn_grc_sequence", "relative", {"knn", "grc"},
        {few_rows[0], few_rows[1], "memory[1].cache_len=3", "memory[1].lifetime=sequence"});
    add("knn_linear_rotary", "linear", {"knn"}, {rotary, grouped, few_rows[0], few_rows[1]});
    add("knn_linear_gate", "linear", {"knn"}, {few_rows[0], few_rows[1], "backbone.attention.gate=true"});

    add("grc_same", "softmax", {"grc"}, {grc_len, "memory[0].mem_attention=same"});
    add("grc_sequence", "relative", {"grc"}, {grc_len, "memory[0].lifetime=sequence", "memory[0].gate_bias=true"});
    add("grc_widened", "softmax", {"grc"}, {grc_len, "memory[0].widen=projection"});
    add("grc_long", "softmax", {"grc"},
        {"memory[0].cache_len=9", "memory[0].cache_ratio=1.0", "memory[0].qkv_bias=true", "memory[0].gate_bias=true"});
    add("grc_bptt_0", "relative", {"grc"}, {grc_len, "memory[0].bptt_depth=0"});
    add("grc_sequence_full", "relative", {"grc"},
        {grc_len, "memory[0].lifetime=sequence", "memory[0].bptt_depth=full"});
    return list;
  }();
  return all;
}

namespace {

/// The assignments for an encoder with these memories.
std::vector<std::string> encoder_with(const std::vector<std::string>& memories) {
  std::vector<std::string> assignments = {"backbone.type=encoder"};
  for (size_t i = 0; i < memories.size(); ++i) {
    const std::string at = fmt::format("memory[{}].", i);
    const auto add = [&](const char* assignment) { assignments.push_back(at + assignment); };
    assignments.push_back(at + "type=" + memories[i]);
    if (memories[i] == "grc") {
      for (const char* one : {"cache_len=3", "attend=sample", "eval_read=updated", "gate_bias=true"}) add(one);
    }
    if (memories[i] != "recurrent_tokens") continue;
    for (const char* one : {"num_mem_tokens=2", "layout=encoder", "cls_token=1", "sep_token=2", "pad_token=0"})
      add(one);
  }
  return assignments;
}

}  // namespace

const std::vector<Configuration>& encoders() {
  static const std::vector<Configuration> all = [] {
    std::vector<Configuration> list;
    const auto add = [&](const std::string& name, std::vector<std::string> assignments,
                         const std::vector<std::string>& more) {
      assignments.insert(assignments.end(), more.begin(), more.end());
      list.push_back(configuration("encoder_" + name, assignments));
    };
    const auto& mechanisms = models::Mechanisms::all();
    for (const std::string& attention : mechanisms.attentions.names()) {
      for (const std::vector<std::string>& memories :
           std::vector<std::vector<std::string>>{{}, {"grc"}, {"recurrent_tokens"}, {"recurrent_tokens", "grc"}}) {
        std::string name = attention;
        for (const std::string& memory : memories) name += "_" + memory;
        try {
          Configuration probe = configuration("probe",
                                              {"backbone.type=encoder", "backbone.attention.type=" + attention});
          models::build(probe.options);
        } catch (const base::InputError&) {
          continue;  // always causal
        }
        add(name, encoder_with(memories), small_sizes(mechanisms.attention_types, attention, "backbone.attention"));
      }
    }
    const std::string softmax = "backbone.attention.type=softmax";
    const std::vector<std::string> bert = {softmax, "backbone.position.type=learned", "backbone.position.max_len=64",
                                           "backbone.token_types=2", "backbone.embed_norm=true"};
    add("bert", encoder_with({}), bert);
    add("bert_rmt", encoder_with({"recurrent_tokens"}), bert);
    add("rmt_authors", encoder_with({"recurrent_tokens"}),
        {softmax, "memory[0].memory_position=authors", "backbone.position.type=sinusoidal"});
    add("rmt_no_tokens", encoder_with({"recurrent_tokens"}), {softmax, "memory[0].num_mem_tokens=0"});
    add("pre_norm", encoder_with({}),
        {softmax, "backbone.norm=pre", "backbone.final_norm=true", "backbone.position.type=sinusoidal",
         "backbone.attention.bias=false"});
    const std::vector<std::string> luna = {"backbone.attention.type=abc", "backbone.attention.num_slots=3",
                                           "backbone.attention.control.type=luna"};
    add("luna", encoder_with({}), luna);
    add("luna_rmt_grc", encoder_with({"recurrent_tokens", "grc"}), luna);
    const std::vector<std::string> turned = {"backbone.attention.rotary.base=50.0",
                                             "backbone.attention.num_kv_heads=1"};
    for (const std::string attention : {"abc", "linear"}) {
      auto rotary = turned;
      rotary.push_back("backbone.attention.type=" + attention);
      add(attention + "_rotary", encoder_with({"recurrent_tokens"}), rotary);
    }
    auto turned_luna = luna;
    turned_luna.insert(turned_luna.end(), turned.begin(), turned.end());
    add("luna_rotary", encoder_with({}), turned_luna);
    add("lsh_lra", encoder_with({}),
        {"backbone.attention.type=lsh", "backbone.attention.variant=lra", "backbone.attention.num_buckets=4",
         "backbone.attention.chunk_len=4"});
    add("grc_authors", encoder_with({"grc"}), {softmax, "memory[0].variant=authors"});
    add("grc_stored", encoder_with({"grc"}), {softmax, "memory[0].eval_read=stored"});
    add("grc_batch_mean", encoder_with({"grc"}),
        {softmax, "memory[0].attend=batch_mean", "memory[0].eval_read=stored"});
    add("grc_widened", encoder_with({"grc"}), {softmax, "memory[0].widen=projection"});
    add("grc_sequence", encoder_with({"grc"}), {softmax, "memory[0].lifetime=sequence"});
    const std::string cache = "memory[0].mem_len=3";
    add("xl", encoder_with({"segment_cache"}), {softmax, cache});
    add("xl_relative", encoder_with({"segment_cache"}), {"backbone.attention.type=relative", cache});
    add("mt", encoder_with({"memory_tokens"}), {softmax, "memory[0].num_mem_tokens=2"});
    add("mt_authors", encoder_with({"memory_tokens"}),
        {softmax, "memory[0].num_mem_tokens=2", "memory[0].variant=authors"});
    add("rmt_xl", encoder_with({"recurrent_tokens", "segment_cache"}), {softmax, "memory[1].mem_len=4"});
    return list;
  }();
  return all;
}

const std::vector<Configuration>& classifiers() {
  static const std::vector<Configuration> all = [] {
    std::vector<Configuration> list;
    const auto add = [&](const std::string& name, std::vector<std::string> assignments,
                         const std::vector<std::string>& more) {
      assignments.insert(assignments.end(),
                         {"backbone.attention.type=softmax", "head.type=classification", "head.num_classes=3"});
      assignments.insert(assignments.end(), more.begin(), more.end());
      list.push_back(configuration("classifier_" + name, assignments));
    };
    add("cls", encoder_with({}), {"head.hidden_dim=6"});
    add("mean", encoder_with({}), {"head.pool=mean", "backbone.position.type=sinusoidal"});
    add("rmt", encoder_with({"recurrent_tokens"}), {"head.pooler=tanh"});
    add("rmt_authors", encoder_with({"recurrent_tokens"}), {"head.pooler=tanh", "memory[0].memory_position=authors"});
    add("grc", encoder_with({"grc"}), {});
    add("grc_authors", encoder_with({"grc"}), {"memory[0].variant=authors", "head.pool=mean"});
    add("abc", encoder_with({"recurrent_tokens"}), {"backbone.attention.type=abc", "backbone.attention.num_slots=3"});
    return list;
  }();
  return all;
}

const std::vector<Configuration>& configurations() {
  static const std::vector<Configuration> all = [] {
    std::vector<Configuration> list = combinations();
    list.insert(list.end(), variants().begin(), variants().end());
    return list;
  }();
  return all;
}

std::vector<base::Node> small_memories() {
  const auto& mechanisms = models::Mechanisms::all();
  std::vector<base::Node> all;
  for (const std::string& name : mechanisms.memories.names()) {
    if (mechanisms.memories.find(name).seam(false) == core::Seam::tasks) continue;
    base::Node node = base::Node::table();
    for (const std::string& assignment : small_sizes(mechanisms.memory_types, name, "memory"))
      base::set_value(node, assignment);
    all.push_back(node.at("memory"));
  }
  return all;
}

Configuration selecting_all(Configuration configuration) {
  bool selects = false;
  for (base::TypedOptions& memory : configuration.options.memory) {
    const base::Node table = memory.table();
    if (table.find("top_k") == nullptr) continue;
    memory.set("top_k", table.at("memory_len"));
    selects = true;
  }
  if (selects) configuration.name += "_selecting_all";
  return configuration;
}

std::unique_ptr<models::Model> make_model(const models::ModelOptions& options, at::ScalarType dtype, uint64_t seed) {
  auto model = models::build(options, seed, dtype);
  const at::NoGradGuard no_grad;
  Numbers numbers(seed + 100);
  for (const layers::Parameter& parameter : model->parameters().all()) {
    const bool scale = parameter.kind == layers::ParameterKind::norm && parameter.name.ends_with("weight");
    at::Tensor tensor = parameter.tensor;
    tensor.copy_(numbers.normal(tensor.sizes()) * 0.3 + (scale ? 1.0 : 0.0));
  }
  return model;
}

core::State warm_state(models::Model& model, int64_t batch, uint64_t seed) {
  const at::NoGradGuard no_grad;
  Numbers numbers(seed);
  at::Tensor input = numbers.tokens({batch, 7}, kVocab);
  if (model.options().kind == models::ModelOptions::Kind::layer_stack)
    input = numbers.normal({batch, 7, model.backbone().dim()});
  const Outcome warm = run(model, input, segments({3, 4}), model.initial_state(batch), core::Mode::train);
  model.commit(warm.state);
  return core::detach(warm.state);
}

}  // namespace mnemo::test
