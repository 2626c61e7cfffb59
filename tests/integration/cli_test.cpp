#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "base/file_io.h"
#include "base/node.h"
#include "ops/cuda.h"
#include "tests/support/temporary_folder.h"

// Runs the program itself, with tiny budgets.
namespace mnemo {
namespace {

const char* kBinary = MNEMO_EXECUTABLE;

struct Outcome {
  int status = -1;  ///< exit status, or 128 + the signal that ended it
  std::string out, err;
};

std::string content(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

void write(const std::string& path, const std::string& text) { std::ofstream(path, std::ios::binary) << text; }

bool holds(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

/// A run of the program; output goes to files, so that nothing blocks.
class Process {
 public:
  Process(const test::TemporaryFolder& folder, const std::vector<std::string>& arguments, const char* out = nullptr)
      : out_(out != nullptr ? out : folder / "stdout.txt"), err_(folder / "stderr.txt") {
    std::vector<std::string> words = {kBinary};
    words.insert(words.end(), arguments.begin(), arguments.end());
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    pid_ = fork();
    if (pid_ != 0) return;
    const int out_file = open(out_.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644), err_file = open(err_.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
    dup2(out_file, STDOUT_FILENO);
    dup2(err_file, STDERR_FILENO);
    execv(kBinary, argv.data());
    _exit(127);
  }
  ~Process() {
    if (pid_ > 0) finish();
  }

  void signal(int number) const { kill(pid_, number); }
  pid_t pid() const { return pid_; }

  Outcome finish() {
    int status = 0;
    waitpid(pid_, &status, 0);
    pid_ = -1;
    return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), std::filesystem::is_regular_file(out_) ? content(out_) : "", content(err_)};
  }

 private:
  std::string out_, err_;
  pid_t pid_ = -1;
};

/// Waits until something is so, at most a minute.
bool wait_for(const std::function<bool()>& holds_now) {
  for (int i = 0; i < 1200; ++i) {
    if (holds_now()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  return false;
}

const char* kRecipe = R"(
name = "tiny"
[model]
segment_size = 8
memory = [{ type = "segment_cache", mem_len = 8 }]
[model.backbone]
num_layers = 1
dim = 16
num_heads = 2
ffn_dim = 16
dropout = 0.1
[train]
steps = 6
batch_size = 4
log_every = 1
eval_every = 3
[data]
valid_fraction = 0.2
test_fraction = 0.0
)";

class CommandLine : public testing::Test {
 protected:
  CommandLine() {
    std::string text;
    for (int i = 0; i < 120; ++i) text += "line " + std::to_string(i * i) + " of a small text\n";
    write(text_, text);
    write(recipe_, kRecipe);
  }

  Outcome run(const std::vector<std::string>& arguments) { return Process(folder_, arguments).finish(); }
  Outcome run_to(const char* out, const std::vector<std::string>& arguments) { return Process(folder_, arguments, out).finish(); }

  /// Trains the tiny recipe; returns the run's folder.
  std::string trained(const std::string& name, const std::vector<std::string>& more = {}) {
    std::vector<std::string> arguments = {"train", recipe_, "--data", text_, "--out", folder_ / name, "--quiet"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    return folder_ / name;
  }

  base::Node json(const std::string& text) {
    base::ReadLimits limits;
    limits.max_bytes = 64 << 20;
    limits.max_values = 1'000'000;
    return base::parse_json(text, "output", limits);
  }

  test::TemporaryFolder folder_;
  std::string text_ = folder_ / "text.txt", recipe_ = folder_ / "tiny.toml";
};

TEST_F(CommandLine, HelpNamesEverySubcommandAndVersionTheLibraries) {
  const Outcome help = run({"--help"});
  EXPECT_EQ(help.status, 0);
  for (const char* name : {"train", "eval", "compare", "generate", "inspect", "convert", "verify", "data", "completion", "help"}) {
    EXPECT_TRUE(holds(help.out, std::string("  ") + name)) << name;
    EXPECT_EQ(run({"help", name}).status, 0) << name;
  }
  EXPECT_FALSE(holds(run({"help", "compare"}).out, "--job "));
  const Outcome version = run({"--version"});
  EXPECT_EQ(version.status, 0);
  for (const char* word : {"mnemo ", "LibTorch ", "MKL override", "malloc tuning", "threads", "CUDA"}) EXPECT_TRUE(holds(version.out, word)) << version.out;
  EXPECT_TRUE(holds(run({"help", "recipe"}).out, "train.steps = 1000"));
  EXPECT_TRUE(holds(run({"help", "recipe", "--markdown"}).out, "| train.steps |"));
}

TEST_F(CommandLine, MistakesAreToldWithStatusTwo) {
  std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"trian"}, "unknown subcommand 'trian'; did you mean 'train'?"},
      {{}, "expected a subcommand"},
      {{"train", "--outt", "x"}, "unknown option '--outt'; did you mean '--out'?"},
      {{"train"}, "expected a RECIPE, or --resume DIR"},
      {{"generate", "x", "--tokens", "many"}, "generate: --tokens: expected a whole number, found 'many'"},
      {{"generate", "x", "--top-p", "much"}, "generate: --top-p: expected a number, found 'much'"},
      {{"train", folder_ / "none.toml"}, "none.toml"},
      {{"train", recipe_}, "data.train: expected the text to learn, found none"},
      {{"train", recipe_, "--data", folder_ / "none.txt"}, "none.txt"},
      {{"train", recipe_, "--data", text_, "--set", "train.stepz=3"}, "did you mean 'steps'?"},
      {{"train", recipe_, "--data", text_, "--set", "train.steps=few"}, "expected integer"},
      {{"train", recipe_, "--data", text_, "--set", "model.memory=[{type=\"grk\"}]"}, "did you mean 'grc'?"},
      {{"train", "--resume", folder_ / "none"}, "no run is there"},
      {{"eval", folder_ / "none"}, "expected a model folder"},
      {{"generate", text_}, "text.txt"},
      {{"inspect", folder_ / "none"}, "expected a model folder, a run's folder or a recipe (.toml), found nothing"},
      {{"data", folder_ / "none.txt"}, "no such file"},
      {{"compare", recipe_}, "has no [[study]]"},
      {{"compare", recipe_, "--device", "tpu"}, "--device: expected cpu, cuda or cuda:N"},
      {{"compare", recipe_, "--seeds", "0"}, "--seeds: expected 1 to 1000"},
      {{"help", "recpe"}, "did you mean 'recipe'?"},
      {{"completion", "fish"}, "expected bash"},
      {{"bench", "kernel"}, "bench: unknown part 'kernel'; did you mean 'kernels'?"},
      {{"bench", "kernels", "--case", "abc_23"}, "--case: unknown case 'abc_23'"},
      {{"bench", "--precision", "int8"}, "--precision: of decoding alone; the part is 'models'"},
      {{"bench", "decoding", "--precision", "int4"}, "--precision: unknown precision 'int4'"},
      {{"eval", folder_ / "none", "--precision", "int8", "--batch", "4"}, "reads one stream in the model's own segments; leave --batch and --segment-size out"},
      {{"eval", folder_ / "none", "--device", "gpu"}, "--device: expected cpu, cuda or cuda:N, found 'gpu'"},
      {{"train", recipe_, "--device", "cuda:-1"}, "--device: expected cpu, cuda or cuda:N, found 'cuda:-1'"},
  };
  if (!ops::cuda::compiled()) {
    const std::string message = "--device cuda: this build has no CUDA: configure with -DMNEMO_CUDA=ON";
    for (const char* command : {"train", "eval", "generate", "verify"}) cases.push_back({{command, folder_ / "none", "--device", "cuda"}, message});
  }
  for (const auto& [arguments, message] : cases) {
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.status, 2) << message << "\n" << outcome.err;
    EXPECT_TRUE(outcome.err.starts_with("mnemo: error: ")) << outcome.err;
    EXPECT_TRUE(holds(outcome.err, message)) << "expected: " << message << "\nfound: " << outcome.err;
    EXPECT_EQ(outcome.out, "");
  }
}

TEST_F(CommandLine, OutputThatCannotBeWritten) {
  EXPECT_EQ(run_to("/dev/full", {"data", text_}).status, 2);
  const Outcome outcome = run({"train", recipe_, "--data", text_, "--out", text_ + "/inside"});
  EXPECT_EQ(outcome.status, 2);
  EXPECT_TRUE(holds(outcome.err, "text.txt/inside")) << outcome.err;
}

TEST_F(CommandLine, CompletionIsBashWithTheKeysOfRecipes) {
  const Outcome outcome = run({"completion", "bash"});
  EXPECT_EQ(outcome.status, 0);
  write(folder_ / "complete.sh", outcome.out);
  const std::string script = "source '" + (folder_ / "complete.sh") +
                             "'; COMP_WORDS=(mnemo train --set train.sched); COMP_CWORD=3; _mnemo; echo \"${COMPREPLY[*]}\" > '" +
                             (folder_ / "reply.txt") + "'";
  ASSERT_EQ(std::system(("bash -c \"" + [&] {
              std::string quoted;
              for (const char c : script) quoted += c == '"' || c == '$' ? std::string("\\") + c : std::string(1, c);
              return quoted;
            }() + "\" 2>/dev/null").c_str()),
            0);
  EXPECT_TRUE(holds(content(folder_ / "reply.txt"), "train.schedule.warmup_steps=")) << content(folder_ / "reply.txt");
}

TEST_F(CommandLine, DataDescribesTextsAndMakesSamples) {
  const base::Node text = json(run({"data", text_, "--json"}).out);
  EXPECT_EQ(text.at("unit").as_string(), "characters");
  const base::Node words = json(run({"data", text_, "--unit", "words", "--json"}).out);
  EXPECT_NE(words.at("vocabulary_size").as_int(), text.at("vocabulary_size").as_int());
  const base::Node copy = json(run({"data", "copy", "--count", "3", "--set", "data.num_symbols=4", "--json"}).out);
  EXPECT_EQ(copy.at("samples").size(), 3u);
  EXPECT_EQ(copy.at("length").as_int(), 12);
  EXPECT_EQ(json(run({"data", recipe_, "--set", "data.train=" + text_, "--json"}).out).at("unit").as_string(), "characters");
}

TEST_F(CommandLine, TrainingLeavesARunThatEvaluatesAndGenerates) {
  const std::string run_folder = trained("run");
  for (const char* name : {"recipe.toml", "log.jsonl", "model/config.json", "model/model.safetensors", "model/vocabulary.json", "model/README.md"}) {
    EXPECT_TRUE(std::filesystem::exists(run_folder + "/" + name)) << name;
  }
  EXPECT_FALSE(holds(content(run_folder + "/model/README.md"), folder_.path())) << "the model card tells a path of this machine";

  const base::Node own = json(run({"eval", run_folder, "--json"}).out);
  const std::string log = content(run_folder + "/log.jsonl");
  const base::Node last = json(log.substr(log.rfind('\n', log.size() - 2) + 1));
  EXPECT_NEAR(own.at("bits_per_character").as_double(), last.at("valid").at("bits_per_character").as_double(), 0.05);
  const base::Node other = json(run({"eval", run_folder + "/model", "--data", text_, "--json"}).out);
  EXPECT_TRUE(std::isfinite(other.at("nll").as_double()));
  EXPECT_NEAR(other.at("bits_per_character").as_double(), other.at("nll").as_double() / std::log(2.0), 1e-9);

  const Outcome stream = run({"generate", run_folder, "--prompt", "line ", "--tokens", "20", "--seed", "5", "--quiet"});
  EXPECT_EQ(stream.status, 0) << stream.err;
  const base::Node whole = json(run({"generate", run_folder, "--prompt", "line ", "--tokens", "20", "--seed", "5", "--json"}).out);
  EXPECT_EQ(stream.out, "line " + whole.at("text").as_string());
  const base::Node else_seed = json(run({"generate", run_folder, "--prompt", "line ", "--tokens", "20", "--seed", "6", "--json"}).out);
  EXPECT_NE(else_seed.at("text").as_string(), whole.at("text").as_string());

  // A session kept and gone on with is the text in one piece.
  const std::string session = folder_ / "session.safetensors";
  const Outcome first = run({"generate", run_folder, "--prompt", "line ", "--tokens", "11", "--seed", "5", "--save", session, "--quiet"});
  const Outcome second = run({"generate", run_folder, "--session", session, "--tokens", "9", "--seed", "5", "--quiet"});
  EXPECT_EQ(first.out + second.out, stream.out);

  const Outcome nowhere = run({"generate", run_folder, "--tokens", "5", "--save", folder_ / "none/session"});
  EXPECT_EQ(nowhere.status, 2);
  EXPECT_EQ(nowhere.out, "") << "a text although its session cannot be kept";
  EXPECT_TRUE(holds(nowhere.err, "none/session")) << nowhere.err;

  // Fewer bits: nearly the same numbers.
  const double expected = json(run({"eval", run_folder, "--precision", "float32", "--json"}).out).at("nll").as_double();
  EXPECT_NEAR(expected, own.at("nll").as_double(), 1e-4);
  for (const char* precision : {"bf16", "int8"}) {
    const Outcome text = run({"generate", run_folder, "--tokens", "12", "--precision", precision, "--quiet"});
    EXPECT_EQ(text.status, 0) << text.err;
    const double nll = json(run({"eval", run_folder, "--precision", precision, "--json"}).out).at("nll").as_double();
    EXPECT_NEAR(nll, expected, 0.01 * expected) << precision;
    EXPECT_NE(nll, expected) << precision;
  }
}

TEST_F(CommandLine, GenerateEndsQuietlyWhenItsReaderGoes) {
  const std::string run_folder = trained("run");
  const std::string command = std::string("bash -c '") + kBinary + " generate " + run_folder + " --tokens 100000 --quiet 2>\"" + (folder_ / "err.txt") +
                              "\" | head -c 20 >/dev/null; exit ${PIPESTATUS[0]}'";
  EXPECT_EQ(WEXITSTATUS(std::system(command.c_str())), 0);
  EXPECT_EQ(content(folder_ / "err.txt"), "");
}

TEST_F(CommandLine, ResumedTrainingIsTheUninterruptedOne) {
  const std::string whole = trained("whole");
  const std::string half = trained("half", {"--set", "train.steps=3"});
  const Outcome again = run({"train", recipe_, "--data", text_, "--out", half});
  EXPECT_EQ(again.status, 2);
  EXPECT_TRUE(holds(again.err, "mnemo train --resume " + half)) << again.err;
  const Outcome resumed = run({"train", "--resume", half, "--set", "train.steps=6", "--json"});
  EXPECT_EQ(resumed.status, 0) << resumed.err;
  EXPECT_EQ(json(resumed.out).at("steps").as_int(), 6);
  EXPECT_EQ(content(whole + "/model/model.safetensors"), content(half + "/model/model.safetensors"));
}

TEST_F(CommandLine, ASoftmaxModelIsConvertedAndTrainedOn) {
  const std::vector<std::string> softmax = {"--set", "model.memory=[]", "--set", "model.backbone.attention={type=\"softmax\"}"};
  const std::vector<std::string> t2r = {"--set", "model.memory=[]", "--set",
                                        "model.backbone.attention={type=\"linear\",feature_map=\"t2r\",num_features=4}"};
  const std::string run_folder = trained("softmax", softmax), made = folder_ / "t2r", relative = trained("relative");
  const Outcome convert = run({"convert", run_folder, "--to", "t2r", "--features", "4", "--out", made});
  EXPECT_EQ(convert.status, 0) << convert.err;
  EXPECT_TRUE(holds(convert.out, "72 of them fresh")) << convert.out;  // 2 heads of 4 by 8 and 4
  EXPECT_EQ(run({"eval", made, "--data", text_}).status, 0);
  EXPECT_EQ(run({"generate", made, "--prompt", "line", "--tokens", "5"}).status, 0);
  std::vector<std::string> on = t2r;
  on.insert(on.end(), {"--init", made, "--set", "train.optimiser.lr=1e-12", "--set", "model.backbone.dropout=0.0"});
  const std::string further = trained("further", on);
  const auto evaluation = [&](const std::string& folder) {
    return json(run({"eval", folder, "--data", text_, "--json"}).out).at("bits_per_character").as_double();
  };
  EXPECT_NEAR(evaluation(further), evaluation(made), 1e-4) << "training did not start from the converted weights";
  const std::vector<std::pair<std::vector<std::string>, std::string>> mistakes = {
      {{"convert", run_folder, "--to", "rfa", "--out", made}, "expected \"t2r\", found \"rfa\""},
      {{"convert", relative, "--to", "t2r", "--out", folder_ / "x"}, "found backbone.attention.type = \"relative\""},
      {{"convert", run_folder, "--to", "t2r", "--out", folder_ / "x", "--features", "0"}, "--features"},
      {{"train", recipe_, "--data", text_, "--out", folder_ / "y", "--init", made}, "attn.feature.weight"},
      {{"train", recipe_, "--data", recipe_, "--out", folder_ / "z", "--init", relative}, "vocabulary"},
      {{"train", "--resume", run_folder, "--init", made}, "--init"}};
  for (const auto& [arguments, words] : mistakes) {
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.status, 2) << words;
    EXPECT_TRUE(holds(outcome.err, words)) << outcome.err;
  }
}

