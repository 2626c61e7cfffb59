// Training on several processes of this machine, with the program itself.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <torch/types.h>

#include <array>
#include <cmath>
#include <map>

#include "base/file_io.h"
#include "distributed/group.h"
#include "tests/support/command_line.h"
#include "tests/unit/data/image_files.h"
#include "weights/checkpoint.h"
#include "weights/safetensors.h"

namespace mnemo {
namespace {

using test::content;
using test::Finished;
using test::holds;

/// Two layers with dropout, a segment cache and a moving average; eight streams.
const char* const kRanksRecipe = R"(
[model]
segment_size = 8
memory = [{ type = "segment_cache", mem_len = 8 }]
[model.backbone]
num_layers = 2
dim = 16
num_heads = 2
ffn_dim = 32
dropout = 0.1
[train]
steps = 12
batch_size = 8
segments_per_step = 2
accumulate = 2
ema_decay = 0.9
threads = 1
log_every = 1
save_every = 4
keep_last = 0
tensorboard = false
[data]
type = "text"
train = "text.txt"
valid_fraction = 0.2
test_fraction = 0.0
)";

class Ranks : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!distributed::available()) GTEST_SKIP() << "built without Gloo's headers";
    std::string text;
    for (int64_t i = 0; i < 600; ++i) text += std::to_string(i * 7919 % 1000) + (i % 3 == 0 ? " apples\n" : " pears\n");
    test::write(folder_ / "text.txt", text);
    test::write(folder_ / "recipe.toml", kRanksRecipe);
  }

  Finished run(const std::vector<std::string>& arguments) const { return test::Process(folder_, arguments).finish(); }
  Finished train(const std::string& run_folder, int64_t processes, std::vector<std::string> more = {}) const {
    std::vector<std::string> words = {"train", folder_ / "recipe.toml", "--out", folder_ / run_folder};
    return run(with_processes(words, processes, std::move(more)));
  }
  Finished resume(const std::string& run_folder, int64_t processes, std::vector<std::string> more = {}) const {
    return run(with_processes({"train", "--resume", folder_ / run_folder}, processes, std::move(more)));
  }
  static std::vector<std::string> with_processes(std::vector<std::string> words, int64_t processes,
                                                 std::vector<std::string> more) {
    if (processes > 1) {
      words.emplace_back("--processes");
      words.push_back(std::to_string(processes));
    }
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }

  std::string step(const std::string& run_folder, int64_t number) const {
    return folder_ / fmt::format("{}/step-{:08}", run_folder, number);
  }
  /// The largest difference of a tensor, relative to its largest element.
  static double difference(const std::string& a, const std::string& b) {
    const weights::TensorFile one = weights::read_safetensors(a), other = weights::read_safetensors(b);
    EXPECT_EQ(one.tensors.size(), other.tensors.size());
    double worst = 0;
    for (const auto& [name, tensor] : one.tensors) {
      const at::Tensor x = tensor.to(at::kDouble), y = other.at(name, b).to(at::kDouble);
      if (x.numel() == 0) continue;
      worst = std::max(worst, ((x - y).abs().max() / (x.abs().max() + 1e-3)).item<double>());
    }
    return worst;
  }

  /// Trains the recipe on one process and on two: the same weights and evaluations but for rounding.
  void expect_equal_to_one_process(int64_t last, const std::string& name = "",
                                   const std::vector<std::string>& more = {}) const {
    const std::string first = name + "one", second = name + "two";
    const Finished alone = train(first, 1, more);
    ASSERT_EQ(alone.status, 0) << alone.err;
    const Finished two = train(second, 2, more);
    ASSERT_EQ(two.status, 0) << two.err << content(folder_ / (second + "/rank-1.log"));
    const std::string file = "/model.safetensors";
    EXPECT_LT(difference(step(first, last) + file, step(second, last) + file), 1e-3) << name;
    const auto one = weights::read_manifest(step(first, last)).metrics,
               other = weights::read_manifest(step(second, last)).metrics;
    EXPECT_GT(one.size(), 1U);
    for (const auto& [name, value] : one) EXPECT_NEAR(value, other.at(name), 1e-3 * std::abs(value) + 1e-9) << name;
  }

  /// The process of a rank, as its log says.
  pid_t pid_of(const std::string& log, int64_t rank) const {
    const std::string text = content(folder_ / log), start = fmt::format("rank {} of ", rank);
    const size_t line = text.rfind(start), at = line == std::string::npos ? line : text.find("process ", line);
    return at == std::string::npos ? -1 : static_cast<pid_t>(std::atoi(text.c_str() + at + 8));
  }
  /// A training without end; returns when its first checkpoint is there, with the process of rank 1.
  struct Endless {
    std::unique_ptr<test::Process> process;
    pid_t rank1;
  };
  Endless endless(const std::string& timeout) const {
    auto process = std::make_unique<test::Process>(
        folder_, std::vector<std::string>{"train", folder_ / "recipe.toml", "--out", folder_ / "run", "--processes",
                                          "2", "--rank-timeout", timeout, "--set", "train.steps=10000000", "--set",
                                          "train.log_every=1000"});
    EXPECT_TRUE(test::wait_for([&] { return base::path_exists(step("run", 4)); })) << content(folder_ / "stderr.txt");
    const pid_t rank1 = pid_of("run/rank-1.log", 1);
    EXPECT_GT(rank1, 1);
    return {std::move(process), rank1};
  }

  /// The endless run of above, three steps more on one process.
  Finished run_on() const {
    int64_t last = 0;
    for (const std::string& name : base::list_folder(folder_ / "run")) {
      if (name.starts_with("step-")) last = std::max(last, static_cast<int64_t>(std::atoll(name.c_str() + 5)));
    }
    return run({"train", "--resume", folder_ / "run", "--set", "train.steps=" + std::to_string(last + 3)});
  }
  /// One rank of two as OpenMPI starts it, with a command line of its own.
  std::unique_ptr<test::Process> start_rank(int rank, const std::string& port,
                                            const std::vector<std::string>& arguments) const {
    const std::map<std::string, std::string> variables = {{"OMPI_COMM_WORLD_RANK", std::to_string(rank)},
                                                          {"OMPI_COMM_WORLD_SIZE", "2"},
                                                          {"OMPI_COMM_WORLD_LOCAL_RANK", std::to_string(rank)},
                                                          {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                                                          {"MASTER_PORT", port}};
    for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 1);
    auto process = std::make_unique<test::Process>(own_folder_[static_cast<size_t>(rank)], arguments);
    for (const auto& [name, value] : variables) unsetenv(name.c_str());
    return process;
  }
  /// A port that was free a moment ago.
  static int free_port() {
    const int probe = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof(address);
    EXPECT_EQ(bind(probe, reinterpret_cast<sockaddr*>(&address), length), 0);
    EXPECT_EQ(getsockname(probe, reinterpret_cast<sockaddr*>(&address), &length), 0);
    close(probe);
    return ntohs(address.sin_port);
  }

  test::TemporaryFolder folder_;
  std::array<test::TemporaryFolder, 2> own_folder_;
};

