#include "recipes/recipe_sweep.h"

#include <gtest/gtest.h>

#include <fstream>

#include "base/error.h"
#include "recipes/recipe.h"
#include "tests/support/expect_error.h"
#include "tests/support/temporary_folder.h"

namespace mnemo::recipes {
namespace {

class Sweeps : public testing::Test {
 protected:
  /// A file with one study of two variants and this sweep.
  std::string with(const std::string& sweep, const std::string& more = "") {
    return R"([data]
type = "algorithmic"
task = "copy"
num_symbols = 12
[model]
segment_size = 6
[[study]]
name = "Copy"
[study.sweep]
)" + sweep +
           R"(
[[study.variant]]
name = "cache"
model.memory = [{ type = "segment_cache" }]
tied = { "model.memory[0].mem_len" = "model.segment_size" }
[[study.variant]]
name = "RMT"
model.memory = [{ type = "recurrent_tokens", num_mem_tokens = 3 }]
)" + more;
  }
  RecipeFile read(const std::string& text, const std::vector<std::string>& set = {}) {
    const std::string path = folder_ / "a.toml";
    std::ofstream(path) << text;
    return RecipeFile::read(path, set);
  }
  std::string error_of(const std::string& text) {
    try {
      read(text);
    } catch (const base::InputError& error) {
      return error.what();
    }
    return "no error";
  }
  Recipe recipe(const RecipeFile& file, const std::string& name) { return read_recipe(file.recipe(name)); }
  test::TemporaryFolder folder_;
};

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST_F(Sweeps, PointsAreTheProductTheLastAxisFastest) {
  const RecipeFile file = read(
      with("model.segment_size = [4, 6, 9]\ntrain.optimiser.lr = [1e-3, 2e-3]\nseeds = [3, 5]\n"));
  const RecipeStudy& study = file.studies().at(0);
  ASSERT_EQ(study.points.size(), 6u);
  EXPECT_EQ(study.points[1], (SweepPoint{0, 1}));
  EXPECT_EQ(study.sweep.seeds, (std::vector<int64_t>{3, 5}));
  EXPECT_EQ(point_label(study.sweep, study.points[5]), "model.segment_size 9, train.optimiser.lr 0.002");
  const Recipe last = read_recipe(*study.variants[0].recipes[5]);
  EXPECT_EQ(last.model.segment_size, 9);
  EXPECT_EQ(last.train.optimiser.at("lr").as_double(), 2e-3);
}

TEST_F(Sweeps, TiedKeysFollow) {
  const RecipeFile file = read(with("model.segment_size = [4, 9]\n"));
  EXPECT_EQ(recipe(file, "cache, model.segment_size 4").model.memory[0].table().at("mem_len").as_int(), 4);
  EXPECT_EQ(recipe(file, "Copy/cache, model.segment_size 9").model.memory[0].table().at("mem_len").as_int(), 9);
  EXPECT_EQ(recipe(file, "RMT, model.segment_size 9").model.memory[0].table().at("num_mem_tokens").as_int(), 3);
  // Without a sweep, a tied key uses the recipe's value.
  EXPECT_EQ(recipe(read(with("")), "cache").model.memory[0].table().at("mem_len").as_int(), 6);
}

TEST_F(Sweeps, NamesOfOnesOwnAreHandedOnByTies) {
  std::string text = with("memory_size = [2, 5]\n");
  text += "tied = { \"model.memory[0].num_mem_tokens\" = \"memory_size\" }\n";
  const RecipeFile file = read(text);
  EXPECT_EQ(recipe(file, "RMT, memory_size 5").model.memory[0].table().at("num_mem_tokens").as_int(), 5);
  EXPECT_EQ(recipe(file, "cache, memory_size 5").model.memory[0].table().at("mem_len").as_int(), 6);
}

TEST_F(Sweeps, TheNumberOfSegmentsSaysHowLongOneIs) {
  std::string text = with("data.num_segments = [1, 3, 9]\n");
  text.erase(text.find("segment_size = 6"), 16);
  const RecipeFile file = read(text);
  EXPECT_EQ(recipe(file, "RMT, data.num_segments 9").data.at("num_segments").as_int(), 9);
  EXPECT_EQ(recipe(file, "cache, data.num_segments 1").model.memory[0].table().at("mem_len").as_int(), 36);
  EXPECT_EQ(recipe(file, "cache, data.num_segments 9").model.memory[0].table().at("mem_len").as_int(), 4);
}