TEST_F(CommandLine, SignalsStopTrainingAfterSaving) {
  for (const auto& [number, status] : {std::pair{SIGINT, 130}, std::pair{SIGTERM, 143}}) {
    const std::string folder = folder_ / ("run" + std::to_string(number));
    Process process(folder_, {"train", recipe_, "--data", text_, "--out", folder, "--set", "train.steps=1000000"});
    ASSERT_TRUE(wait_for([&] { return holds(content(folder + "/log.jsonl"), "\"step\": 3") || holds(content(folder + "/log.jsonl"), "\"step\":3"); }));
    process.signal(number);
    const Outcome outcome = process.finish();
    EXPECT_EQ(outcome.status, status) << outcome.err;
    EXPECT_TRUE(holds(outcome.err, "mnemo train --resume " + folder)) << outcome.err;
    const int64_t done = std::stoll(outcome.err.substr(outcome.err.find("stopped after step ") + 19));
    const Outcome resumed = run({"train", "--resume", folder, "--set", "train.steps=" + std::to_string(done + 2), "--json"});
    EXPECT_EQ(resumed.status, 0) << resumed.err;
    EXPECT_EQ(json(resumed.out).at("steps").as_int(), done + 2);
  }
}

TEST_F(CommandLine, InspectShowsModelsAndRecipes) {
  const std::string run_folder = trained("run");
  const Outcome text = run({"inspect", run_folder, "--svg", folder_ / "spans.svg", "--html", folder_ / "model.html"});
  EXPECT_EQ(text.status, 0) << text.err;
  for (const char* word : {"backbone.layers.0.attn", "segment_cache.layers.0", "cache 8", "tokens 8"}) EXPECT_TRUE(holds(text.out, word)) << word;
  EXPECT_TRUE(content(folder_ / "spans.svg").starts_with("<svg"));
  EXPECT_TRUE(holds(content(folder_ / "model.html"), "Who attends to whom"));
  const base::Node model = json(run({"inspect", run_folder, "--json"}).out);
  const base::Node recipe = json(run({"inspect", recipe_, "--set", "data.train=" + text_, "--json"}).out);
  EXPECT_EQ(model.at("parameters").as_int(), recipe.at("parameters").as_int());
  // 8 rows of 16 float32 and which of them are real
  EXPECT_EQ(model.at("state_bytes").as_int(), 8 * 16 * 4 + 8);
}

