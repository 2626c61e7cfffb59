#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <regex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/node.h"
#include "recipes/recipe.h"

// Variants of a study read equally much, or the study's `about` says what each reads. It names such a variant in single
// quotation marks and then, in the same clause, what differs:
//   a count            "Each training reads 48,000 samples, 'small' and 'smaller' 6,400" or "twice as many"
//   tokens of a sample "1,600 samples of at most 128 tokens, 'two segments' of at most 256"
//   a key of [data]    "'single verses' reads them alone (window = 1, no separator)"
namespace mnemo::experiment {
namespace {

/// The amount of data that a training reads: tokens of a text, images, or samples of another task.
struct Reading {
  int64_t count = 0;
  std::string unit;
  int64_t sample_tokens = 0;                ///< that a sample has at most; 0: the data decide
  std::map<std::string, std::string> keys;  ///< all others that decide what is read, as JSON
};

Reading reading_of(const recipes::Recipe& recipe) {
  const auto task = recipe.task();
  const int64_t rows = recipe.train.steps * recipe.train.batch_size;
  Reading reading;
  std::set<std::string> counted;
  const base::Node* reset = recipe.data.find("reset");
  const base::Node* max_length = recipe.data.find("max_length");
  if (task->input() == core::InputKind::images) {
    reading.count = rows, reading.unit = "images";
  } else if (task->input() == core::InputKind::pairs && reset != nullptr && reset->as_string() == "documents") {
    reading.count = rows * recipe.train.segments_per_step, reading.unit = "pairs";
  } else if (task->input() == core::InputKind::pairs) {
    reading.count = recipe.train.steps * recipe.data.at("batch_tokens").as_int(), reading.unit = "tokens";
    counted = {"batch_tokens"};
    reading.keys["batch_size"] = std::to_string(recipe.train.batch_size);  // the rows of a batch at most
  } else if (task->text() != nullptr) {
    reading.count = rows * recipe.train.segments_per_step * recipe.model.segment_size;
    reading.unit = recipe.data.at("unit").as_string();
    counted = {"reset"};  // moves no token to another step
  } else {
    reading.count = rows, reading.unit = "samples";
    counted = {"num_segments", "curriculum", "curriculum_steps",
               "max_length"};  // a sample has as many tokens in one segment as in several
    reading.keys["segments_per_step"] = std::to_string(recipe.train.segments_per_step);
    if (max_length != nullptr)
      reading.sample_tokens = max_length->as_int() > 0 ? max_length->as_int() : recipe.model.segment_size;
  }
  reading.keys["replay"] = std::to_string(recipe.train.replay);  // segments that a step reads once more
  reading.keys["init"] = recipe.init.value_or("");
  for (const base::Node::Member& member : recipe.data.members()) {
    if (!counted.contains(member.key)) reading.keys[member.key] = base::to_json(member.value, -1);
  }
  return reading;
}

/// 1800000 as "1,800,000".
std::string with_commas(int64_t number) {
  std::string text = std::to_string(number);
  for (size_t end = text.size(); end > 3; end -= 3) text.insert(end - 3, ",");
  return text;
}

int64_t without_commas(std::string text) {
  text.erase(std::remove(text.begin(), text.end(), ','), text.end());
  return std::stoll(text);
}

/// The claim of `about` about one variant.
struct Claim {
  std::optional<int64_t> count;
  std::optional<int64_t> factor;  ///< times the count of the others
  std::optional<int64_t> sample_tokens;
  std::map<std::string, std::string> keys;
  bool contradicts_itself = false;  ///< two counts
};

/// The clause about a variant: `text`, which follows its name, up to the end of the clause. Names that follow share the
/// clause: "'A', 'B' and 'C' twice as many".
std::string clause_of(std::string text) {
  std::smatch found;
  const std::regex next_name("^(, | and )'[^']*'"), end_of_clause("[.;]( |$)|,? (and )?'");
  while (std::regex_search(text, found, next_name)) text = found.suffix();
  return std::regex_search(text, found, end_of_clause) ? found.prefix().str() : text;
}

/// `about` without its claims about these variants, and without text in parentheses.
std::string said_of_all(std::string about, const std::vector<recipes::RecipeVariant>& variants) {
  for (const recipes::RecipeVariant& variant : variants) {
    const std::string quoted = "'" + variant.name + "'";
    for (size_t at; (at = about.find(quoted)) != std::string::npos;) {
      const std::string clause = clause_of(about.substr(at + quoted.size()));
      about.erase(about.find(clause, at), clause.size());
      about.erase(at, quoted.size());
    }
  }
  return std::regex_replace(about, std::regex("\\([^)]*\\)"), "");
}

Claim claim_of(const std::string& about, const std::string& variant, const std::string& unit) {
  Claim claim;
  const std::string quoted = "'" + variant + "'";
  for (size_t at = about.find(quoted); at != std::string::npos; at = about.find(quoted, at + 1)) {
    std::smatch found;
    std::string clause = clause_of(about.substr(at + quoted.size()));
    const auto take = [&](const std::string& pattern, const auto& use) {
      const std::regex wanted(pattern);
      while (std::regex_search(clause, found, wanted)) {
        use(found);
        clause = found.prefix().str() + found.suffix().str();
      }
    };
    const std::string number = "([0-9][0-9,]*[0-9]|[0-9])";
    take("[ (]([a-z_]+) = ([^ ,)]+)", [&](const std::smatch& m) { claim.keys[m[1]] = m[2]; });
    take("[ (]no ([a-z_]+)", [&](const std::smatch& m) { claim.keys[m[1]] = "\"\""; });
    take(" of at most " + number + "( tokens)?",
         [&](const std::smatch& m) { claim.sample_tokens = without_commas(m[1]); });
    take(" twice as many", [&](const std::smatch&) { claim.factor = 2; });
    take(" " + number + " times as many", [&](const std::smatch& m) { claim.factor = without_commas(m[1]); });
    take(" " + number + "($|, | " + unit + ")", [&](const std::smatch& m) {
      const int64_t said = without_commas(m[1]);
      claim.contradicts_itself |= claim.count && *claim.count != said;
      claim.count = said;
    });
  }
  return claim;
}

/// Where the variants of a study read more or less than one another without its saying so, a sentence each.
std::vector<std::string> faults_of(const recipes::RecipeStudy& study) {
  std::vector<std::string> faults;
  const std::string common = said_of_all(study.about, study.variants);
  const auto says = [&](const std::string& text) { return common.find(text) != std::string::npos; };
  for (size_t p = 0; p < study.points.size(); ++p) {
    std::vector<std::pair<Reading, Claim>> all;
    std::set<int64_t> counts, sample_tokens;
    std::map<std::string, std::set<std::string>> keys;
    bool sample_tokens_claimed = false;
    for (const recipes::RecipeVariant& variant : study.variants) {
      if (!variant.recipes[p]) continue;
      const std::string title = "'" + study.title(variant, p) + "'";
      const Reading reading = reading_of(recipes::read_recipe(*variant.recipes[p]));
      const Claim claim = claim_of(study.about, variant.name, reading.unit);
      all.emplace_back(reading, claim);
      if (claim.contradicts_itself) faults.push_back(title + " is said to read two counts");
      for (const auto& [key, value] : claim.keys)
        if (!reading.keys.contains(key)) faults.push_back(title + ": " + key + " does not say what is read");
      if (claim.count) {
        if (*claim.count != reading.count)
          faults.push_back(title + " reads " + with_commas(reading.count) + ", said to read " +
                           with_commas(*claim.count));
      } else if (!claim.factor) {
        counts.insert(reading.count);
        if (const std::string said = " " + with_commas(reading.count) + " " + reading.unit; !says(said))
          faults.push_back(title + " reads" + said + ", which is not said");
      }
      sample_tokens_claimed |= claim.sample_tokens.has_value();
      if (!claim.sample_tokens) {
        sample_tokens.insert(reading.sample_tokens);
      } else if (*claim.sample_tokens != reading.sample_tokens) {
        faults.push_back(title + " has samples of " + with_commas(reading.sample_tokens) + " tokens, said to be " +
                         with_commas(*claim.sample_tokens));
      }
      for (const auto& [key, value] : reading.keys) {
        const auto claimed = claim.keys.find(key);
        if (claimed == claim.keys.end())
          keys[key].insert(value);
        else if (claimed->second != value)
          faults.push_back(title + " has " + key + " = " + value + ", said to be " + claimed->second);
      }
    }
    if (counts.size() != 1) faults.push_back("not one count for the variants that are not named");
    if (sample_tokens.size() > 1) faults.push_back("samples of different max_length");
    std::smatch at_most;
    if (std::regex_search(common, at_most, std::regex(" of at most ([0-9,]+) tokens")) && !sample_tokens.contains(0) &&
        !sample_tokens.contains(without_commas(at_most[1])))
      faults.push_back("samples are not of at most " + at_most[1].str() + " tokens");
    if (sample_tokens_claimed && sample_tokens.size() == 1 &&
        !says(" of at most " + with_commas(*sample_tokens.begin()) + " tokens"))
      faults.push_back("the tokens of the other variants' samples are not said");
    for (const auto& [key, values] : keys) {
      if (values.size() > 1) faults.push_back("different " + key);
    }
    for (const auto& [reading, claim] : all) {
      if (claim.factor && counts.size() == 1 && reading.count != *claim.factor * *counts.begin())
        faults.push_back("a variant reads " + with_commas(reading.count) + ", said to be " +
                         std::to_string(*claim.factor) + " times as many");
    }
  }
  return faults;
}

TEST(EqualReading, VariantsOfEveryStudyReadEquallyMuchOrAsTheStudySays) {
  int studies = 0;
  for (const auto& entry : std::filesystem::directory_iterator(std::filesystem::path(MNEMO_SOURCE_DIR) / "recipes")) {
    const recipes::RecipeFile file = recipes::RecipeFile::read(entry.path().string());
    for (const recipes::RecipeStudy& study : file.studies()) {
      ++studies;
      for (const std::string& fault : faults_of(study))
        ADD_FAILURE() << entry.path().filename() << ": " << study.name << ": " << fault << "; it says: " << study.about;
    }
  }
  EXPECT_GT(studies, 50);
}

/// The faults of a study with this `about` and these two variants, joined.
std::string faults(const std::string& common, const std::string& about, const std::string& first,
                   const std::string& second) {
  const std::string text = common + "[[study]]\nname = \"s\"\nabout = \"" + about +
                           "\"\n[[study.variant]]\nname = \"a\"\n" + first + "\n[[study.variant]]\nname = \"b\"\n" +
                           second + "\n";
  const recipes::RecipeFile file = recipes::RecipeFile::of(base::parse_toml(text, "small.toml"), "small.toml", {});
  std::string joined;
  for (const std::string& fault : faults_of(file.studies().at(0))) joined += fault + "\n";
  return joined;
}

bool holds(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST(EqualReading, ACountThatIsNotTheVariantsIsFound) {
  const std::string text =
      "data = { train = \"x.txt\", unit = \"words\" }\nmodel = { segment_size = 10 }\n"
      "train = { steps = 100, batch_size = 2, segments_per_step = 1 }\n";
  const std::string all = "Each training reads 2,000 words";
  const std::string more = "train.steps = 200";
  EXPECT_EQ(faults(text, all + ".", "", ""), "");
  EXPECT_TRUE(holds(faults(text, all + ".", "", more), "4,000 words, which is not said"));
  EXPECT_EQ(faults(text, all + ", 'b' 4,000.", "", more), "");
  EXPECT_EQ(faults(text, all + ", 'b' 4,000 words in twice the steps.", "", more), "");
  EXPECT_EQ(faults(text, all + ", 'b' twice as many, as in the paper.", "", more), "");
  // The number of another variant, of the paper, or a second one.
  EXPECT_TRUE(holds(faults(text, "Each training reads 9,000 words, 'b' 2,000 words.", "", ""), "which is not said"));
  EXPECT_TRUE(holds(faults(text, "Each reads 9,000 words (the paper 2,000 words).", "", ""), "which is not said"));
  EXPECT_TRUE(holds(faults(text, all + ", 'b' 9,999 words, then 4,000 words.", "", more), "said to read two counts"));
  EXPECT_TRUE(holds(faults(text, all + ", 'b' (windows = 1).", "", ""), "windows does not say what is read"));
  // Quoted, with no number or another one.
  EXPECT_TRUE(holds(faults(text, all + ", all but 'b'.", "", more), "4,000 words, which is not said"));
  EXPECT_TRUE(holds(faults(text, all + ", 'b' 4,500.", "", more), "reads 4,000, said to read 4,500"));
  EXPECT_TRUE(holds(faults(text, all + ", 'b' twice as many.", "", "train.steps = 300"), "said to be 2 times as many"));
  EXPECT_TRUE(holds(faults(text, all + ", 'b' 4,000.", "", ""), "reads 2,000, said to read 4,000"));
  EXPECT_TRUE(holds(faults(text, all + ", 'a' and 'b' 4,000.", "", more), "reads 2,000, said to read 4,000"));
  // One segment twice as long, and half as many steps.
  EXPECT_EQ(faults(text, all + ".", "", "model.segment_size = 20\ntrain.steps = 50"), "");
}

TEST(EqualReading, SamplesOfDifferentLengthAreFound) {
  const std::string text =
      "data = { type = \"text_classification\", train = \"x\" }\n"
      "model = { segment_size = 128, head = { type = \"classification\" }, backbone = { type = \"encoder\" } }\n"
      "train = { steps = 100, batch_size = 2 }\n";
  const std::string all = "Each training reads 200 samples";
  const std::string memory =
      "model.memory = [{ type = \"recurrent_tokens\", layout = \"encoder\", num_mem_tokens = 2, cls_token = 1, "
      "sep_token = 2, pad_token = 0 }]\n";
  EXPECT_EQ(faults(text, all + ".", "", "data.max_length = 128"), "");
  EXPECT_TRUE(holds(faults(text, all + ".", "", memory + "data.max_length = 256"), "samples of different max_length"));
  EXPECT_TRUE(holds(faults(text, all + ".", "", "model.segment_size = 256"), "samples of different max_length"));
  EXPECT_TRUE(holds(faults(text, all + ", 'b' longer ones.", "", memory + "data.max_length = 256"),
                    "samples of different max_length"));
  EXPECT_TRUE(holds(faults(text, all + " of at most 999 tokens.", "", ""), "not of at most 999 tokens"));
  const std::string lengths = all + " of at most 128 tokens, 'b' of at most ";
  EXPECT_EQ(faults(text, lengths + "256.", "", memory + "data.max_length = 256"), "");
  EXPECT_TRUE(holds(faults(text, lengths + "250.", "", memory + "data.max_length = 256"),
                    "samples of 256 tokens, said to be 250"));
  EXPECT_TRUE(holds(faults(text, all + ", 'b' of at most 256.", "", memory + "data.max_length = 256"),
                    "other variants' samples are not said"));
}

TEST(EqualReading, OtherKeysOfTheDataAreFound) {
  const std::string text =
      "data = { type = \"pairs\", train = \"x\", document_column = 1, source_column = 2, target_column = 3, "
      "window = 4, separator = \"¶\", batch_tokens = 1000 }\n"
      "model.backbone = { type = \"encoder_decoder\" }\ntrain = { steps = 10, batch_size = 100 }\n";
  const std::string all = "Each training reads at most 10,000 tokens";
  EXPECT_EQ(faults(text, all + ".", "", ""), "");
  EXPECT_TRUE(holds(faults(text, all + ".", "", "data.window = 2"), "different window"));
  EXPECT_TRUE(holds(faults(text, all + "; 'b' reads fewer sentences.", "", "data.window = 2"), "different window"));
  EXPECT_TRUE(
      holds(faults(text, all + "; 'b' reads two (window = 3).", "", "data.window = 2"), "window = 2, said to be 3"));
  EXPECT_EQ(faults(text, all + "; 'b' reads two (window = 2).", "", "data.window = 2"), "");
  EXPECT_EQ(
      faults(text, all + "; 'b' reads one (window = 1, no separator).", "", "data.window = 1\ndata.separator = \"\""),
      "");
  EXPECT_TRUE(holds(faults(text, all + "; 'b' reads one (window = 1).", "", "data.window = 1\ndata.separator = \"\""),
                    "different separator"));
  EXPECT_TRUE(holds(faults(text, all + ".", "", "data.max_length = 99"), "different max_length"));
  EXPECT_TRUE(holds(faults(text, all + ".", "", "data.batch_tokens = 500"), "5,000 tokens, which is not said"));
  // A made task: more symbols are more tokens, more segments are not.
  const std::string made =
      "data = { type = \"algorithmic\", task = \"copy\", num_symbols = 12, num_segments = 2 }\n"
      "train = { steps = 10, batch_size = 10 }\n";
  const std::string samples = "Each training sees 100 samples.";
  EXPECT_EQ(faults(made, samples, "", "data.num_segments = 3"), "");
  EXPECT_TRUE(holds(faults(made, samples, "", "data.num_symbols = 24"), "different num_symbols"));
}

}  // namespace
}  // namespace mnemo::experiment
