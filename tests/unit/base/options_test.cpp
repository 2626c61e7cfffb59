#include "base/options.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "base/choice_name.h"
#include "tests/support/expect_error.h"
#include "tests/support/sample_options.h"

namespace mnemo::base {
namespace {

using test::expect_error;
using test::SampleCache;
using test::SampleNothing;
using test::SampleOptimizer;
using test::SampleOptions;

SampleOptions read(const std::string& toml) { return read_options<SampleOptions>(parse_toml(toml, "r.toml")); }

TEST(ReadOptions, SetsWhatIsNamedAndKeepsTheRest) {
  const SampleOptions options = read(R"(
    name = "x"
    causal = false
    cutoffs = [1, 2]
    files = ["a", "b"]
    deterministic = true
    depth = 3
    shape = []
    optimizer.learning_rate = 2
    optimizer.warmup = 7
    cache.bptt_depth = "full"
    [[phases]]
    [[phases]]
    betas = [0, 0.5]
  )");
  SampleOptions expected;
  expected.name = "x";
  expected.causal = false;
  expected.cutoffs = {1, 2};
  expected.files = {"a", "b"};
  expected.deterministic = true;
  expected.depth = Depth{3};
  expected.shape = std::vector<int64_t>{};
  expected.optimizer.learning_rate = 2;
  expected.optimizer.warmup = 7;
  expected.cache = SampleCache{};
  expected.phases = {SampleOptimizer{}, SampleOptimizer{.betas = {0, 0.5}}};
  // The attention is completed with defaults.
  expected.attention = Node::table({{"type", "gate"}, {"lambda", 0.5}, {"inner", Node::table({{"type", "nothing"}})}});
  EXPECT_EQ(options, expected);
}

enum class Shape { round, square };
struct EnumOptions {
  Shape shape = Shape::square, undeclared = Shape::square;
  std::optional<Shape> inner;
  template <class V>
  void visit(V&& v) {
    v("shape", shape, "of the hole", one_of("round", "square"));
    v("inner", inner, "of what is in it; unset: the same", one_of("round", "square"));
  }
};

TEST(ReadOptions, AnEnumIsItsName) {
  EnumOptions options = read_options<EnumOptions>(parse_toml("shape = \"round\"\ninner = \"square\"", "r.toml"));
  EXPECT_EQ(options.shape, Shape::round);
  EXPECT_EQ(options.inner, Shape::square);
  EXPECT_EQ(write_options(options), Node::table({{"shape", "round"}, {"inner", "square"}}));
  options = read_options<EnumOptions>(parse_toml("", "r.toml"));
  EXPECT_EQ(options.shape, Shape::square);
  EXPECT_EQ(options.inner, std::nullopt);
  expect_error<InputError>([] { read_options<EnumOptions>(parse_toml("shape = \"rond\"", "r.toml")); },
                           {"r.toml:1", "'shape'", "\"round\" | \"square\"", "found string \"rond\""});
  const auto docs = describe_options<EnumOptions>();
  EXPECT_EQ(docs[0].value, "\"square\"");
  EXPECT_EQ(docs[0].range, "\"round\" | \"square\"");
}

TEST(ReadOptions, AnEnumsNameIsThatOfItsField) {
  EnumOptions options;
  options.shape = Shape::round;
  EXPECT_EQ(choice_name(options, &EnumOptions::shape), "round");
  EXPECT_EQ(choice_name(options, &EnumOptions::undeclared), "");
}

TEST(ReadOptions, OnTopOfOtherOptionsKeepsTheirs) {
  SampleOptions options;
  options.seed = 5;
  options.optimizer.clip = 3;
  options.cutoffs = {9};
  read_options(parse_toml("optimizer.warmup = 1", "r.toml"), options);
  EXPECT_EQ(options.seed, 5);
  EXPECT_EQ(options.optimizer.clip, 3);
  EXPECT_EQ(options.optimizer.warmup, 1);
  EXPECT_EQ(options.cutoffs, (std::vector<int64_t>{9}));
}

TEST(ReadOptions, UnsetEmptiesAnOptional) {
  EXPECT_EQ(read("").optimizer.clip, 1.0);
  EXPECT_EQ(read("optimizer.clip = 'unset'").optimizer.clip, std::nullopt);
  EXPECT_EQ(read_options<SampleOptimizer>(parse_json("{\"clip\": null}", "c.json")).clip, std::nullopt);
  EXPECT_EQ(read("cache = 'unset'").cache, std::nullopt);
  EXPECT_TRUE(read("adapter = 'unset'").adapter.is_null());
}

TEST(ReadOptions, UnsetGivesAnyOtherKeyItsDefault) {
  const SampleOptions defaults = read("");
  for (const char* key : {"name", "seed", "causal", "attention", "memory", "optimizer", "phases", "cutoffs",
                          "optimizer.betas", "optimizer.learning_rate"})
    EXPECT_EQ(read(fmt::format("{} = 'unset'", key)), defaults) << key;
  EXPECT_EQ(read("attention.lambda = 'unset'").attention, read("attention = 'gate'").attention);
  expect_error<InputError>([] { read("optimizer.clip = 0"); }, {"more than 0", "; for none write \"unset\""});
}

TEST(ReadOptions, ErrorsNameFileLineAndFullKey) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"nmae = 'x'", "r.toml:3: unknown key 'nmae'; did you mean 'name'?"},
      {"[[memory]]\ntype = 'segment_cache'\nmem_lne = 3",
       "r.toml:5: unknown key 'memory[0].mem_lne'; did you mean 'mem_len'?"},
      {"optimizer.xyzzy = 1",
       "r.toml:3: unknown key 'optimizer.xyzzy'; known: 'learning_rate', 'betas', 'clip', 'warmup'"},
      {"[[phases]]\n[[phases]]\nclop = 1", "r.toml:5: unknown key 'phases[1].clop'; did you mean 'clip'?"},
      {"'a.b' = 1", "unknown key '\"a.b\"'"},
      {"[cache]\ntype = 'segment_cache'", "r.toml:4: unknown key 'cache.type'"},
      {"seed = 'a'", "r.toml:3: 'seed': expected integer, found string \"a\""},
      {"seed = 1.0", "r.toml:3: 'seed': expected integer, found number 1.0"},
      {"causal = 1", "r.toml:3: 'causal': expected boolean (true or false), found integer 1"},
      {"name = 1", "r.toml:3: 'name': expected string, found integer 1"},
      {"name = ''", "r.toml:3: 'name': expected not empty, found string \"\""},
      {"optimizer.learning_rate = true", "r.toml:3: 'optimizer.learning_rate': expected number, found boolean true"},
      {"optimizer.learning_rate = 0", "r.toml:3: 'optimizer.learning_rate': expected more than 0, found integer 0"},
      {"optimizer.learning_rate = inf",
       "r.toml:3: 'optimizer.learning_rate': expected finite number, found number inf"},
      {"optimizer.learning_rate = nan", "expected finite number, found number nan"},
      {"optimizer = 3", "r.toml:3: 'optimizer': expected table, found integer 3"},
      {"phases = 3", "r.toml:3: 'phases': expected list of tables, found integer 3"},
      {"phases = [3]", "r.toml:3: 'phases[0]': expected table, found integer 3"},
      {"optimizer.betas = [\n0.5,\n1.0]",
       "r.toml:5: 'optimizer.betas[1]': expected at least 0 and less than 1, found number 1.0"},
      {"optimizer.betas = [0.5]", "r.toml:3: 'optimizer.betas': expected 2 numbers, found 1"},
      {"cutoffs = 3", "r.toml:3: 'cutoffs': expected list, found integer 3"},
      {"cutoffs = [0]", "r.toml:3: 'cutoffs[0]': expected at least 1, found integer 0"},
      {"cache.mem_len = -1", "r.toml:3: 'cache.mem_len': expected 0 to 1048576, found integer -1"},
      {"cache.mem_len = 1048577", "expected 0 to 1048576"},
      {"cache.variant = 'autors'",
       "r.toml:3: 'cache.variant': expected \"paper\" | \"authors\", found string \"autors\"; did you mean "
       "\"authors\"?"},
      {"cache.bptt_depth = -1",
       "r.toml:3: 'cache.bptt_depth': expected non-negative integer or \"full\", found integer -1"},
      {"cache.bptt_depth = 1001", "expected 0 to 1000"},
      {"cache.bptt_depth = 'all'", "expected non-negative integer or \"full\", found string \"all\""},
      {"[cache]\nmem_len = 0\nsame_length = true", "r.toml:5: 'cache.same_length': needs mem_len above 0, found 0"},
  };
  for (const auto& [text, message] : cases) {
    expect_error<InputError>([&, &text = text] { read("\n\n" + text + "\n"); }, {message});
  }
  expect_error<InputError>([] { read_options<SampleOptions>(Node(3)); }, {"options: expected table, found integer 3"});
  expect_error<InputError>([] { read_options<SampleOptions>(parse_json("{\"seed\":\nnull}", "c.json")); },
                           {"c.json:2: 'seed': expected integer, found nothing"});
}