TEST_F(CommandLine, InspectShowsWhereAnInputIsLookedAt) {
  const std::string folder = folder_ / "grc";
  const Outcome trained = run({"train", recipe_, "--data", text_, "--out", folder, "--set", "model.memory[1].type=grc", "--set", "model.memory[1].cache_len=4"});
  ASSERT_EQ(trained.status, 0) << trained.err;
  const std::string png = folder_ / "maps.png", svg = folder_ / "maps.svg", page = folder_ / "page.html";
  const Outcome text = run({"inspect", folder, "--text", "line 16 of a small", "--heads", "1", "--png", png, "--svg", svg, "--html", page});
  ASSERT_EQ(text.status, 0) << text.err;
  for (const char* part : {"segment 3 of 3, 2 tokens", "to cache", "Gates of the GRC update", "layers.0.sigma_lambda", "step 6"}) EXPECT_TRUE(holds(text.out, part)) << part << text.out;
  EXPECT_TRUE(content(png).starts_with("\x89PNG\r\n\x1a\n"));
  EXPECT_TRUE(content(svg).starts_with("<svg") && holds(content(svg), "layer 0 head 1"));
  for (const char* part : {"<h2>Attention</h2>", "<h2>Over training</h2>", "data:image/png;base64,"}) EXPECT_TRUE(holds(content(page), part)) << part;

  const base::Node node = json(run({"inspect", folder, "--sample", "1", "--layers", "0", "--json"}).out);
  EXPECT_EQ(node.at("attention").at("maps").size(), 4u) << "attention and grc_cache of two heads";
  EXPECT_EQ(node.at("attention").at("num_segments").as_int(), 4);
  EXPECT_EQ(node.at("training").size(), 6u);
  EXPECT_EQ(node.at("training").items().at(5).at("gauges").at("layers.0.sigma_lambda").size(), 2u);
  EXPECT_NE(node.at("training").items().at(5).at("gauges").at("layers.0.sigma_lambda").items().at(0).as_double(), 0.5) << "lambda has moved";
  const base::Node of_recipe = json(run({"inspect", recipe_, "--set", "data.train=" + text_, "--tokens", "1 2 3", "--json"}).out);
  EXPECT_EQ(of_recipe.at("attention").at("tokens").size(), 3u);

  const std::pair<std::vector<std::string>, std::string> wrong[] = {
      {{"--text", "line", "--layers", "1"}, "--layers: expected numbers from 0 to 0"},
      {{"--text", "line", "--heads", "0-2"}, "--heads: expected numbers from 0 to 1"},
      {{"--text", "line", "--segment", "2"}, "--segment: the input has 1 segments; expected 1 to 1, found 2"},
      {{"--text", ""}, "the input has no tokens"},
      {{"--text", "a", "--tokens", "1"}, "expected one of --text, --tokens and --sample"},
      {{"--tokens", "1 x"}, "--tokens: expected numbers with blanks between"},
      {{"--tokens", "9999"}, "--tokens: expected tokens 0 to"},
      {{"--sample", "4"}, "--sample: expected 0 to 3"},
      {{"--layers", "0"}, "--layers, --heads and --segment choose"},
      {{"--batch", "2"}, "go with --cost"},
      {{"--cost", "--position", "3"}, "position: expected a multiple of the segment's 8 tokens, found 3"}};
  for (const auto& [arguments, message] : wrong) {
    std::vector<std::string> all = {"inspect", folder};
    all.insert(all.end(), arguments.begin(), arguments.end());
    const Outcome outcome = run(all);
    EXPECT_EQ(outcome.status, 2) << message;
    EXPECT_TRUE(holds(outcome.err, message)) << outcome.err;
  }
}