TEST_F(Ranks, TwoAndFourEqualOneProcess) {
  ASSERT_EQ(train("one", 1).status, 0);
  for (const int64_t processes : {2, 4}) {
    const std::string name = std::to_string(processes);
    const Finished done = train(name, processes);
    ASSERT_EQ(done.status, 0) << done.err << content(folder_ / (name + "/rank-1.log"));
    EXPECT_TRUE(holds(done.out, "12 steps")) << done.out;
    for (const char* file : {"model", "optimiser", "state", "average"}) {
      EXPECT_LT(difference(step("one", 12) + "/" + file + ".safetensors", step(name, 12) + "/" + file + ".safetensors"),
                2e-4)
          << file;
    }
    EXPECT_EQ(content(step("one", 12) + "/data.safetensors"), content(step(name, 12) + "/data.safetensors"));
  }
}

TEST_F(Ranks, ResumeOnTheSameNumberIsBitwiseAndOnAnotherExactButForRounding) {
  ASSERT_EQ(train("whole", 2).status, 0);
  ASSERT_EQ(train("parts", 2, {"--set", "train.steps=4"}).status, 0);
  ASSERT_EQ(resume("parts", 2, {"--set", "train.steps=12"}).status, 0);
  // Not the trainer's file: the run that ended at step 4 has an evaluation more.
  for (const char* file : {"model", "optimiser", "state", "average"}) {
    const std::string name = std::string("/") + file + ".safetensors";
    EXPECT_EQ(content(step("whole", 8) + name), content(step("parts", 8) + name)) << file;
    EXPECT_EQ(content(step("whole", 12) + name), content(step("parts", 12) + name)) << file;
  }
  ASSERT_EQ(train("mixed", 2, {"--set", "train.steps=4"}).status, 0);
  ASSERT_EQ(resume("mixed", 1, {"--set", "train.steps=8"}).status, 0);
  ASSERT_EQ(resume("mixed", 4, {"--set", "train.steps=12"}).status, 0);
  EXPECT_LT(difference(step("whole", 12) + "/model.safetensors", step("mixed", 12) + "/model.safetensors"), 2e-4);
  EXPECT_EQ(content(step("whole", 12) + "/data.safetensors"), content(step("mixed", 12) + "/data.safetensors"));
}

