#include "bundle/convert.h"

#include <fmt/format.h>

#include <memory>

#include "base/exit_status.h"
#include "base/output.h"
#include "base/text_format.h"
#include "cli/command.h"
#include "cli/commands.h"

namespace mnemo::cli {
namespace {

struct ConvertArguments {
  bundle::ConvertOptions convert;
  bool json = false;
};

int convert_model(const ConvertArguments& arguments) {
  const bundle::ConvertOptions& options = arguments.convert;
  const bundle::Converted made = bundle::convert(options);
  if (arguments.json) {
    base::Node node = base::Node::table(
        {{"model", options.out}, {"to", options.to}, {"parameters", made.parameters}, {"fresh", made.fresh}});
    if (options.adds() && options.to.empty()) node.set("first_loss", made.first_loss);
    base::print_json(node);
    return base::kDone;
  }
  const std::string parameters = fmt::format("{}: {} parameters", options.out, base::grouped(made.parameters));
  if (options.adds() && options.to.empty()) {
    base::print(fmt::format("{}, {} of them fresh; loss of random tokens {:.4f} (uniform guessing {:.4f})\n",
                            parameters, base::grouped(made.fresh), made.first_loss, made.uniform_loss));
    return base::kDone;
  }
  base::print(options.to == "t2r"       ? fmt::format("{}, {} of them fresh\n", parameters, base::grouped(made.fresh))
              : options.to == "average" ? fmt::format("{}, the mean of the last checkpoints\n", parameters)
              : options.to == "peft" ? fmt::format("{}: adapter_config.json, adapter_model.safetensors\n", options.out)
              : options.to == "source_encoder" ? fmt::format("{} of the encoder\n", parameters)
                                               : fmt::format("{} under {} names\n", parameters, options.to));
  return base::kDone;
}

}  // namespace

void add_convert(CLI::App& app) {
  auto arguments = std::make_shared<ConvertArguments>();
  bundle::ConvertOptions* options = &arguments->convert;
  Command(app, "convert", "convert a trained model to another kind, or to and from folders of other libraries")
      .argument("MODEL", options->model, "a model folder, a run's folder or a checkpoint")
      .option(
          "--checkpoint", options->checkpoint, "WHICH",
          "checkpoint of a run: latest, best or a step (default: its model, or the best checkpoint if it has none yet)")
      .option("--to", options->to, "KIND",
              "the kind of the result: t2r, average, source_encoder, mnemo or another library's format; listed below")
      .option("--memory", options->memory, "TYPE,KEY=VALUE,..",
              "add a memory to a text model, with keys of [[model.memory]]; may be repeated")
      .option("--attention", options->attention, "TYPE,KEY=VALUE,..",
              "replace the model's attention, with keys of model.backbone.attention")
      .option(
          "--lora", options->lora, "FILE",
          "merge the lora.safetensors of a training with LoRA, or an adapter folder of PEFT, into the model that it "
          "started from; the file says the memory and segment")
      .option("--segment", options->segment, "N",
              "tokens per segment of the model of Mnemo that is made (default: as many as the model's positions allow)")
      .option("--out", options->out, "FOLDER", "the new model's folder")
      .option("--features", options->features, "N", "t2r: features of a head (default 32)")
      .option("--last", options->last, "N", "average: number of the run's latest checkpoints (default 5)")
      .option("--seed", options->seed, "N", "t2r, --memory, --attention: seed of fresh parameters (default 0)")
      .flag("--json", arguments->json, "print JSON")
      .footer(
          "mnemo convert vit_small_patch16_224 --to mnemo --out vit\n"
          "mnemo convert models/gpt2 --memory recurrent_tokens,num_mem_tokens=16 --segment 512 --out runs/x\n"
          "mnemo convert runs/mine --to average --last 5 --out averaged\n"
          "mnemo convert runs/softmax --to t2r --out runs/t2r\n\n" +
          bundle::conversions_text())
      .action([arguments] { return convert_model(*arguments); });
}

}  // namespace mnemo::cli