TEST_F(CommandLine, InspectCountsWhatAModelCosts) {
  const std::string run_folder = trained("run");
  const Outcome text = run({"inspect", run_folder, "--cost", "--batch", "2"});
  ASSERT_EQ(text.status, 0) << text.err;
  for (const char* part : {"8 tokens in each of 2 sequences", "feed_forward", "added by segment_cache"}) EXPECT_TRUE(holds(text.out, part)) << part << text.out;
  const base::Node node = json(run({"inspect", run_folder, "--cost", "--json"}).out);
  EXPECT_EQ(node.at("cost").at("all").at("parameters").as_int(), node.at("parameters").as_int());
  EXPECT_EQ(node.at("cost").at("all").at("state_bytes").as_int(), node.at("state_bytes").as_int());
  int64_t flops = 0;
  for (const base::Node& part : node.at("cost").at("parts").items()) flops += part.at("part").as_string() == "feed_forward" ? part.at("flops").as_int() : 0;
  EXPECT_EQ(flops, 2 * 8 * 2 * 16 * 16) << "one layer, 16 to 16 to 16";
}

const char* kStudies = R"(
base = "tiny.toml"
name = "tiny <comparison>"
[[study]]
name = "Text"
data.train = "text.txt"
generate = { prompt = "line ", tokens = 10 }
[[study.variant]]
name = "no memory"
model.memory = []
[[study.variant]]
name = "GRC & more"
model.memory = [{ type = "grc", cache_len = 4, lifetime = "sequence" }]
[[study]]
name = "Copy"
data = { type = "algorithmic", num_symbols = 4 }
model.segment_size = 4
train.eval_samples = 8
[[study.variant]]
name = "no memory"
model.memory = []
)";

