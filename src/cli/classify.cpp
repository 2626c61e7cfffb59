#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iostream>
#include <memory>

#include "base/error.h"
#include "base/exit_status.h"
#include "base/json_value.h"
#include "base/log.h"
#include "base/output.h"
#include "base/printable.h"
#include "cli/command.h"
#include "cli/commands.h"
#include "cli/ranks.h"
#include "data/images/image_reader.h"
#include "experiment/device.h"
#include "infer/image_classifier.h"

namespace mnemo::cli {
namespace {

struct ClassifyArguments {
  std::string model;
  std::vector<std::string> images, tasks;
  std::optional<std::string> checkpoint, device;
  std::string broken = "stop";
  int64_t top = 5, batch = 8;
  bool json = false;
  Ranks ranks{.command = "classify"};
};

constexpr const char* kStandardInput = "-";
constexpr size_t kMaxBytes = size_t{1} << 28;

data::Image image_at(const std::string& path) {
  if (path != kStandardInput) return data::read_image(path);
  std::string bytes;
  std::array<char, 1 << 16> part;
  while (std::cin.read(part.data(), part.size()) || std::cin.gcount() > 0) {
    bytes.append(part.data(), static_cast<size_t>(std::cin.gcount()));
    base::require(bytes.size() <= kMaxBytes, "standard input: expected an image of at most {} bytes, found more",
                  kMaxBytes);
  }
  base::require(!bytes.empty(), "standard input: expected an image, found nothing");
  return data::decode_image(bytes, "standard input");
}

std::string text_of(const infer::ImageAnswer& answer) {
  std::string text;
  for (const infer::HeadAnswer& head : answer.heads) {
    for (const infer::ClassShare& share : head.best)
      text += fmt::format("  {:<12} {:6.2f} %  {}\n", head.head, 100 * share.probability,
                          base::printable(share.label, 400));
  }
  return text;
}

base::Node to_node(const infer::ImageAnswer& answer) {
  if (!answer.error.empty()) return base::Node::table({{"image", answer.image}, {"error", answer.error}});
  base::Node tasks = base::Node::table();
  for (const infer::HeadAnswer& head : answer.heads) {
    base::Node best = base::Node::array();
    for (const infer::ClassShare& share : head.best) {
      best.push_back(
          base::Node::table({{"label", share.label}, {"probability", base::json_number(share.probability)}}));
    }
    tasks.set(head.head, std::move(best));
  }
  return base::Node::table({{"image", answer.image}, {"tasks", std::move(tasks)}});
}

int classify(const ClassifyArguments& arguments, const std::shared_ptr<distributed::Group>& group) {
  base::require(arguments.broken == "stop" || arguments.broken == "skip",
                "classify: --broken: expected stop or skip, found '{}'", base::printable(arguments.broken));
  const at::Device device = experiment::device_named(arguments.device, group.get());
  const bundle::Bundle stored = bundle::read_bundle(arguments.model, arguments.checkpoint);
  experiment::move_to(*stored.model, device);
  begin_sharing(group, "classify", *stored.model);
  const infer::ImageClassifier classifier(stored, {.tasks = arguments.tasks,
                                                   .top = arguments.top,
                                                   .batch = arguments.batch,
                                                   .skip_broken = arguments.broken == "skip",
                                                   .read = image_at,
                                                   .ranks = group});
  const std::vector<std::string> images = infer::image_paths(arguments.images, kStandardInput);
  base::require(!group || std::find(images.begin(), images.end(), kStandardInput) == images.end(),
                "classify: several processes cannot read one standard input; expected files");
  base::Node results = base::Node::array();
  size_t broken = 0;
  classifier(images, [&](const infer::ImageAnswer& answer) {
    broken += !answer.error.empty();
    if (arguments.json) {
      results.push_back(to_node(answer));
    } else if (answer.error.empty()) {
      base::print((images.size() > 1 ? base::printable(answer.image, 400) + "\n" : "") + text_of(answer));
    }
  });
  if (group) group->leave();
  if (arguments.json) base::print_json(results);
  if (broken > 0) base::log_warning("{} of {} images skipped", broken, images.size());
  return base::kDone;
}

}  // namespace

void add_classify(CLI::App& app) {
  auto arguments = std::make_shared<ClassifyArguments>();
  Command command(app, "classify",
                  "classify images with the model's own classes and those of all attached tasks, in one pass");
  command.argument("MODEL", arguments->model, "model folder, run folder or checkpoint")
      .arguments("IMAGE", arguments->images,
                 "JPEG or PNG files, folders (all image files in them), or - to read one image from standard input")
      .option("--checkpoint", arguments->checkpoint, "WHICH",
              "of a run: latest, best or a step (default: its model; before it has one the best checkpoint)")
      .option("--top", arguments->top, "K", "number of classes to print per head (default 5)")
      .option("--task", arguments->tasks, "NAME", "only this head; \"base\" is the model's own; may be repeated")
      .option("--batch", arguments->batch, "N", "images per batch (default 8)")
      .option("--broken", arguments->broken, "HOW",
              "on an unreadable image: stop with an error, or skip and count it (default stop)")
      .option("--device", arguments->device, "DEVICE", "cpu, cuda or cuda:N (default cpu)");
  add_ranks(command, arguments->ranks, "classify on N processes of this machine, each with its share of the batches");
  command.flag("--json", arguments->json, "print JSON")
      .footer("mnemo classify models/vit picture.jpg --top 3\ncat picture.png | mnemo classify models/vit -")
      .action([arguments] {
        return on_ranks(arguments->ranks, "",
                        [&](const std::shared_ptr<distributed::Group>& group) { return classify(*arguments, group); });
      });
}

}  // namespace mnemo::cli