TEST(ReadOptions, AnErrorLeavesTheOptionsAlone) {
  SampleOptions options;
  EXPECT_THROW(read_options(parse_toml("name = 'x'\nseed = 'a'", "r.toml"), options), InputError);
  EXPECT_EQ(options, SampleOptions());
}

/// Options that count how often they are read.
struct CountedOptions {
  static inline int reads = 0;
  int64_t rows = 4;
  template <class V>
  void visit(V&& v) {
    v("rows", rows, "rows", range(1, 64));
  }
  void validate(const Where&) const { ++reads; }
};

const OptionTypes& counted_types() {
  static const OptionTypes types = [] {
    OptionTypes made("memory");
    made.add<CountedOptions>("counted", "counts").add<SampleNothing>("nothing", "no memory");
    return made;
  }();
  return types;
}

struct CountedList {
  std::vector<TypedOptions> memory;
  template <class V>
  void visit(V&& v) {
    v("memory", memory, "the memories", poly(counted_types()));
  }
};

TEST(TypedOptionsTest, AreReadOnceAndWrittenAsTheirTable) {
  CountedOptions::reads = 0;
  auto list = read_options<CountedList>(parse_toml("[[memory]]\ntype = 'counted'\n\nrows = 7", "r.toml"));
  TypedOptions& memory = list.memory.at(0);
  EXPECT_EQ(memory.as<CountedOptions>().rows, 7);
  EXPECT_EQ(memory.table(), Node::table({{"type", "counted"}, {"rows", 7}}));
  EXPECT_EQ(TypedOptions(memory).as<CountedOptions>().rows, 7);
  EXPECT_EQ(CountedOptions::reads, 1);
  EXPECT_EQ(memory.where("rows"), "r.toml:4: 'memory[0].rows'");
  EXPECT_EQ(memory.where("unsaid"), "r.toml:1: 'memory[0].unsaid'") << "the place of the table";
  EXPECT_THROW(memory.as<SampleNothing>(), InternalError);
  memory.set("rows", 9);
  EXPECT_EQ(memory.as<CountedOptions>().rows, 9);
  expect_error<InputError>([&] { memory.set("rows", 65); }, {"'memory[0].rows'", "1 to 64"});
  EXPECT_EQ(memory.as<CountedOptions>().rows, 9);
}

