#include <ATen/core/Tensor.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <set>

#include "base/exit_status.h"
#include "bench/allocation_meter.h"
#include "bench/bench.h"
#include "bench/case.h"
#include "bench/decoding.h"
#include "bench/kernel.h"
#include "bench/limits.h"
#include "bench/mechanism.h"
#include "bench/peer_process.h"
#include "bench/rounds.h"
#include "cli/application.h"
#include "memory/abc_control/control.h"
#include "models/registry.h"
#include "tests/support/temporary_folder.h"

namespace mnemo::bench {
namespace {

/// The benchmark case of that name with small layers.
BenchCase small(const std::string& name) {
  for (BenchCase bench_case : bench_cases()) {
    if (bench_case.name != name) continue;
    bench_case.layers = 2;
    bench_case.dim = 32;
    bench_case.ffn = 64;
    bench_case.batch = 2;
    return bench_case;
  }
  ADD_FAILURE() << name;
  return bench_cases().front();
}

TEST(AllocationMeter, CountsBytesOfTensorsFreedOnesToo) {
  at::Tensor before = at::empty({1000});
  const AllocationMeter meter;
  EXPECT_EQ(meter.bytes(), 0);
  { const at::Tensor freed = at::empty({1000}); }
  const at::Tensor kept = at::empty({500}, at::kDouble), view = kept.narrow(0, 0, 10);
  before.resize_({2000});  // uses the allocator that made it
  EXPECT_EQ(meter.bytes(), 8000);
}

TEST(Bench, ATokenAllocatesNoTensorsNearByOrFarOut) {
  for (const char* name : {"demo", "rmt", "abc", "decoder", "transformer_xl"}) {
    BenchSubject subject(small(name));
    subject.allocated(64);  // tables of constants are only made once
    for (const int64_t position : {64, 1024, 16384})
      EXPECT_EQ(subject.allocated(position), 0) << name << " at " << position;
  }
}

TEST(Bench, FiguresTellAModelFromAnother) {
  BenchCase bench_case = small("demo");
  const BenchFigures figures = BenchSubject(bench_case).figures();
  EXPECT_EQ(figures.tokens.size(), 80u);
  EXPECT_GT(figures.loss, 1.0);
  EXPECT_GT(figures.gradient_norm, 0.0);
  EXPECT_EQ(disagreement(figures, BenchSubject(bench_case).figures()), "");
  bench_case.mem_len = 16;
  EXPECT_NE(disagreement(figures, BenchSubject(bench_case).figures()), "");
}

TEST(Bench, TheCacheIsPartOfTheModel) {
  BenchCase bench_case = small("decoder");
  const BenchFigures figures = BenchSubject(bench_case).figures();
  bench_case.grc = true;
  EXPECT_NE(disagreement(figures, BenchSubject(bench_case).figures()), "");
}

TEST(Bench, ATrainingStepHasThreeTimesTheProductsOfAForwardPass) {
  const BenchCase c = small("decoder");
  const double tokens = static_cast<double>(c.batch * c.segment), vocabulary = 65;
  const double maps = tokens *
                      static_cast<double>(c.layers * (4 * c.dim * c.dim + 2 * c.dim * c.ffn) + c.dim * vocabulary);
  const double pairs = static_cast<double>(c.batch * c.segment * (c.segment + 1) / 2);
  const double attention = 2 * pairs * static_cast<double>(c.layers * c.dim);
  EXPECT_DOUBLE_EQ(BenchSubject(c).train_products(), 3 * 2 * (maps + attention));
}

TEST(Bench, ProductsInBf16AreOtherProducts) {
  const BenchCase bench_case = small("decoder");
  BenchSubject plain(bench_case), again(bench_case), rounded(bench_case);
  plain.train(2);
  again.train(2);
  rounded.train(2, ops::ProductPrecision::bf16);
  const BenchFigures figures = plain.figures();
  EXPECT_EQ(figures.loss, again.figures().loss);
  EXPECT_NE(figures.loss, rounded.figures().loss);
  EXPECT_NEAR(figures.loss, rounded.figures().loss, 0.01 * figures.loss);
}

TEST(Bench, LikeliestTokensVaryInEveryCase) {
  for (const BenchCase& bench_case : bench_cases()) {
    const BenchFigures figures = BenchSubject(small(bench_case.name)).figures();
    std::vector<int64_t> tokens = figures.tokens;
    std::sort(tokens.begin(), tokens.end());
    tokens.erase(std::unique(tokens.begin(), tokens.end()), tokens.end());
    EXPECT_GT(tokens.size(), 5u) << bench_case.name;
  }
}

TEST(Bench, ADisagreementNamesTheFigureAndBothNumbers) {
  const BenchFigures ours{2.0, 1.0, 3.0, {1, 2, 3}};
  BenchFigures theirs = ours;
  theirs.loss = 2.0001;
  EXPECT_EQ(disagreement(ours, theirs), "");
  theirs.loss = 2.001;
  EXPECT_EQ(disagreement(ours, theirs), "loss: ours 2, the peer's 2.001");
  theirs = ours;
  theirs.gradient_norm = 1.002;
  EXPECT_EQ(disagreement(ours, theirs), "gradient norm: ours 1, the peer's 1.002");
  theirs = ours;
  theirs.held_out = 0;
  EXPECT_EQ(disagreement(ours, theirs), "loss of the held-out text: ours 3, the peer's 0");
  theirs = ours;
  theirs.tokens[1] = 7;
  EXPECT_EQ(disagreement(ours, theirs), "likeliest token 1: ours 2, the peer's 7");
  theirs.tokens.pop_back();
  EXPECT_EQ(disagreement(ours, theirs), "likeliest tokens: ours are 3, the peer's 2");
  theirs = ours;
  theirs.loss = std::nan("");
  EXPECT_NE(disagreement(ours, theirs), "");
}

TEST(Bench, FiguresOfAPeerAreReadOrRefused) {
  const BenchFigures figures = read_figures(R"({"loss": 1.5, "gradient_norm": 2, "tokens": [3, 4], "held_out": 0.5})",
                                            "peer");
  EXPECT_EQ(disagreement({1.5, 2, 0.5, {3, 4}}, figures), "");
  EXPECT_THROW(read_figures("Traceback", "peer"), base::InputError);
  EXPECT_THROW(read_figures(R"({"loss": 1.5})", "peer"), base::InputError);
}

TEST(Bench, AFigureThatFallsShortOfItsBarIsNamed) {
  const test::TemporaryFolder folder;
  std::ofstream(folder / "bars.toml") << "[train]\nstock = 1.5\n[kernels.abc]\ngrowth = 16.5\n";
  Bars bars(folder / "bars.toml");
  bars.at_least("train", "stock", 1.5, "a");
  bars.at_most("kernels.abc", "growth", 16.5, "b");
  bars.at_least("train", "best", 0, "no bar");
  bars.at_least("kernels.relative", "growth", 0, "no table");
  EXPECT_TRUE(bars.missed().empty());
  bars.at_least("train", "stock", 1.49, "a");
  bars.at_most("kernels.abc", "growth", 17, "b");
  bars.at_least("train", "stock", std::nan(""), "c");
  EXPECT_EQ(bars.missed(), (std::vector<std::string>{"a: 1.49, expected at least 1.5", "b: 17, expected at most 16.5",
                                                     "c: nan, expected at least 1.5"}));
  Bars none;
  none.at_least("train", "stock", 0, "a");
  EXPECT_TRUE(none.missed().empty());
}

TEST(Bench, BarsOfAKindOfProcessorGoBeforeTheOthers) {
  EXPECT_EQ(kind_of_processor("avx2 fma avx512f"), "avx2");
  EXPECT_EQ(kind_of_processor("avx2 avx512f avx512_vnni"), "avx512");
  EXPECT_EQ(kind_of_processor("avx512_vnni amx_tile amx_bf16"), "avx512");
  EXPECT_EQ(kind_of_processor("avx512_vnni amx_tile amx_int8"), "amx");
  const test::TemporaryFolder folder;
  std::ofstream(folder / "bars.toml") << "[a.b]\nx = 1\ny = 1\n[on.avx512.a.b]\nx = 2\n[on.amx.a.b]\nx = 3\n";
  const auto missed = [&](const std::string& kind) {
    Bars bars(folder / "bars.toml", kind);
    for (const double value : {1.0, 2.0}) bars.at_least("a.b", "x", value, kind);
    bars.at_least("a.b", "y", 1, "no bar of a kind");
    return bars.missed();
  };
  EXPECT_EQ(missed("avx2"), std::vector<std::string>());
  EXPECT_EQ(missed("avx512"), std::vector<std::string>{"avx512: 1, expected at least 2"});
  EXPECT_EQ(missed("amx").size(), 2u);
}

TEST(Bench, RoundsKeepTheMiddleAndTheEnds) {
  const Rounds odd = rounds_of({3, 1, 2}), even = rounds_of({4, 1, 2, 9});
  EXPECT_EQ(odd.median, 2);
  EXPECT_EQ(even.median, 3);
  EXPECT_EQ(even.least, 1);
  EXPECT_EQ(even.most, 9);
}

TEST(Bench, ExtraMemoryIsThePeakOfACall) {
  constexpr int64_t kBytes = 64 << 20;
  at::Tensor kept = at::zeros({kBytes / 4});
  const std::optional<int64_t> extra = extra_memory([&] {
    at::zeros({kBytes / 4});
    kept.add_(at::zeros({kBytes / 8}).repeat({2}));  // 1.5 times as much at once
  });
  if (!extra) GTEST_SKIP() << "the system does not tell";
  EXPECT_GT(*extra, kBytes);
  EXPECT_LT(*extra, 2 * kBytes);
}

TEST(Bench, KernelsCountTheProductsOfVisiblePairs) {
  EXPECT_EQ((KernelCase{"causal", 2}).products(false), 2.0 * 512 * 3 * 2);
  EXPECT_EQ((KernelCase{"causal", 2}).products(true), 2.0 * 512 * 3 * 7);
  EXPECT_EQ((KernelCase{"relative", 2}).products(false), 2.0 * 512 * 7 * 3);
  EXPECT_EQ((KernelCase{.name = "cached", .time = 2, .batch = 3}).products(true), 3 * 2.0 * 512 * 7 * 7);
  EXPECT_EQ((KernelCase{"abc_32", 2, 32}).products(false), 0);
}

TEST(Bench, KernelsHaveNormsOfTheOutputAndOfEachGradient) {
  for (const auto& [kernel_case, norms] :
       {std::pair(KernelCase{"causal", 64}, 4u), std::pair(KernelCase{"relative", 64}, 7u),
        std::pair(KernelCase{"cached", 64}, 4u), std::pair(KernelCase{"abc_32", 64, 32}, 5u)}) {
    const std::vector<double> found = KernelSubject(kernel_case).norms();
    EXPECT_EQ(found.size(), norms) << kernel_case.name;
    for (const double norm : found) EXPECT_GT(norm, 0) << kernel_case.name;
    EXPECT_EQ(KernelSubject(kernel_case).norms(), found) << kernel_case.name;
  }
}

TEST(Bench, DecodingRunsEveryCaseInEveryPrecision) {
  for (DecodingCase decoding_case : decoding_cases()) {
    decoding_case.layers = 2;
    decoding_case.dim = 64;
    decoding_case.heads = 4;
    decoding_case.ffn = 128;
    decoding_case.vocab = 300;
    decoding_case.segment = std::min<int64_t>(decoding_case.segment, 500);
    DecodingSubject subject(decoding_case);
    std::vector<int64_t> tokens = subject.greedy(24);
    std::sort(tokens.begin(), tokens.end());
    EXPECT_GT(std::unique(tokens.begin(), tokens.end()) - tokens.begin(), 1) << decoding_case.name;
    for (const char* precision : {"float32", "bf16", "int8", "w8a8"}) {
      EXPECT_GT(subject.token(precision, 16, 1, 2), 0) << decoding_case.name;
      EXPECT_GT(subject.token(precision, 16, 3, 2), 0) << decoding_case.name;
      if (decoding_case.slots > 0) {
        EXPECT_GT(subject.token_at(precision, 1'000'000, 2), 0);
      }
    }
    EXPECT_LT(subject.bytes("int8", 16), subject.bytes("bf16", 16)) << decoding_case.name;
    EXPECT_LT(subject.bytes("bf16", 16), subject.bytes("float32", 16)) << decoding_case.name;
  }
}

TEST(BenchMechanisms, EveryMechanismOfTheRegistryHasACase) {
  std::set<std::string> attentions, memories, controls = {"identity"};  // identity is softmax attention, for proofs
  for (const MechanismCase& mechanism : mechanism_cases()) {
    const models::ModelOptions options = mechanism.options();
    attentions.insert(options.backbone.stack().attention.type());
    const base::Node attention = options.backbone.stack().attention.table();
    if (const base::Node* control = attention.find("control")) controls.insert(base::type_of(*control));
    for (const base::TypedOptions& memory : options.memory) memories.insert(memory.type());
  }
  const models::Mechanisms& registry = models::Mechanisms::all();
  for (const std::string& name : registry.attentions.names()) EXPECT_TRUE(attentions.contains(name)) << name;
  for (const std::string& name : registry.memories.names()) {
    // Tasks are for vision models (bench/micro/tasks.cpp).
    if (registry.memories.find(name).tasks) continue;
    EXPECT_TRUE(memories.contains(name)) << name;
  }
  for (const std::string& name : memory::abc_control_types().types()) EXPECT_TRUE(controls.contains(name)) << name;
}

TEST(BenchMechanisms, StateIsThatOfGeneration) {
  std::map<std::string, MechanismSubject> subjects;
  for (const MechanismCase& mechanism : mechanism_cases()) {
    for (const char* name : {"softmax", "abc_mlp", "softmax_encoder", "segment_cache"}) {
      if (mechanism.name == name) subjects.emplace(name, mechanism);
    }
  }
  const auto bytes = [&](const std::string& name, int64_t tokens) { return subjects.at(name).state_bytes(tokens); };
  EXPECT_GE(bytes("softmax", 512), 2 * 2 * 512 * 256 * 4);  // keys and values of two layers
  EXPECT_GE(bytes("softmax", 2048), 4 * bytes("softmax", 512) - 1000);
  EXPECT_EQ(bytes("abc_mlp", 2048) - bytes("abc_mlp", 512),
            2048 - 512);  // slots, and a byte for each row of the open segment
  EXPECT_EQ(bytes("softmax_encoder", 512), 0);
  EXPECT_GT(bytes("segment_cache", 2048), bytes("segment_cache", 512));  // the cache is empty in the first segment
  EXPECT_EQ(bytes("segment_cache", 2048), bytes("segment_cache", 4096));
}

TEST(BenchMechanisms, APeerThatComputesSomethingElseIsToldApart) {
  const MechanismCase mechanism = {.name = "a", .attention = "", .agree = 0.9};
  const MechanismFigures ours{2.0, 1.0};
  EXPECT_EQ(mechanism_disagreement(mechanism, ours, {2.0001, 1.0005, 0.95, 0.5}), "");
  EXPECT_EQ(mechanism_disagreement(mechanism, ours, {2.0, 1.0, 0.5, 0.25}),
            "outputs: 0.5 of the tokens are the peer's, expected 0.9; off by 0.25 of the largest");
  EXPECT_EQ(mechanism_disagreement(mechanism, ours, {2.001, 1.0}), "loss: ours 2, the peer's 2.001");
  EXPECT_EQ(mechanism_disagreement(mechanism, ours, {2.0, 1.002}), "gradient norm: ours 1, the peer's 1.002");
  EXPECT_EQ(mechanism_disagreement({.name = "a", .attention = "", .gradient = 5e-3}, ours, {2.0, 1.002}), "");
  EXPECT_NE(mechanism_disagreement(mechanism, ours, {2.0, 1.0, std::nan(""), 0}), "");
  EXPECT_NE(mechanism_disagreement(mechanism, ours, {std::nan(""), 1.0}), "");
  const MechanismFigures read = read_mechanism_figures(R"({"loss": 1.5, "gradient_norm": 2, "agree": 1, "off": 1e-6})",
                                                       "peer");
  EXPECT_EQ(mechanism_disagreement(mechanism, {1.5, 2}, read), "");
  EXPECT_THROW(read_mechanism_figures(R"({"loss": 1.5})", "peer"), base::InputError);
}

TEST(PeerProcess, OneThatTakesTooLongIsGivenUp) {
  PeerProcess peer({"sh", "-c", "echo ready; read line; echo 1.5; read line; exec sleep 60"}, {});
  EXPECT_EQ(peer.number(*peer.ask_within("first", 20.0)), 1.5);
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(peer.ask_within("second", 0.1), std::nullopt);
  EXPECT_LT(seconds_since(begin), 10.0);
  EXPECT_THROW(peer.number("out of memory"), base::InputError);
}

TEST(BenchTokenizers, EncodesTheLinesOfATextWithEveryTokenizer) {
  const test::TemporaryFolder folder;
  std::ofstream(folder / "text") << "The first line.\n\nAnd a third one\n";
  BenchArguments arguments;
  arguments.no_peers = true;
  arguments.repeats = 1;
  arguments.text = folder / "text";
  for (const std::string& name : tokenizer_case_names()) {
    arguments.tokenizer = MNEMO_SOURCE_DIR "/tests/golden/data/text_tools/tokenizer_" + name;
    Bars bars;
    const BenchReport report = bench_tokenizers(arguments, bars);
    const base::Node& row = report.figures.at("results").items().at(0);
    EXPECT_GT(row.at("ids").as_int(), 8) << name;
    EXPECT_GT(row.at("seconds").at("median").as_double(), 0.0) << name;
  }
}

/// The part `device` for its smallest case.
BenchArguments on_processor() {
  BenchArguments arguments;
  arguments.part = "device", arguments.device = "cpu";
  arguments.cases = {"cached_float32"}, arguments.lengths = {"512"};
  arguments.repeats = 1;
  return arguments;
}

TEST(BenchDevice, MeasuresKernelsOnTheProcessorToo) {
  BenchArguments arguments = on_processor();
  arguments.no_peers = true;
  Bars bars;
  const BenchReport report = bench_device(arguments, bars);
  const std::vector<base::Node>& rows = report.figures.at("results").items();
  ASSERT_EQ(rows.size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(rows[i].at("job").as_string(), i == 0 ? "forward" : "backward");
    EXPECT_EQ(rows[i].at("T").as_int(), 512);
    const double flops = rows[i].at("flops").as_double(), seconds = rows[i].at("seconds").at("median").as_double();
    EXPECT_NEAR(flops * seconds, (KernelCase{"cached", 512}).products(i == 1), 1e3);
  }
}

/// Peers of one kernel: one that answers with other norms, one that ends, one that cannot be started.
TEST(BenchDevice, APeerThatFailsSaysWhyAndCostsNoFigures) {
  const test::TemporaryFolder folder;
  const auto failure_of = [&](const std::string& script) {
    std::ofstream(folder / "kernel.py") << script;
    BenchArguments arguments = on_processor();
    arguments.peers = folder.path();
    Bars bars;
    const base::Node rows = bench_device(arguments, bars).figures.at("results");
    for (const base::Node& row : rows.items()) EXPECT_GT(row.at("seconds").at("median").as_double(), 0);
    return rows.items()[1].at("peers").at("cached").at("failed").as_string();
  };
  const std::string loop = "import sys\nprint('ready', flush=True)\nfor line in sys.stdin:\n  ";
  EXPECT_NE(failure_of(loop + "print('ok' if line[0] == 'l' else '[1, 2, 3, 4]', flush=True)").find("not the same"),
            std::string::npos);
  EXPECT_NE(failure_of(loop + "print('ok' if line[0] == 'l' else 'failed: no Triton', flush=True)").find("no Triton"),
            std::string::npos);
  EXPECT_NE(failure_of(loop + "raise SystemExit").find("the peer ended"), std::string::npos);
  EXPECT_NE(failure_of("print('hello')").find("expected the line \"ready\""), std::string::npos);
}

TEST(CommandLine, WrongWordsAreRefused) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"kernel"}, "PART: unknown part 'kernel'; did you mean 'kernels'?"},
      {{"kernels", "--case", "abc_23"}, "--case: unknown case 'abc_23'"},
      {{"kernels", "--device", "cpu"}, "--device: of device alone; the part is 'kernels'"},
      {{"device", "--device", "tpu"}, "--device: expected cpu, cuda or cuda:N, found 'tpu'"},
      {{"device", "--length", "700"}, "--length: unknown length '700'"},
      {{"--precision", "int8"}, "--precision: of decoding and prompts alone; the part is 'models'"},
      {{"decoding", "--precision", "int3"}, "--precision: unknown precision 'int3'"},
      {{"kernels", "--text", "x"}, "--tokenizer, --text: of tokenizers alone; the part is 'kernels'"},
      {{"tokenizers", "--no-peers", "--text", "/nowhere"}, "/nowhere"},
  };
  for (const auto& [arguments, message] : cases) {
    std::vector<std::string> words = {"mnemo-bench"};
    words.insert(words.end(), arguments.begin(), arguments.end());
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    testing::internal::CaptureStderr();
    const int status = cli::run(static_cast<int>(argv.size()), argv.data(), make_bench);
    const std::string err = testing::internal::GetCapturedStderr();
    EXPECT_EQ(status, base::kWrongInput) << message;
    EXPECT_NE(err.find(message), std::string::npos) << "expected: " << message << "\nfound: " << err;
  }
}

}  // namespace
}  // namespace mnemo::bench