TEST_F(Ranks, AKilledRankEndsAllWithItsName) {
  Endless run = endless("60");
  const auto began = std::chrono::steady_clock::now();
  kill(run.rank1, SIGKILL);
  const Finished done = run.process->finish();
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(65));
  EXPECT_EQ(done.status, 1) << done.err;
  EXPECT_TRUE(holds(done.err, "rank 1 (")) << done.err;
  EXPECT_TRUE(holds(done.err, "signal 9")) << done.err;
  EXPECT_TRUE(holds(done.err, "rank-1.log")) << done.err;
  // And goes on from the last checkpoint.
  const Finished more = run_on();
  EXPECT_EQ(more.status, 0) << more.err;
}

TEST_F(Ranks, AStoppedRankEndsAllAfterTheTimeout) {
  Endless run = endless("8");
  const auto began = std::chrono::steady_clock::now();
  kill(run.rank1, SIGSTOP);
  const Finished done = run.process->finish();
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(60));
  EXPECT_EQ(done.status, 1) << done.err;
  EXPECT_TRUE(holds(done.err, "rank 1 (")) << done.err;
  EXPECT_TRUE(holds(done.err, "step ")) << done.err;
}

TEST_F(Ranks, SigtermToOneRankSavesOnAll) {
  Endless run = endless("60");
  kill(run.rank1, SIGTERM);
  const Finished done = run.process->finish();
  EXPECT_EQ(done.status, 143) << done.err;
  EXPECT_TRUE(holds(done.err, "saved in")) << done.err;
  EXPECT_EQ(run_on().status, 0);
}

/// torchrun --max-restarts repeats the command line of a failed job.
TEST_F(Ranks, AJobThatIsStartedAgainGoesOn) {
  ASSERT_EQ(train("run", 1, {"--set", "train.steps=4"}).status, 0);
  const auto again = [&](const std::string& count) {
    const std::map<std::string, std::string> variables = {{"RANK", "0"},
                                                          {"WORLD_SIZE", "1"},
                                                          {"LOCAL_RANK", "0"},
                                                          {"LOCAL_WORLD_SIZE", "1"},
                                                          {"MASTER_ADDR", "127.0.0.1"},
                                                          {"MASTER_PORT", std::to_string(free_port())},
                                                          {"TORCHELASTIC_RESTART_COUNT", count}};
    for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 1);
    const Finished done = train("run", 1, {"--set", "train.steps=8"});
    for (const auto& [name, value] : variables) unsetenv(name.c_str());
    return done;
  };
  const Finished first = again("0");
  EXPECT_EQ(first.status, 2);
  EXPECT_TRUE(holds(first.err, "--resume")) << first.err;
  const Finished second = again("1");
  EXPECT_EQ(second.status, 0) << second.err;
  EXPECT_TRUE(base::path_exists(step("run", 8)));
}