TEST_F(CommandLine, CompareGivesTablesAndAReport) {
  write(folder_ / "studies.toml", kStudies);
  const std::string out = folder_ / "out";
  const std::vector<std::string> command = {"compare", folder_ / "studies.toml", "--out", out, "--seeds", "2", "--jobs", "2", "--json"};
  const Outcome outcome = run(command);
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(outcome.out, base::to_json(json(outcome.out)) + "\n");
  const base::Node results = json(content(out + "/results.json"));
  EXPECT_EQ(results.at("studies").size(), 2u);
  for (const base::Node& study : results.at("studies").items()) {
    for (const base::Node& variant : study.at("variants").items()) {
      ASSERT_EQ(variant.at("runs").size(), 2u);
      for (const base::Node& one : variant.at("runs").items()) {
        EXPECT_EQ(one.at("error").as_string(), "");
        EXPECT_TRUE(std::isfinite(one.at("value").as_double()));
        EXPECT_GT(one.at("train_tokens_per_second").as_double(), 0);
        EXPECT_GT(one.at("peak_memory").as_int(), 1 << 20);
        EXPECT_EQ(one.at("curve").size(), 6u);
        EXPECT_TRUE(one.at("span_svg").as_string().starts_with("<svg"));
      }
    }
  }
  const base::Node& grc = results.at("studies").items()[0].at("variants").items()[1].at("runs").items()[0];
  EXPECT_EQ(grc.at("cache_share").items()[0].at("heads").size(), 2u);
  EXPECT_GT(grc.at("tokens_per_second_64").as_double(), 0);
  EXPECT_GT(grc.at("tokens_per_second_4096").as_double(), 0);
  EXPECT_EQ(grc.at("state_bytes").as_int(), 4 * 8 * 4);
  EXPECT_TRUE(results.at("studies").items()[1].at("variants").items()[0].at("runs").items()[0].at("tokens_per_second_64").is_null());
  const std::string page = content(out + "/report.html");
  EXPECT_TRUE(holds(page, "tiny &lt;comparison&gt;"));
  EXPECT_TRUE(holds(page, "GRC &amp; more"));
  EXPECT_TRUE(holds(content(out + "/results.md"), "| variant |"));

  // A trained model of the comparison is a model like any other.
  const Outcome text = run({"generate", out + "/runs/text-grc-more-seed0", "--tokens", "5", "--quiet"});
  EXPECT_EQ(text.status, 0) << text.err;
  const Outcome few = run({"generate", out + "/runs/text-grc-more-seed0", "--tokens", "5", "--precision", "int8"});
  EXPECT_EQ(few.status, 0) << few.err;
  const Outcome wrong = run({"generate", out + "/runs/text-no-memory-seed0", "--precision", "fp8"});
  EXPECT_TRUE(holds(wrong.err, "generate: --precision: expected float32, bf16 or int8, found 'fp8'")) << wrong.err;

  // It lies in a run's folder with its recipe, so its data are known; and only the model is left of the run.
  const Outcome measured = run({"eval", out + "/runs/text-no-memory-seed1", "--json"});
  ASSERT_EQ(measured.status, 0) << measured.err;
  const base::Node& recorded = results.at("studies").items()[0].at("variants").items()[0].at("runs").items()[1];
  EXPECT_NEAR(json(measured.out).at("bits_per_character").as_double(), recorded.at("value").as_double(), 0.05);
  for (const auto& entry : std::filesystem::directory_iterator(out + "/runs/text-no-memory-seed1")) {
    EXPECT_FALSE(entry.path().filename().string().starts_with("step-")) << entry.path();
  }

  const Outcome resumed = run(command);
  EXPECT_EQ(resumed.status, 0) << resumed.err;
  EXPECT_TRUE(holds(resumed.err, "6 of 6 trainings were done before")) << resumed.err;
  const base::Node same = json(resumed.out);
  EXPECT_EQ(same.at("studies"), results.at("studies"));
}