TEST_F(Sweeps, KeysThatMoveTogetherAreOneAxis) {
  const RecipeFile file = read(
      with("together = [{ \"data.num_symbols\" = [8, 12], \"model.segment_size\" = [4, 6] }]\n"));
  ASSERT_EQ(file.studies()[0].points.size(), 2u);
  EXPECT_EQ(recipe(file, "RMT, data.num_symbols 8").model.segment_size, 4);
  EXPECT_EQ(recipe(file, "RMT, data.num_symbols 12").model.segment_size, 6);
  const std::string error = error_of(
      with("together = [{ \"data.num_symbols\" = [8, 12], \"model.segment_size\" = [6] }]\n"));
  EXPECT_TRUE(contains(
      error,
      "a.toml:10: 'study[0].sweep.together.model.segment_size': expected 2 values, as many as 'data.num_symbols'"))
      << error;
}

TEST_F(Sweeps, NoPointComesTwice) {
  std::string error = error_of(with("model.segment_size = [4, 6, 4]\n"));
  EXPECT_TRUE(contains(error, "a.toml:10: 'study[0].sweep.model.segment_size': 4 appears twice")) << error;
  error = error_of(with("together = [{ \"data.num_symbols\" = [8, 8], \"model.segment_size\" = [6, 6] }]\n"));
  EXPECT_TRUE(contains(error, "'study[0].sweep.together.data.num_symbols': 8 appears twice")) << error;
  EXPECT_EQ(error_of(with("together = [{ \"data.num_symbols\" = [8, 8], \"model.segment_size\" = [4, 6] }]\n")),
            "no error");
}

TEST_F(Sweeps, PointsMayBeLeftOut) {
  const RecipeFile file = read(
      with("model.segment_size = [1, 3, 9]\nskip = [{ \"model.segment_size\" = 1 }, { \"model.segment_size\" = "
           "[3, 9], variant = \"RMT\" }]\n"));
  const RecipeStudy& study = file.studies()[0];
  ASSERT_EQ(study.points.size(), 2u);
  EXPECT_TRUE(study.variants[0].recipes[0].has_value());
  EXPECT_FALSE(study.variants[1].recipes[0].has_value());
  EXPECT_FALSE(study.variants[1].recipes[1].has_value());
  EXPECT_TRUE(contains(error_of(with("model.segment_size = [1, 3]\nskip = [{ \"model.segment_size\" = 4 }]\n")),
                       "'study[0].sweep.skip.model.segment_size': expected swept values"));
  EXPECT_TRUE(contains(error_of(with("model.segment_size = [1, 3]\nskip = [{ \"model.segmnt_size\" = 3 }]\n")),
                       "did you mean 'model.segment_size'"));
  EXPECT_TRUE(contains(error_of(with("model.segment_size = [1, 3]\nskip = [{ variant = \"cache\" }]\n")),
                       "leaves out the baseline"));
  EXPECT_TRUE(contains(error_of(with("model.segment_size = [1, 3]\nskip = [{ \"model.segment_size\" = [1, 3] }]\n")),
                       "leaves no point"));
}

TEST_F(Sweeps, OneSweepForAllStudies) {
  const std::string two =
      "data.train = \"x.txt\"\n[sweep]\nmodel.segment_size = [4, 8]\n[[study]]\nname = \"a\"\n[[study.variant]]\nname "
      "= \"v\"\n"
      "[[study]]\nname = \"b\"\nsweep.model.segment_size = [16]\n[[study.variant]]\nname = \"v\"\n";
  const RecipeFile file = read(two);
  EXPECT_EQ(file.studies()[0].points.size(), 2u);
  EXPECT_EQ(file.studies()[1].points.size(), 1u);
  EXPECT_EQ(read(two, {"sweep.model.segment_size=[4]"}).studies()[0].points.size(), 1u) << "b has its own, a has not";
  const RecipeFile alone = read("name = \"sizes\"\ndata.train = \"x.txt\"\n[sweep]\nmodel.segment_size = [4, 8]\n");
  ASSERT_EQ(alone.studies().size(), 1u);
  EXPECT_EQ(alone.studies()[0].name, "sizes");
  EXPECT_EQ(recipe(alone, "the model, model.segment_size 8").model.segment_size, 8);
}

