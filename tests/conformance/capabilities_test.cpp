// Whatever an attention can do is there through every memory that wraps it.
#include <algorithm>
#include <map>
#include <set>

#include "base/error.h"
#include "core/decode.h"
#include "core/inspection.h"
#include "core/reads_heads.h"
#include "memory/grc.h"
#include "models/registry.h"
#include "tests/conformance/suite.h"

namespace mnemo::test {
namespace {

constexpr int64_t kWidth = 8, kNumHeads = 2, kPlaces = 16;
constexpr core::Grid kGrid{4, 4};

struct ProbeState {
  at::Tensor rows;
  template <class F>
  void visit(F&& f) {
    f("rows", rows, "B M D");
  }
};

/// An attention that can do everything, and refuses a state that is not its own.
class Probe final : public core::CoreAttention, public core::ReadsHeads {
 public:
  explicit Probe(const core::AttentionBuild& build)
      : maps_(build.attn, build.dim, build.num_heads, build.head_dim, true, true, build.init_std) {}
  Heads heads(const core::AttentionInput& input, const core::State& state) const override {
    return {own(state) * input.x, state};
  }
  at::Tensor project(const at::Tensor& heads) const override { return heads; }
  core::State initial_state(int64_t batch) const override {
    return ProbeState{at::empty({batch, 0, kWidth}, at::kDouble)};
  }
  core::AttentionSupport support() const override {
    return {.keeps_state = true, .moves_at_ends = true, .sees_ahead = true};
  }
  int64_t bptt_depth(std::string_view field) const override { return field == "rows" ? 7 : -100; }
  int64_t max_rows(std::string_view field, core::Mode) const override { return field == "rows" ? 11 : -100; }
  const layers::AttentionProjections* projections() const override { return &maps_; }
  const core::ReadsHeads* reads_heads() const override { return this; }
  at::Tensor read(const at::Tensor& q, const at::Tensor&, const at::Tensor&) const override { return q; }
  at::Tensor reduced(const at::Tensor& rows, core::Grid) const override { return rows * 2.0; }
  core::AttentionView inspect(const core::AttentionInput& input, const core::State& state,
                              const core::State&) const override {
    return {{{"probe", core::MapAxis::queries, core::MapAxis::keys, own(state) * input.x}}, {{"probe", input.x}}};
  }
  core::State history(const core::AttentionInput&, const core::State& state, const core::State&) const override {
    return ProbeState{own(state).expand({1, 1, 1})};
  }
  std::vector<core::BranchRows> branches(const core::AttentionInput& input, const core::State& state) const override {
    return {{"probe", own(state) * input.x}};
  }
  std::vector<core::Scalar> scalars() const override { return {{"probe", {1.0}}}; }