TEST(PolyOptions, AreCompletedAndKeepTheirPlaces) {
  const SampleOptions options = read(
      "attention.inner = 'segment_cache'\nmemory = ['nothing', {type = 'segment_cache', mem_len = 3}]");
  EXPECT_EQ(
      to_json(options.attention, -1),
      R"({"type":"gate","lambda":-5.0,"inner":{"type":"segment_cache","mem_len":64,"same_length":false,"variant":"paper","bptt_depth":"full"}})")
      << "a table without a type is of the type the field has by default";
  ASSERT_EQ(options.memory.size(), 2U);
  EXPECT_EQ(options.memory[1].table().path(), "memory[1]");
  EXPECT_EQ(options.memory[1].table().at("mem_len").place().text(), "r.toml:2");
  const auto& cache = options.memory[1].as<SampleCache>();
  EXPECT_EQ(cache.mem_len, 3);
  EXPECT_EQ(read("adapter.type = 'nothing'").adapter, Node::table({{"type", "nothing"}}));
}

TEST(PolyOptions, ErrorsNameTheFullKey) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"memory = [{}]", "r.toml:3: 'memory[0]': key 'type' is missing; known: segment_cache, gate, nothing"},
      {"adapter.lambda = 3", "'adapter': key 'type' is missing"},
      {"memory = [{type = 3}]", "r.toml:3: 'memory[0].type': expected string, found integer 3"},
      {"memory = ['segment_cash']",
       "r.toml:3: 'memory[0].type': unknown memory 'segment_cash'; did you mean 'segment_cache'?"},
      {"memory = 'gate'", "r.toml:3: 'memory': expected list of tables, found string \"gate\""},
      {"memory = [3]", "r.toml:3: 'memory[0]': expected memory table or a type name, found integer 3"},
      {"[[memory]]\ntype = 'gate'\n[memory.inner]\ntype = 'gate'\ninner.mem_len = -3\ninner.type = 'segment_cache'",
       "r.toml:7: 'memory[0].inner.inner.mem_len': expected 0 to 1048576, found integer -3"},
      {"[[memory]]\ntype = 'segment_cache'\nmem_len = 0\nsame_length = true",
       "r.toml:6: 'memory[0].same_length': needs mem_len"},
      {"attention = {type = 'nothing', lambda = 3}", "r.toml:3: unknown key 'attention.lambda'; none are known here"},
  };
  for (const auto& [text, message] : cases) {
    expect_error<InputError>([&, &text = text] { read("\n\n" + text + "\n"); }, {message});
  }
  expect_error<InputError>([] { read_options<SampleOptions>(parse_json("{\"attention\": null}", "c.json")); },
                           {"'attention': expected table"});
}