TEST_F(Sweeps, TheCommandLineReachesIntoASweepAndWinsOverIt) {
  const RecipeFile file = read(with("model.segment_size = [1, 3]\n"),
                               {"study[0].sweep.model.segment_size=[18]", "train.steps=9"});
  ASSERT_EQ(file.studies()[0].points.size(), 1u);
  EXPECT_EQ(recipe(file, "RMT").model.segment_size, 18);
  EXPECT_EQ(recipe(file, "RMT").train.steps, 9);
  for (const char* assignment : {"model.segment_size=4", " model.segment_size =4", "model={ segment_size = 4 }"}) {
    test::expect_error<base::InputError>([&] { read(with("model.segment_size = [1, 3]\n"), {assignment}); },
                                         {"sweeps over 'model.segment_size'", "study[0].sweep.model.segment_size="});
  }
  test::expect_error<base::InputError>(
      [&] { read(with("\"model.memory[0].num_mem_tokens\" = [1, 3]\n"), {"model.memory=[]"}); },
      {"'model.memory'", "sweeps over 'model.memory[0].num_mem_tokens'",
       "--set 'study[0].sweep.\"model.memory[0].num_mem_tokens\"=[...]'"});
  const std::string cache =
      "data.train = \"x.txt\"\n[[model.memory]]\ntype = \"segment_cache\"\n[sweep]\n\"model.memory[0].mem_len\" = [2, "
      "8]\n";
  test::expect_error<base::InputError>([&] { read(cache, {"model.memory.0.mem_len=4"}); },
                                       {"sweeps over 'model.memory[0].mem_len'"});
  EXPECT_EQ(read(cache, {"sweep.\"model.memory[0].mem_len\"=[4]"}).studies()[0].points.size(), 1u);
  test::expect_error<base::InputError>(
      [&] { read(with("train.optimiser.lr = [1e-3, 2e-3]\n"), {"train.optimizer.lr=1e-4"}); },
      {"sweeps over 'train.optimiser.lr'"});
  test::expect_error<base::InputError>([&] { read(with("seeds = [0, 1]\n"), {"train.seed=3"}); },
                                       {"'train.seed'", "lists its seeds", "--set 'study[0].sweep.seeds=[...]'"});
  const std::string alone = "data.train = \"x.txt\"\n[sweep]\nmodel.segment_size = [4, 8]\n";
  test::expect_error<base::InputError>([&] { read(alone, {"model.segment_size=2"}); },
                                       {"--set 'sweep.model.segment_size=[...]'"});
  EXPECT_EQ(read(alone, {"sweep.model.segment_size=[2]"}).studies()[0].points.size(), 1u);
  for (const char* lost : {"sweep.model.segment_size=[18]", "sweep={ model = { segment_size = [18] } }"})
    test::expect_error<base::InputError>([&] { read(with("model.segment_size = [1, 3]\n"), {lost}); },
                                         {"every study has its own", "expected 'study[0].sweep."});
}

TEST_F(Sweeps, VariantsThatAreKeptLeaveOutPointsWithoutThem) {
  const std::string
      sweep = "train.optimiser.lr = [1e-3, 2e-3]\nskip = [{ \"train.optimiser.lr\" = 1e-3, variant = \"RMT\" }]\n";
  RecipeFile file = read(with(sweep));
  file.keep_only({"RMT"});
  ASSERT_EQ(file.studies()[0].points, (std::vector<SweepPoint>{{1}}));
  EXPECT_TRUE(file.studies()[0].variants[0].recipes.at(0).has_value());
  const std::string third = "[[study.variant]]\nname = \"none\"\nmodel.memory = []\n";
  RecipeFile both = read(with(sweep, third));
  test::expect_error<base::InputError>(
      [&] {
        both.keep_only({"RMT", "none"});
      },
      {"--only: the study 'Copy' skips 'RMT'", "at train.optimiser.lr 0.001"});
}

TEST_F(Sweeps, MistakesNameFileLineKeyAndWhatIsPossible) {
  const std::pair<const char*, const char*> mistakes[] = {
      {"togther = [3]\n", "a.toml:10: unknown key 'study[0].sweep.togther'; did you mean 'together'?"},
      {"slots = [3]\n", "or a name that `tied` of the study or of a variant uses"},
      {"model.segmnt_size = [3]\n", "a.toml:10: unknown key 'model.segmnt_size'; did you mean 'segment_size'?"},
      {"model.segment_size = []\n",
       "a.toml:10: 'study[0].sweep.model.segment_size': expected a non-empty list of values, found an empty list"},
      {"model.segment_size = 8\n",
       "a.toml:10: 'study[0].sweep.model.segment_size': expected a non-empty list of values, found integer 8"},
      {"model.segment_size = [8, 0]\n", "a.toml:10: 'model.segment_size': expected 1 to 1048576, found integer 0"},
      {"model.segment_size = [\"x\"]\n", "a.toml:10: 'model.memory[0].mem_len': expected integer, found string \"x\""},
      {"\"model.memory[4].mem_len\" = [8]\n", "a.toml:10: 'model.memory[4].mem_len': index 4 is out of range"},
      {"train.seed = [1, 2]\n", "seeds are listed as seeds = [0, 1, 2]"},
      {"seeds = []\n", "'study[0].sweep.seeds': expected a non-empty list of seeds, found an empty list"},
      {"seeds = [1, 1]\n", "1 appears twice"},
      {"seeds = [-1]\n", "expected integers of at least 0, found integer -1"},
      {"model.segment_size = [4]\n\"model.segment_size\" = [6]\n",
       "a.toml:11: 'study[0].sweep.model.segment_size': is listed twice in this sweep; expected once (--set needs "
       "quotes where the recipe has them: sweep.\"model.segment_size\")"},
      {"model.segment_size = [3]\nfigure = { x = \"model.segmnt_size\" }\n", "did you mean 'model.segment_size'"},
      {"model.segment_size = [3]\nfigure = { y = 3 }\n", "unknown key 'study[0].sweep.figure.y'"},
  };
  for (const auto& [sweep, message] : mistakes)
    EXPECT_TRUE(contains(error_of(with(sweep)), message)) << sweep << error_of(with(sweep));
  std::string many = "model.segment_size = [";
  for (int i = 1; i <= 101; ++i) many += std::to_string(i) + ", ";
  std::string more = "]\ntrain.steps = [";
  for (int i = 1; i <= 100; ++i) more += std::to_string(i) + ", ";
  EXPECT_TRUE(contains(error_of(with(many + more + "]\n")), "more than 10000 points"));
}