 private:
  /// One; throws for a state of another attention.
  static at::Tensor own(const core::State& state) { return at::ones({1, 1, 1}, state.as<ProbeState>().rows.options()); }
  layers::AttentionProjections maps_;
};

template <class List>
std::set<std::string> names_in(const List& list) {
  std::set<std::string> names;
  for (const auto& one : list) names.insert(one.name);
  return names;
}

/// A capability of an attention, as a set of words: what it has of it.
using Capability = std::set<std::string>;

/// Everything that an attention can do for that input. `prefix`: before the names of its state's fields.
std::map<std::string, Capability> capabilities(const core::Attention& attention, const core::AttentionInput& input,
                                               const std::string& prefix) {
  std::map<std::string, Capability> all;
  const core::State state = attention.initial_state(input.x.size(0));
  for (const auto& [field, tensor] : state.fields()) {
    if (!field.path.starts_with(prefix)) continue;
    const std::string name = field.path.substr(prefix.size());
    all["bptt_depth"].insert(fmt::format("{} {}", name, attention.bptt_depth(field.path)));
    all["max_rows"].insert(fmt::format("{} {}", name, attention.max_rows(field.path, input.mode)));
  }
  const core::AttentionSupport support = attention.support();
  for (const auto& [has, name] : {std::pair(support.keeps_state, "keeps_state"),
                                  {support.sees_ahead, "sees_ahead"},
                                  {support.moves_at_ends, "moves_at_ends"}})
    if (has) all["support"].insert(name);
  if (attention.projections() != nullptr) all["projections"] = {"q, k, v"};
  if (attention.reads_heads() != nullptr) all["reads_heads"] = {"read"};
  // What is given to it is of an image of kGrid.
  const at::Tensor ones = at::ones({1, kPlaces, kWidth}, at::kDouble), reduced = attention.reduced(ones, kGrid);
  if (!reduced.is_same(ones)) all["reduced"] = {fmt::format("{} {}", reduced.size(1), reduced.sum().item<double>())};
  const core::AttentionView view = attention.inspect(input, state, {});
  all["maps"] = names_in(view.maps);
  all["gates"] = names_in(view.gates);
  if (!attention.history(input, state, {}).empty()) all["history"] = {"state"};
  all["branches"] = names_in(attention.branches(input, state));
  all["scalars"] = names_in(attention.scalars());
  return all;
}

/// What the inner attention can do and the attention around it cannot.
std::vector<std::string> lost(const std::map<std::string, Capability>& inner,
                              const std::map<std::string, Capability>& outer) {
  std::vector<std::string> missing;
  for (const auto& [name, inside] : inner) {
    const auto found = outer.find(name);
    for (const std::string& one : inside)
      if (found == outer.end() || !found->second.contains(one)) missing.push_back(name + ": " + one);
  }
  return missing;
}

using MakeCore = std::function<std::unique_ptr<core::CoreAttention>(const core::AttentionBuild&)>;
using Wrap = std::function<std::unique_ptr<core::Attention>(const core::AttentionBuild&,
                                                            std::unique_ptr<core::CoreAttention>)>;

/// A memory around an attention: all that is registered, in texts and in images.
struct Wrapper {
  std::string name;
  Wrap wrap;
};

std::vector<Wrapper> wrappers(const core::ImageLayout& image) {
  const auto& mechanisms = models::Mechanisms::all();
  std::vector<Wrapper> all;
  const auto add = [&](const std::string& type, const base::Node& table, const std::string& name) {
    const memory::Entry& entry = mechanisms.memories.find(type);
    const base::TypedOptions options = mechanisms.memory_types.read(table);
    if (!image.given() && entry.wrap_attention)
      all.push_back({name, [&entry, options](const auto& build, auto inner) {
                       return entry.wrap_attention(options, build, std::move(inner));
                     }});
    if (image.given() && entry.wrap_image_attention)
      all.push_back({name, [&entry, options, image](const auto& build, auto inner) {
                       return entry.wrap_image_attention(options, build, image, std::move(inner));
                     }});
  };
  for (const std::string& type : mechanisms.memories.names())
    if (!mechanisms.memories.find(type).tasks) add(type, base::Node::table({{"type", type}}), type);
  if (image.given())
    add("grc", base::Node::table({{"type", "grc"}, {"position", "cpe_alone"}}), "grc, its position alone");
  return all;
}

/// One attention with parameters of its own, and a call of it.
struct Subject {
  Subject(bool causal, const core::ImageLayout& image, const MakeCore& make, const Wrap& wrap = {})
      : parameters(1, at::kDouble),
        table({core::SpanKind::tokens, kPlaces}, causal ? core::Rule::causal() : core::Rule::all()) {
    const layers::Scope root = parameters.root(), attn = root / "attn";
    const core::AttentionBuild build{attn, root, root, kWidth, kNumHeads, kWidth / kNumHeads, causal, 0.3};
    std::unique_ptr<core::CoreAttention> core = make(build);
    if (wrap) {
      attention = wrap(build, std::move(core));
    } else {
      attention = std::move(core);
    }
    rows.grid = kGrid;
    if (image.given()) shown = &rows;
  }

  std::map<std::string, Capability> can(const std::string& prefix = {}) const {
    const at::NoGradGuard no_grad;
    const at::Tensor x = Numbers(3).normal({2, kPlaces, kWidth});
    return capabilities(*attention, {x, {}, table, core::Mode::evaluate, true, {}, shown}, prefix);
  }
  bool decodes() const { return attention->decoder(core::DecodeBuild{.runs = false}) != nullptr; }