TEST_F(Ranks, AnotherRecipeOnARankIsRefusedByName) {
  const std::string port = std::to_string(free_port());
  const auto start = [&](int rank, const std::string& lr, const std::string& out) {
    return start_rank(rank, port,
                      {"train", folder_ / "recipe.toml", "--out", folder_ / out, "--rank-timeout", "60", "--set",
                       "train.optimiser.lr=" + lr});
  };
  auto first = start(0, "0.01", "run"), second = start(1, "0.02", "run");
  const Finished found = first->finish();
  EXPECT_EQ(found.status, 2) << found.err;
  EXPECT_TRUE(holds(found.err, "rank 1 (")) << found.err;
  EXPECT_TRUE(holds(found.err, "another recipe")) << found.err;
  EXPECT_EQ(second->finish().status, 2);
  // With the same one they train.
  first = start(0, "0.01", "run");
  second = start(1, "0.01", "run");
  const Finished done = first->finish();
  EXPECT_EQ(done.status, 0) << done.err;
  EXPECT_EQ(second->finish().status, 0);
}

/// A study's trainings over the ranks of a job, one a rank: the results of one process.
TEST_F(Ranks, AStudyOverTheRanksOfAJob) {
  test::write(folder_ / "study.toml", std::string("base = \"recipe.toml\"\n") + R"(
name = "Caches"
[train]
steps = 4
[[study]]
name = "Caches"
[[study.variant]]
name = "none"
model.memory = []
[[study.variant]]
name = "short"
model.memory = [{ type = "segment_cache", mem_len = 4 }]
[[study.variant]]
name = "broken"
train.optimiser.lr = 1e30
)");
  const std::vector<std::string> words = {"compare", folder_ / "study.toml", "--threads", "1", "--seeds", "2", "--json",
                                          "--out"};
  const auto into = [&](const std::string& name, std::vector<std::string> more = {}) {
    std::vector<std::string> whole = words;
    whole.push_back(folder_ / name);
    whole.insert(whole.end(), more.begin(), more.end());
    return whole;
  };
  const Finished alone = run(into("alone"));
  const std::string port = std::to_string(free_port());
  auto first = start_rank(0, port, into("shared")), second = start_rank(1, port, into("shared"));
  const Finished done = first->finish(), other = second->finish();
  EXPECT_EQ(done.status, alone.status) << done.err;
  EXPECT_EQ(other.status, 0) << other.err;
  EXPECT_EQ(other.out, "") << "rank 0 writes";
  const auto values = [](const std::string& text) {
    std::vector<std::string> found;
    const base::Node node = base::parse_json(text, "results");
    for (const base::Node& variant : node.at("studies").items()[0].at("variants").items()) {
      for (const base::Node& one : variant.at("runs").items())
        found.push_back(one.at("error").as_string() + base::to_json(one.at("value"), -1));
    }
    return found;
  };
  EXPECT_EQ(values(done.out), values(alone.out));
  EXPECT_EQ(values(done.out).size(), 6u);
  // What one rank has done is not done again; other options on a rank are refused by name.
  first = start_rank(0, port, into("shared"));
  second = start_rank(1, port, into("shared"));
  const Finished again = first->finish();
  EXPECT_TRUE(holds(again.err, "4 of 6 trainings are already done")) << again.err;
  EXPECT_EQ(values(again.out), values(alone.out));
  EXPECT_EQ(second->finish().status, 0);
  first = start_rank(0, port, into("shared"));
  second = start_rank(1, port, into("shared", {"--set", "train.steps=3"}));
  const Finished refused = first->finish();
  EXPECT_EQ(refused.status, 2) << refused.err;
  EXPECT_TRUE(holds(refused.err, "another recipe")) << refused.err;
  EXPECT_EQ(second->finish().status, 2);
  first = start_rank(0, port, into("shared", {"--jobs", "3"}));
  second = start_rank(1, port, into("shared", {"--jobs", "3"}));
  EXPECT_TRUE(holds(first->finish().err, "--jobs: each of the 2 ranks"));
  EXPECT_EQ(second->finish().status, 2);
}