TEST(WriteOptions, HasEveryField) {
  const Node written = write_options(SampleOptions());
  EXPECT_EQ(written.size(), 15U);
  EXPECT_TRUE(written.at("resume").is_null());
  EXPECT_EQ(written.at("optimizer").at("clip").as_double(), 1.0);
  EXPECT_EQ(write_options(SampleCache()).at("bptt_depth").as_string(), "full");
}

TEST(CheckOptions, ChecksOptionsBuiltInCode) {
  EXPECT_NO_THROW(check_options(SampleOptions()));
  SampleCache cache{.mem_len = -1};
  expect_error<InputError>([&] { check_options(cache); },
                           {"options: 'mem_len': expected 0 to 1048576, found integer -1"});
  cache = {.mem_len = 0, .same_length = true};
  expect_error<InputError>([&] { check_options(cache); }, {"options: 'same_length': needs"});
}

struct Twice {
  int64_t a = 0;
  int64_t b = 0;
  template <class V>
  void visit(V&& v) {
    v("a", a, "one");
    v("a", b, "two");
  }
};

TEST(ReadOptions, AKeyDeclaredTwiceIsOurOwnError) { EXPECT_THROW(read_options<Twice>(Node::table()), InternalError); }

struct WithGiven {
  int64_t steps = 1;
  bool was_given = false;
  template <class V>
  void visit(V&& v) {
    v("steps", steps, "steps");
  }
  void validate(const Where& where) const {
    if (where.given("steps") && steps == 1) where.error("steps", "written out");
  }
};

TEST(Where, KnowsWhatWasWritten) {
  EXPECT_NO_THROW(read_options<WithGiven>(Node::table()));
  expect_error<InputError>([] { read_options<WithGiven>(parse_toml("steps = 1", "r.toml")); },
                           {"r.toml:1: 'steps': written out"});
}

}  // namespace
}  // namespace mnemo::base
