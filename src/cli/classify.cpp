#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "base/error.h"
#include "base/exit_status.h"
#include "base/json_value.h"
#include "base/log.h"
#include "base/output.h"
#include "base/printable.h"
#include "cli/command.h"
#include "cli/commands.h"
#include "cli/input_lines.h"
#include "cli/ranks.h"
#include "data/answers/labelled_files.h"
#include "data/images/image_reader.h"
#include "data/text/lines.h"
#include "data/text/text_files.h"
#include "experiment/device.h"
#include "experiment/experiment.h"
#include "experiment/text_classifier.h"
#include "infer/image_classifier.h"
#include "models/model.h"

namespace mnemo::cli {
namespace {

struct ClassifyArguments {
  std::string model;
  std::vector<std::string> inputs, tasks;
  std::optional<std::string> checkpoint, device, broken;
  std::optional<int64_t> top;
  int64_t batch = 8;
  bool json = false;
  Ranks ranks{.command = "classify"};
};

constexpr const char* kStandardInput = "-";
constexpr size_t kMaxBytes = size_t{1} << 28;

data::Image image_at(const std::string& path) {
  if (path != kStandardInput) return data::read_image(path);
  const std::string bytes = read_standard_input(kMaxBytes);
  base::require(!bytes.empty(), "standard input is empty; expected an image");
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

base::Node to_node(const infer::ClassShare& share) {
  return base::Node::table({{"label", share.label}, {"probability", base::json_number(share.probability)}});
}

base::Node to_node(const infer::ImageAnswer& answer) {
  if (!answer.error.empty()) return base::Node::table({{"image", answer.image}, {"error", answer.error}});
  base::Node tasks = base::Node::table();
  for (const infer::HeadAnswer& head : answer.heads) {
    base::Node best = base::Node::array();
    for (const infer::ClassShare& share : head.best) best.push_back(to_node(share));
    tasks.set(head.head, std::move(best));
  }
  return base::Node::table({{"image", answer.image}, {"tasks", std::move(tasks)}});
}

/// A text, or the two of a pair with a tab between them.
data::LabelledText text_of_line(std::string line, std::string where) {
  data::LabelledText text{.file = std::make_shared<const std::string>(std::move(where)),
                          .first = std::move(line),
                          .second = {},
                          .label = {}};
  data::require_words(text.where(), text.first, 1);
  const size_t tab = text.first.find('\t');
  if (tab == std::string::npos) return text;
  text.second = text.first.substr(tab + 1);
  text.first.resize(tab);
  base::require(text.second->find('\t') == std::string::npos,
                "{}: expected a text, or two with a tab between them, found more than one tab", text.where());
  return text;
}

/// Whether anything but blanks, U+00A0 too, is there: a line without words has no class.
bool has_words(const data::LabelledText& text) {
  std::string all = text.first + text.second.value_or("");
  for (size_t at; (at = all.find("\xC2\xA0")) != std::string::npos;) all.erase(at, 2);
  return all.find_first_not_of(" \t\v\f\r") != std::string::npos;
}

/// A line for each text: classes and probabilities, separated by tabs; an empty line for one without words.
void classify_texts(const ClassifyArguments& arguments, const bundle::Bundle& stored) {
  base::require(arguments.tasks.empty() && !arguments.broken,
                "classify: --task and --broken go with models of images; {} classifies texts", stored.folder);
  const experiment::TextClassifier classifier(stored, experiment::own_recipe(stored), "classify");
  const int64_t top = arguments.top.value_or(1);
  base::Node results = base::Node::array();
  experiment::TextClassifier::ReadCount count;
  const auto answer = [&](data::LabelledTextList& texts) {
    data::LabelledTextList with_words;
    for (const data::LabelledText& text : texts)
      if (has_words(text)) with_words.push_back(text);
    if (texts.empty()) return;
    const auto answers = with_words.empty() ? std::vector<std::vector<infer::ClassShare>>()
                                            : classifier(std::move(with_words), top, count);
    auto next = answers.begin();
    for (const data::LabelledText& text : std::exchange(texts, {})) {
      const auto found = has_words(text) ? *next++ : std::vector<infer::ClassShare>();
      base::Node classes = base::Node::array();
      std::string line;
      for (const infer::ClassShare& share : found) {
        classes.push_back(to_node(share));
        line += fmt::format("{}{}\t{:.4f}", line.empty() ? "" : "\t", base::printable(share.label, 400),
                            share.probability);
      }
      if (arguments.json)
        results.push_back(base::Node::table({{"where", text.where()}, {"classes", std::move(classes)}}));
      else
        base::print(line + "\n");
    }
  };
  data::LabelledTextList texts;
  const auto take = [&](std::string line, const std::string& file, int64_t number) {
    texts.push_back(text_of_line(std::move(line), fmt::format("{}:{}", file, number)));
    if (static_cast<int64_t>(texts.size()) == arguments.batch) answer(texts);
  };
  for (const std::string& path :
       arguments.inputs.empty() ? std::vector<std::string>{kStandardInput} : arguments.inputs) {
    if (path == kStandardInput) {
      InputLines input;
      int64_t number = 0;
      for (std::vector<std::string> lines; input.read(static_cast<size_t>(arguments.batch), lines);) {
        for (std::string& line : lines) take(std::move(line), "standard input", ++number);
        answer(texts);  // a pipe's lines as they come
      }
      continue;
    }
    data::for_each_text_line(path, InputLines::kMaxLine, [&](const data::LinePlace& place, std::string_view line) {
      take(std::string(line), std::string(place.file), place.line);
    });
  }
  answer(texts);
  if (arguments.json) base::print_json(results);
  classifier.report_left_out(count, arguments.inputs.size() == 1 ? arguments.inputs.front() : "texts");
}

int classify(const ClassifyArguments& arguments, const std::shared_ptr<distributed::Group>& group) {
  const std::string broken = arguments.broken.value_or("stop");
  base::require(broken == "stop" || broken == "skip", "classify: --broken: expected stop or skip, found '{}'",
                base::printable(broken));
  base::require(arguments.batch >= 1 && arguments.batch <= infer::ClassifyOptions::kMaxBatch,
                "classify: --batch: expected 1 to {}, found {}", infer::ClassifyOptions::kMaxBatch, arguments.batch);
  const int64_t top = arguments.top.value_or(5);
  base::require(top >= 1, "classify: --top: expected at least 1, found {}", top);
  const bool several = group && group->size() > 1;
  const at::Device device = experiment::device_named(arguments.device, group.get());
  const bundle::Bundle stored = bundle::read_bundle(arguments.model, arguments.checkpoint);
  experiment::move_to(*stored.model, device);
  if (!stored.is_images()) {
    base::require(!several, "classify: --processes: texts are classified by one process; drop it");
    classify_texts(arguments, stored);
    if (group) group->leave();
    return base::kDone;
  }
  base::require(!arguments.inputs.empty(), "classify: expected images, folders of images or -, found none");
  begin_sharing(group, "classify", *stored.model);
  const infer::ImageClassifier classifier(stored, {.tasks = arguments.tasks,
                                                   .top = top,
                                                   .batch = arguments.batch,
                                                   .skip_broken = broken == "skip",
                                                   .read = image_at,
                                                   .ranks = group});
  const std::vector<std::string> images = infer::image_paths(arguments.inputs, kStandardInput);
  base::require(!several || std::find(images.begin(), images.end(), kStandardInput) == images.end(),
                "classify: several processes cannot read one standard input; expected files");
  base::Node results = base::Node::array();
  size_t skipped = 0;
  classifier(images, [&](const infer::ImageAnswer& answer) {
    skipped += !answer.error.empty();
    if (arguments.json) {
      results.push_back(to_node(answer));
    } else if (answer.error.empty()) {
      base::print((images.size() > 1 ? base::printable(answer.image, 400) + "\n" : "") + text_of(answer));
    }
  });
  if (group) group->leave();
  if (arguments.json) base::print_json(results);
  if (skipped > 0 && (!group || group->rank() == 0))
    base::log_warning("{} of {} images skipped", skipped, images.size());
  return base::kDone;
}

}  // namespace

void add_classify(CLI::App& app) {
  auto arguments = std::make_shared<ClassifyArguments>();
  Command command(app, "classify",
                  "classify texts, or images with the model's own classes and those of all attached tasks in one pass");
  command.argument("MODEL", arguments->model, "model folder, run folder or checkpoint")
      .arguments("INPUT", arguments->inputs,
                 "image model: JPEG or PNG files, folders (all image files in them), or - to read one image from "
                 "standard input; text model: files with one text per line (a pair of texts with a tab between them), "
                 "or - for standard input (default)",
                 false)
      .option(
          "--checkpoint", arguments->checkpoint, "WHICH",
          "checkpoint of a run: latest, best or a step (default: its model, or the best checkpoint if it has none yet)")
      .option("--top", arguments->top, "K",
              "number of classes to print per head or text (default: 5 for images, 1 for texts)")
      .option("--task", arguments->tasks, "NAME", "only this head; \"base\" is the model's own; may be repeated")
      .option("--batch", arguments->batch, "N", "images, or texts, per batch (default 8)")
      .option("--broken", arguments->broken, "HOW",
              "on an unreadable image: stop with an error, or skip and count it (default stop)")
      .option("--device", arguments->device, "DEVICE", "cpu, cuda or cuda:N (default cpu)");
  add_ranks(command, arguments->ranks,
            "images: classify on N processes of this machine, each with its share of the batches");
  command.flag("--json", arguments->json, "print JSON")
      .footer(
          "mnemo classify models/vit picture.jpg --top 3\ncat picture.png | mnemo classify models/vit -\n"
          "mnemo classify runs/sst2 < sentences.txt")
      .action([arguments] {
        return on_ranks(arguments->ranks, "",
                        [&](const std::shared_ptr<distributed::Group>& group) { return classify(*arguments, group); });
      });
}

}  // namespace mnemo::cli