  layers::ParameterSet parameters;
  core::AttendTable table;
  core::ImageRows rows;
  const core::ImageRows* shown = nullptr;
  std::unique_ptr<core::Attention> attention;
};

/// Where the state of the inner attention stands in that of the outer one.
std::string prefix_in(const core::Attention& outer) {
  for (const auto& [field, tensor] : outer.initial_state(1).fields())
    if (field.path == "rows") return {};
  return "core.";
}

TEST(Capabilities, OfAnAttentionThatCanDoEverythingAreThereThroughEveryMemory) {
  const MakeCore make = [](const core::AttentionBuild& build) { return std::make_unique<Probe>(build); };
  std::set<std::string> seen;
  for (const core::ImageLayout& image : {core::ImageLayout{}, core::ImageLayout{.grid = kGrid}}) {
    for (const Wrapper& wrapper : wrappers(image)) {
      const Subject inner(!image.given(), image, make), outer(!image.given(), image, make, wrapper.wrap);
      const auto inside = inner.can();
      EXPECT_EQ(inside.size(), 11U);
      EXPECT_EQ(lost(inside, outer.can(prefix_in(*outer.attention))), std::vector<std::string>()) << wrapper.name;
      seen.insert(wrapper.name);
    }
  }
  EXPECT_EQ(seen, (std::set<std::string>{"attention_cache", "grc", "grc, its position alone", "knn"}));
}

TEST(Capabilities, OfEveryAttentionAreThereThroughEveryMemory) {
  const auto& mechanisms = models::Mechanisms::all();
  std::map<std::string, std::set<std::string>> around;  // by memory
  const auto check = [&](const std::string& name, bool causal, const core::ImageLayout& image, const MakeCore& make) {
    std::optional<Subject> inner;
    try {
      inner.emplace(causal, image, make);
    } catch (const base::InputError&) {
      return;  // of the other direction
    }
    const auto inside = inner->can();
    EXPECT_TRUE(inside.at("maps").contains("attention")) << name;
    for (const Wrapper& wrapper : wrappers(image)) {
      std::optional<Subject> outer;
      try {
        outer.emplace(causal, image, make, wrapper.wrap);
      } catch (const base::InputError&) {
        continue;
      }
      around[wrapper.name].insert(name);
      const std::string where = fmt::format("{} around {}{}", wrapper.name, name, causal ? ", causal" : "");
      const bool apart = outer->attention->initial_state(1).fields().size() !=
                         inner->attention->initial_state(1).fields().size();
      EXPECT_EQ(lost(inside, outer->can(apart ? "core." : "")), std::vector<std::string>()) << where;
      EXPECT_EQ(causal && outer->decodes(), causal && inner->decodes()) << where;
    }
  };
  for (const std::string& type : mechanisms.attentions.names()) {
    const base::TypedOptions options = mechanisms.attention_types.read(base::Node::table({{"type", type}}));
    const MakeCore make = [&](const auto& build) { return mechanisms.attentions.find(type).make(options, build); };
    for (const bool causal : {true, false}) check(type, causal, {}, make);
    if (type == "softmax") check(type, false, {.grid = kGrid}, make);
  }
  for (const std::string& type : mechanisms.image_attentions.names()) {
    const bool reduces = type == "spatial_reduction", windows = type == "shifted_window";
    base::Node table = base::Node::table({{"type", type}});
    if (reduces) table.set("sr_ratio", 2);
    const base::TypedOptions options = mechanisms.image_attention_types.read(table);
    check(type, false, {.grid = kGrid, .sr_ratio = reduces ? 2 : 0, .windows = windows},
          [&](const auto& build) { return mechanisms.image_attentions.find(type).make(options, build); });
  }
  // A memory refuses an attention only where it says why: kNN one without keys and values of single rows, the cache
  // of images one in windows.
  const std::vector<std::string> texts = mechanisms.attentions.names(), images = mechanisms.image_attentions.names();
  std::set<std::string> all(texts.begin(), texts.end());
  all.insert(images.begin(), images.end());
  EXPECT_EQ(around["grc"], all);
  EXPECT_EQ(around["knn"], (std::set<std::string>{"disentangled", "linear", "relative", "relative_buckets",
                                                  "sliding_window", "softmax"}));
  EXPECT_EQ(around["attention_cache"], (std::set<std::string>{"softmax", "spatial_reduction"}));
  EXPECT_EQ(around["grc, its position alone"],
            (std::set<std::string>{"shifted_window", "softmax", "spatial_reduction"}));
}

}  // namespace
}  // namespace mnemo::test