TEST_F(Sweeps, MistakesInTies) {
  const std::string study = with("");
  EXPECT_TRUE(contains(error_of(study + "tied = { mem_len = \"model.segment_size\" }\n"),
                       "'study[0].variant[1].tied.mem_len'; expected a key of the recipe"));
  EXPECT_TRUE(
      contains(error_of(study + "tied = { \"train.steps\" = 3 }\n"), "expected the key or name whose value it takes"));
  EXPECT_TRUE(contains(error_of(study + "tied = { \"train.steps\" = \"memory_size\" }\n"),
                       "expected a key of the recipe or of the sweep, found 'memory_size'"));
  EXPECT_TRUE(
      contains(error_of(study + "tied = { \"train.steps\" = \"train.stops\" }\n"), "the recipe has no 'train.stops'"));
}

TEST_F(Sweeps, PaperValuesStandAtAPoint) {
  const std::string sweep = "model.segment_size = [1, 3]\n";
  const RecipeFile file = read(with(sweep,
                                    "[[study.paper]]\nvariant = \"RMT\"\npoint = { \"model.segment_size\" = 12 "
                                    "}\nvalue = 0.99\ndeviation = 0.01\nsource = \"figure 2\"\n"));
  ASSERT_EQ(file.studies()[0].paper.size(), 1u);
  const PaperValue& value = file.studies()[0].paper[0];
  EXPECT_EQ(value.at.at(0).as_int(), 12);
  EXPECT_EQ(value.value, 0.99);
  EXPECT_EQ(value.deviation, 0.01);
  const std::pair<const char*, const char*> mistakes[] = {
      {"variant = \"RTM\"\npoint = { \"model.segment_size\" = 1 }\nvalue = 1\nsource = \"x\"\n",
       "'study[0].paper[0].variant': expected a variant of this study, found 'RTM'; did you mean 'RMT'?"},
      {"variant = \"RMT\"\npoint = { segments = 1 }\nvalue = 1\nsource = \"x\"\n",
       "unknown key 'study[0].paper[0].point.segments'"},
      {"variant = \"RMT\"\nvalue = 1\nsource = \"x\"\n",
       "'study[0].paper[0].point': key 'model.segment_size' is missing"},
      {"variant = \"RMT\"\npoint = { \"model.segment_size\" = 1 }\nsource = \"x\"\n", "key 'value' is missing"},
      {"variant = \"RMT\"\npoint = { \"model.segment_size\" = 1 }\nvalue = 1\n", "key 'source' is missing"},
      {"variant = \"RMT\"\npoint = { \"model.segment_size\" = 1 }\nvalue = 99.5\nsource = \"x\"\n",
       "'study[0].paper[0].value': expected 0 to 1, found 99.5; 99.5 % is 0.995"},
  };
  for (const auto& [paper, message] : mistakes) {
    const std::string error = error_of(with(sweep, std::string("[[study.paper]]\n") + paper));
    EXPECT_TRUE(contains(error, message)) << error;
  }
}

TEST(SweepAxisLabels, NumbersNamesAndTables) {
  const base::Node file = base::parse_toml(
      "a = [1, 2.5]\nb = [\"relu\", \"gelu\"]\nc = [{ type = \"softmax\" }, { type = \"abc\", num_slots = 4 }]\n", "a");
  const auto axis = [&](const char* key) {
    SweepAxis made{{key}, {}};
    for (const base::Node& value : file.at(key).items()) made.values.push_back({value});
    return made;
  };
  EXPECT_EQ(axis("a").label(1), "2.5");
  EXPECT_EQ(axis("a").number(1), 2.5);
  EXPECT_EQ(axis("b").label(0), "relu");
  EXPECT_FALSE(axis("b").number(0).has_value());
  EXPECT_EQ(axis("c").label(1), "abc");
}

}  // namespace
}  // namespace mnemo::recipes