/// Sentence pairs in batches of at most so many tokens.
void write_pairs(const test::TemporaryFolder& folder, int batch_tokens, const std::string& memory) {
  std::string pairs;
  for (int i = 0; i < 120; ++i)
    pairs += fmt::format("number {0} of {1}{2}\tZahl {0} von {1}\n", i % 10, i / 10, i % 3 == 0 ? " and more" : "");
  test::write(folder / "pairs.tsv", pairs);
  test::write(folder / "recipe.toml", fmt::format(R"(
[data]
type = "pairs"
train = "pairs.tsv"
valid_fraction = 0.2
max_length = 12
batch_tokens = {}
translated = 8
search = {{ beam_size = 2, max_len_b = 8 }}
[model]
embedding = {{ shared = "all" }}
head = {{ bias = false }}
[model.backbone]
type = "encoder_decoder"
dim = 16
num_heads = 2
ffn_dim = 16
dropout = 0.1
encoder = {{ num_layers = 1, memory = [{}] }}
decoder = {{ num_layers = 1 }}
[train]
steps = 8
batch_size = 12
shuffle = true
threads = 1
save_every = 4
log_every = 1
eval_every = 4
tensorboard = false
)",
                                                  batch_tokens, memory));
}

/// Batches of sentences differ in their number of rows and of targets; the encoder has one GRC cache. BLEU of
/// translations that the ranks share.
TEST_F(Ranks, UnevenBatchesOfPairs) {
  write_pairs(folder_, 96, R"({ type = "grc", cache_len = 4 })");
  expect_equal_to_one_process(8);
}

/// Batches of one or two rows: ranks without a row draw the dropout masks of the others all the same.
TEST_F(Ranks, BatchesWithFewerRowsThanRanks) {
  write_pairs(folder_, 12, "");
  expect_equal_to_one_process(8);
}

/// Augmented images, mixed by pairs, with dropped paths and a moving average.
TEST_F(Ranks, ImagesWithAugmentation) {
  data::make_class_folders(folder_ / "photos", 8);
  test::write(folder_ / "recipe.toml", R"(
[data]
type = "images"
train = "photos"
valid_fraction = 0.25
image_size = [32, 32]
augment = { scale = [0.5, 1.0], mixup = 0.5, label_smoothing = 0.1 }
[model]
backbone = { type = "vit", image_size = [32, 32], patch_size = 8, dim = 16, num_layers = 2, num_heads = 2, dropout = 0.1 }
head = { type = "classification" }
memory = [{ type = "grc", cache_ratio = 0.5 }]
[train]
steps = 8
batch_size = 8
eval_batch_size = 3
ema_decay = 0.9
optimiser = { type = "sgd", lr = 0.05 }  # Adam makes whole steps of the rounding of biases without a gradient
shuffle = true
threads = 1
save_every = 4
eval_every = 4
tensorboard = false
)");
  expect_equal_to_one_process(8);
}