TEST_F(CommandLine, CompareMeasuresWhatTheTimeAllowed) {
  write(folder_ / "studies.toml", kStudies);
  const std::string out = folder_ / "out";
  const Outcome outcome = run({"compare", folder_ / "studies.toml", "--out", out, "--json", "--set", "study[0].max_seconds=0.5", "--set",
                               "study[0].train.steps=1000000"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const base::Node results = json(outcome.out);
  for (const base::Node& variant : results.at("studies").items()[0].at("variants").items()) {
    const base::Node& one = variant.at("runs").items()[0];
    EXPECT_GT(one.at("steps").as_int(), 0);
    EXPECT_LT(one.at("steps").as_int(), 1000000);
    EXPECT_TRUE(std::isfinite(one.at("value").as_double()));
  }
}

TEST_F(CommandLine, CompareGoesOnWhenAVariantFails) {
  write(folder_ / "studies.toml", kStudies);
  const std::string out = folder_ / "out";
  const Outcome outcome = run({"compare", folder_ / "studies.toml", "--out", out, "--set",
                               "study[0].variant[1].train.optimiser={type=\"sgd\", lr=1e30}", "--set",
                               "study[0].variant[1].train.clip_norm=\"unset\""});
  EXPECT_EQ(outcome.status, 2) << outcome.err;
  EXPECT_TRUE(holds(outcome.err, "GRC & more, seed 0: failed: training: step")) << outcome.err;
  EXPECT_TRUE(holds(outcome.out, "Failed: GRC & more.")) << outcome.out;
  EXPECT_TRUE(holds(content(out + "/report.html"), "verdict failed"));
}

TEST_F(CommandLine, CompareStopsItsChildren) {
  write(folder_ / "studies.toml", kStudies);
  const std::string out = folder_ / "out";
  Process process(folder_, {"compare", folder_ / "studies.toml", "--out", out, "--jobs", "2", "--set", "train.steps=1000000"});
  const auto children = [&] {
    std::ifstream file("/proc/" + std::to_string(process.pid()) + "/task/" + std::to_string(process.pid()) + "/children");
    std::vector<pid_t> found;
    for (pid_t pid; file >> pid;) found.push_back(pid);
    return found;
  };
  ASSERT_TRUE(wait_for([&] { return children().size() == 2; }));
  std::this_thread::sleep_for(std::chrono::seconds(2));
  const std::vector<pid_t> seen = children();
  process.signal(SIGINT);
  const Outcome outcome = process.finish();
  EXPECT_EQ(outcome.status, 130) << outcome.err;
  EXPECT_TRUE(holds(outcome.err, "To go on: mnemo compare")) << outcome.err;
  for (const pid_t pid : seen) EXPECT_NE(kill(pid, 0), 0) << "child " << pid << " is still there";
  EXPECT_FALSE(std::filesystem::exists(out + "/report.html"));
}

const char* kSweep = R"(
base = "tiny.toml"
name = "tiny sweep"
[train]
steps = 12
save_every = 2
eval_every = 4
[[study]]
name = "Copy"
data = { type = "algorithmic", num_symbols = 4 }
model.segment_size = 32
train.eval_samples = 8
[study.sweep]
data.num_segments = [2, 3]
seeds = [0, 4]
[[study.variant]]
name = "no memory"
model.memory = []
[[study.variant]]
name = "cache"
model.memory = [{ type = "segment_cache" }]
tied = { "model.memory[0].mem_len" = "model.segment_size" }
[[study.paper]]
variant = "cache"
point = { "data.num_segments" = 3 }
value = 0.5
source = "nowhere"
)";

TEST_F(CommandLine, CompareKilledAtAnyMomentGoesOnWithWhatIsMissing) {
  write(folder_ / "sweep.toml", kSweep);
  const std::string out = folder_ / "out", whole = folder_ / "whole";
  const auto command = [&](const std::string& to) { return std::vector<std::string>{"compare", folder_ / "sweep.toml", "--out", to, "--jobs", "2", "--json"}; };
  const Outcome uninterrupted = run(command(whole));
  ASSERT_EQ(uninterrupted.status, 0) << uninterrupted.err;
  const base::Node expected = json(uninterrupted.out);
  ASSERT_EQ(expected.at("studies").items()[0].at("points").size(), 2u);

  // When each result was written; once there, none is written again.
  const auto results = [&] {
    std::vector<std::pair<std::string, std::filesystem::file_time_type>> found;
    if (!std::filesystem::exists(out + "/runs")) return found;
    for (const auto& entry : std::filesystem::directory_iterator(out + "/runs")) {
      const std::filesystem::path file = entry.path() / "result.json";
      if (std::filesystem::exists(file)) found.emplace_back(file.string(), std::filesystem::last_write_time(file));
    }
    return found;
  };
  std::vector<std::pair<std::string, std::filesystem::file_time_type>> seen;
  int kills = 0;
  for (int delay = 300; kills < 8 && seen.size() < 8; delay += 250, ++kills) {
    Process process(folder_, command(out));
    std::this_thread::sleep_for(std::chrono::milliseconds(delay));
    process.signal(SIGKILL);
    process.finish();
    for (const auto& [file, time] : results()) EXPECT_NO_THROW(json(content(file))) << file;
    for (const auto& [file, time] : seen) EXPECT_EQ(std::filesystem::last_write_time(file), time) << file << " was repeated";
    seen = results();
  }
  const Outcome last = run(command(out));
  ASSERT_EQ(last.status, 0) << last.err;
  EXPECT_EQ(results().size(), 8u);
  for (const auto& [file, time] : seen) EXPECT_EQ(std::filesystem::last_write_time(file), time) << file << " was repeated";
  const base::Node found = json(last.out);
  for (size_t p = 0; p < 2; ++p) {
    for (size_t v = 0; v < 2; ++v) {
      const auto value = [&](const base::Node& node, size_t run) {
        return node.at("studies").items()[0].at("points").items()[p].at("variants").items()[v].at("runs").items()[run].at("loss").as_double();
      };
      for (size_t run = 0; run < 2; ++run) EXPECT_EQ(value(found, run), value(expected, run)) << "a resumed training ends elsewhere";
    }
  }

  // Another recipe is another training, and the old one is found again.
  std::vector<std::string> longer = command(out);
  longer.insert(longer.end(), {"--set", "train.steps=14"});
  const Outcome changed = run(longer);
  ASSERT_EQ(changed.status, 0) << changed.err;
  EXPECT_EQ(json(changed.out).at("studies").items()[0].at("points").items()[0].at("variants").items()[0].at("runs").items()[0].at("steps").as_int(), 14);
  EXPECT_TRUE(holds(run(command(out)).err, "8 of 8 trainings were done before"));
  EXPECT_EQ(results().size(), 16u);
}

TEST_F(CommandLine, SweepMistakesAreNamed) {
  std::string text = kSweep;
  text.replace(text.find("seeds = [0, 4]"), 14, "seedz = [0, 4]");
  write(folder_ / "sweep.toml", text);
  const Outcome outcome = run({"compare", folder_ / "sweep.toml", "--out", folder_ / "out"});
  EXPECT_EQ(outcome.status, 2);
  EXPECT_TRUE(holds(outcome.err, "sweep.toml:15: unknown key 'study[0].sweep.seedz'; did you mean 'seeds'?")) << outcome.err;
}

}  // namespace
}  // namespace mnemo
