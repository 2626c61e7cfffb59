#include "bench/bench.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/types.h>

#include <algorithm>
#include <memory>

#include "base/exit_status.h"
#include "base/machine.h"
#include "base/nearest.h"
#include "base/output.h"
#include "base/text_format.h"
#include "bench/mechanism.h"
#include "bench/serving.h"
#include "cli/application.h"
#include "cli/command.h"
#include "cli/commands.h"
#include "ops/linear/packed_linear.h"

namespace mnemo::bench {
namespace {

constexpr const char* kMechanisms = "mechanisms";  ///< used for --all; not accepted on the command line

struct BenchPart {
  std::string name;
  BenchReport (*run)(const BenchArguments&, Bars&);
  std::vector<std::string> cases;
};

std::vector<BenchPart> bench_parts() {
  return {{"models", bench_models, model_case_names()},
          {"kernels", bench_kernels, kernel_case_names()},
          {"decoding", bench_decoding, decoding_case_names()},
          {"prompts", bench_prompts, prompt_case_names()},
          {"evaluation", bench_evaluation, {}},
          {"images", bench_images, image_case_names()},
          {"detection", bench_detection, detection_case_names()},
          {"grc", bench_grc, grc_case_names()},
          {"translation", bench_translation, translation_case_names()},
          {"translation_lengths", bench_translation_lengths, {}},
          {"tokenizers", bench_tokenizers, tokenizer_case_names()},
          {"device", bench_device, device_case_names()},
          {"serving", bench_serving, serving_case_names()},
          {kMechanisms, bench_mechanisms, mechanism_case_names()}};
}

std::string bench_command(const BenchArguments& arguments) {
  const BenchArguments usual;
  std::string line = "mnemo-bench";
  if (arguments.all) line += " --all";
  if (arguments.part != usual.part) line += " " + arguments.part;
  if (cli::common_options().threads > 0) line += fmt::format(" --threads {}", cli::common_options().threads);
  line += fmt::format(" --repeats {}", arguments.repeats);
  for (const std::string& name : arguments.cases) line += " --case " + base::shell_quoted(name);
  for (const std::string& name : arguments.precisions) line += " --precision " + base::shell_quoted(name);
  for (const std::string& length : arguments.lengths) line += " --length " + base::shell_quoted(length);
  if (arguments.peers != usual.peers) line += " --peers " + base::shell_quoted(arguments.peers);
  if (arguments.python != usual.python) line += " --python " + base::shell_quoted(arguments.python);
  if (!arguments.model.empty()) line += " --model " + base::shell_quoted(arguments.model);
  if (!arguments.pairs.empty()) line += " --pairs " + base::shell_quoted(arguments.pairs);
  if (!arguments.tokenizer.empty()) line += " --tokenizer " + base::shell_quoted(arguments.tokenizer);
  if (!arguments.text.empty()) line += " --text " + base::shell_quoted(arguments.text);
  if (arguments.bars != usual.bars) line += " --bars " + base::shell_quoted(arguments.bars);
  if (arguments.device != usual.device) line += " --device " + base::shell_quoted(arguments.device);
  if (arguments.no_peers) line += " --no-peers";
  if (arguments.check) line += " --check";
  return line;
}

void require_known(const char* option, const std::string& name, const std::vector<std::string>& known) {
  base::require(std::find(known.begin(), known.end(), name) != known.end(), "{}: unknown {} '{}'{}", option,
                option[0] == '-' ? option + 2 : "part", name, base::suggestion(name, known));
}

std::vector<std::string> length_names() {
  std::vector<std::string> names;
  for (const int64_t length : mechanism_lengths()) names.push_back(std::to_string(length));
  return names;
}

int bench(const BenchArguments& arguments) {
  base::require(arguments.repeats >= 1, "--repeats: expected at least 1, found {}", arguments.repeats);
  const std::vector<BenchPart> parts = bench_parts();
  std::vector<std::string> names;
  for (const BenchPart& part : parts) {
    if (part.name != kMechanisms) names.push_back(part.name);
  }
  require_known("PART", arguments.part, names);
  base::require(!arguments.all || arguments.part == BenchArguments().part,
                "--all: a table of its own; leave out the part '{}'", arguments.part);
  const std::string& wanted = arguments.all ? std::string(kMechanisms) : arguments.part;
  const BenchPart& part = *std::find_if(parts.begin(), parts.end(),
                                        [&](const BenchPart& p) { return p.name == wanted; });
  for (const std::string& name : arguments.cases) require_known("--case", name, part.cases);
  base::require(arguments.precisions.empty() || arguments.part == "decoding" || arguments.part == "prompts",
                "--precision: of decoding and prompts alone; the part is '{}'", arguments.part);
  for (const std::string& name : arguments.precisions) require_known("--precision", name, ops::precision_names());

  base::require(arguments.model.empty() || arguments.part == "translation" || arguments.part == "serving",
                "--model: of translation and serving alone; the part is '{}'", arguments.part);
  base::require(
      arguments.part == "serving" ? arguments.pairs.empty() : arguments.model.empty() == arguments.pairs.empty(),
      "--model and --pairs: expected both with translation, --model alone with serving");
  base::require((arguments.tokenizer.empty() && arguments.text.empty()) || arguments.part == "tokenizers",
                "--tokenizer, --text: of tokenizers alone; the part is '{}'", arguments.part);
  const bool on_device = arguments.part == "device";
  base::require(on_device || arguments.device == BenchArguments().device, "--device: of device alone; the part is '{}'",
                arguments.part);
  base::require(arguments.lengths.empty() || arguments.all || on_device, "--length: goes with --all or device");
  for (const std::string& length : arguments.lengths)
    require_known("--length", length, on_device ? device_length_names() : length_names());

  const base::Machine machine = base::this_machine();
  Bars bars = arguments.check ? Bars(arguments.bars, kind_of_processor(machine.features)) : Bars();
  const BenchReport report = part.run(arguments, bars);
  for (const std::string& line : report.differences) base::print(fmt::format("not the same: {}\n", line));
  if (report.text.empty()) return base::kAnswerIsNo;
  if (arguments.json) {
    base::Node node = base::Node::table({{"command", bench_command(arguments)},
                                         {"machine", to_node(machine)},
                                         {"threads", at::get_num_threads()},
                                         {"repeats", arguments.repeats}});
    for (const auto& [key, value] : report.figures.members()) node.set(key, value);
    base::Node missed = base::Node::array();
    for (const std::string& line : bars.missed()) missed.push_back(line);
    node.set("missed", missed);
    base::print_json(node);
  } else {
    base::print(fmt::format("{}\n{}, {} cores, {}; {} thread(s), median of {}\n\n{}", bench_command(arguments),
                            machine.cpu, machine.cores, machine.capability, at::get_num_threads(), arguments.repeats,
                            report.text));
    for (const std::string& line : bars.missed()) base::print(fmt::format("missed: {}\n", line));
  }
  return bars.missed().empty() && report.differences.empty() ? base::kDone : base::kAnswerIsNo;
}

}  // namespace

bool BenchArguments::wants(const std::string& name) const {
  return cases.empty() || std::find(cases.begin(), cases.end(), name) != cases.end();
}

std::shared_ptr<CLI::App> make_bench() {
  auto arguments = std::make_shared<BenchArguments>();
  std::string names;
  for (const BenchPart& part : bench_parts()) {
    const std::string title = part.name == kMechanisms ? "--all" : part.name;
    if (!part.cases.empty())
      names += fmt::format("{}{}: {}", names.empty() ? "" : "; ", title, fmt::join(part.cases, ", "));
  }
  cli::Command command("mnemo-bench", "Measure speed, interleaved with the same work in eager PyTorch.");
  command
      .argument(
          "PART", arguments->part,
          "models: training, generation, evaluation (default); kernels: attention and ABC's scan; decoding: the "
          "engine in each precision; prompts: the first token after 1,024 and 8,192; evaluation: with a cache of 3,800 "
          "tokens and without; images: compared with timm; detection: with torchvision and pycocotools; grc: the cost "
          "of "
          "a gated recurrent cache; translation: training, and translating beside CTranslate2; "
          "translation_lengths: a token of ABC and of softmax as outputs grow; tokenizers: beside the package "
          "tokenizers; serving: `mnemo serve` beside the scheduler alone, and beside slow clients; device: kernels, "
          "training steps and tokens on a GPU",
          false)
      .option("--case", arguments->cases, "NAME", names + "; may be repeated (default all)")
      .flag("--all", arguments->all,
            "instead of a part: training step, state and memory of every mechanism at 512, 2,048 and 8,192 tokens")
      .option("--length", arguments->lengths, "T",
              fmt::format("with --all: {}; with device: {}; may be repeated (default all)",
                          fmt::join(length_names(), ", "), fmt::join(device_length_names(), ", ")))
      .option("--device", arguments->device, "NAME", "with device: cuda (default), cuda:N, or cpu to try it out")
      .option("--precision", arguments->precisions, "NAME",
              fmt::format("with decoding and prompts: {}; may be repeated (default all)",
                          fmt::join(ops::precision_names(), ", ")))
      .option("--model", arguments->model, "FOLDER",
              "with translation: a trained model; BLEU beside that of CTranslate2 with the same weights; with "
              "serving: the model to serve")
      .option("--pairs", arguments->pairs, "FILE", "with --model: sentences and references, tab-separated")
      .option("--tokenizer", arguments->tokenizer, "FOLDER",
              "with tokenizers: a folder with a tokenizer (default: those of the golden files)")
      .option("--text", arguments->text, "FILE",
              "with tokenizers: a text, encoded line by line (default data/tinyshakespeare/input.txt)")
      .option("--peers", arguments->peers, "DIR", "folder of the scripts to compare with (default bench/peers)")
      .option("--python", arguments->python, "FILE", "Python interpreter for these scripts (default python3)")
      .option("--repeats", arguments->repeats, "N", "number of rounds (default 7)")
      .option("--bars", arguments->bars, "FILE", "targets for --check (default bench/bars.toml)")
      .flag("--no-peers", arguments->no_peers, "run only Mnemo")
      .flag("--check", arguments->check, "exit with status 1 if a target is missed")
      .flag("--json", arguments->json, "print JSON")
      .action([arguments] { return bench(*arguments); });
  return command.program();
}

}  // namespace mnemo::bench