/// A cache for each place of the batch stays with the rank that has the place.
TEST_F(Ranks, LanesOfImages) {
  data::make_class_folders(folder_ / "photos", 8);
  test::write(folder_ / "recipe.toml", R"(
[data]
type = "images"
train = "photos"
valid_fraction = 0.25
image_size = [32, 32]
[model]
backbone = { type = "vit", image_size = [32, 32], patch_size = 8, dim = 16, num_layers = 2, num_heads = 2 }
head = { type = "classification" }
memory = [{ type = "attention_cache", lanes = "batch", eval_lanes = "empty" }]
[train]
steps = 8
batch_size = 8
accumulate = 2
eval_batch_size = 3
optimiser = { type = "sgd", lr = 0.05 }
shuffle = true
threads = 1
save_every = 4
keep_last = 0
tensorboard = false
)");
  expect_equal_to_one_process(8);
  const weights::TensorFile state = weights::read_safetensors(step("one", 8) + "/state.safetensors");
  int64_t lanes = 0;
  for (const auto& [name, tensor] : state.tensors) {
    if (!name.ends_with("attention_cache.rows")) continue;
    EXPECT_EQ(tensor.sizes(), at::IntArrayRef({4, 17, 16})) << name;
    ++lanes;
  }
  EXPECT_EQ(lanes, 4) << "two layers of two parts of the batch";
  // What a resumed training reads there, bit for bit.
  ASSERT_EQ(train("parts", 1, {"--set", "train.steps=4"}).status, 0);
  ASSERT_EQ(resume("parts", 1, {"--set", "train.steps=8"}).status, 0);
  EXPECT_EQ(content(step("one", 8) + "/model.safetensors"), content(step("parts", 8) + "/model.safetensors"));
  // One cache for the model has the last image of the whole batch.
  expect_equal_to_one_process(8, "last", {"--set", "model.memory=[{type=\"attention_cache\"}]"});
  ASSERT_EQ(
      train("whole", 1, {"--set", "model.memory=[{type=\"attention_cache\"}]", "--set", "train.accumulate=1"}).status,
      0);
  EXPECT_LT(difference(step("lastone", 8) + "/model.safetensors", step("whole", 8) + "/model.safetensors"), 1e-3);
  // A memory that goes from batch to batch is no matter of several processes.
  const Finished refused = train("moving", 2, {"--set", "model.memory[0].eval_lanes=\"moving\""});
  EXPECT_EQ(refused.status, 2);
  EXPECT_TRUE(holds(refused.err, "dealt to 2 processes")) << refused.err;
}

/// Random slots and projections are drawn for the whole batch, also where a document begins in the streams of one rank.
TEST_F(Ranks, RandomDrawsAreThoseOfOneProcess) {
  std::string text;
  for (int64_t i = 0; i < 600; ++i)
    text += std::to_string(i * 7919 % 1000) + (i * i % 13 == 1 ? " pears\n\n" : " figs\n");
  test::write(folder_ / "text.txt", text);
  const std::map<std::string, std::string> attentions = {
      {"segment", "{type=\"abc\",num_slots=4,control={type=\"random\",redraw=\"segment\"}}"},
      {"sequence", "{type=\"abc\",num_slots=4,control={type=\"random\",redraw=\"sequence\"}}"},
      {"projections", "{type=\"linear\",feature_map=\"rfa\",num_features=4,redraw=\"sequence\"}"}};
  for (const auto& [name, attention] : attentions)
    expect_equal_to_one_process(4, name,
                                {"--set", "model.backbone.attention=" + attention, "--set", "model.memory=[]", "--set",
                                 "data.document_separator=\"blank_line\"", "--set", "train.steps=4"});
}

/// Parts of a text, and samples of a task: counts and sums are those of one process.
TEST_F(Ranks, EvaluationIsThatOfOneProcess) {
  ASSERT_EQ(train("run", 1).status, 0);
  const std::vector<std::string> words = {"eval", folder_ / "run/model", "--batch", "6", "--json", "--threads", "1"};
  const base::Node alone = base::parse_json(run(words).out, "alone");
  for (const int64_t processes : {2, 4}) {
    const Finished done = run(with_processes(words, processes, {}));
    ASSERT_EQ(done.status, 0) << done.err;
    const base::Node shared = base::parse_json(done.out, "shared");
    EXPECT_EQ(alone.at("predictions").as_int(), shared.at("predictions").as_int());
    EXPECT_NEAR(alone.at("nll").as_double(), shared.at("nll").as_double(), 1e-6);
  }
  const Finished refused = run({"eval", folder_ / "run/model", "--processes", "2"});
  EXPECT_EQ(refused.status, 2);
  EXPECT_TRUE(holds(refused.err, "--batch")) << refused.err;
}

TEST_F(Ranks, ErrorsOfTheCommandLine) {
  Finished done = train("run", 3);
  EXPECT_EQ(done.status, 2);
  EXPECT_TRUE(holds(done.err, "train.batch_size")) << done.err;
  EXPECT_TRUE(holds(done.err, "such as 6 or 12, found 8")) << done.err;
  done = train("run", 2000);
  EXPECT_EQ(done.status, 2);
  EXPECT_TRUE(holds(done.err, "--processes: expected 1 to 1024, found 2000")) << done.err;
}

}  // namespace
}  // namespace mnemo
