#include <fmt/format.h>
#include <torch/types.h>

#include <algorithm>
#include <array>
#include <iostream>
#include <memory>

#include "base/error.h"
#include "base/exit_status.h"
#include "base/file_io.h"
#include "base/json_value.h"
#include "base/log.h"
#include "base/output.h"
#include "base/printable.h"
#include "bundle/model_heads.h"
#include "bundle/preprocessing.h"
#include "cli/command.h"
#include "cli/commands.h"
#include "data/images/image_reader.h"
#include "data/images/image_set.h"
#include "data/images/image_transform.h"
#include "experiment/device.h"
#include "experiment/experiment.h"
#include "infer/task_classifier.h"

namespace mnemo::cli {
namespace {

struct ClassifyArguments {
  std::string model;
  std::vector<std::string> images, tasks;
  std::optional<std::string> device;
  std::string broken = "stop";
  int64_t top = 5, batch = 8;
  bool json = false;
};

constexpr const char* kStandardInput = "-";
constexpr size_t kMaxBytes = size_t{1} << 28;

/// Files as they are given, and of folders every file that is called like an image, in the order of their names.
std::vector<std::string> images_of(const std::vector<std::string>& given) {
  std::vector<std::string> images;
  for (const std::string& path : given) {
    if (path == kStandardInput || !base::is_folder(path)) {
      base::require(path == kStandardInput || base::path_exists(path), "{}: not there", base::printable(path, 400));
      images.push_back(path);
      continue;
    }
    const std::vector<std::string> found = data::images_below(path, "");
    base::require(!found.empty(), "{}: expected images in the folder, found none", base::printable(path, 400));
    for (const std::string& name : found) images.push_back(base::join_path(path, name));
  }
  return images;
}

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

struct Answer {
  std::string label;
  double probability;
};

std::vector<Answer> best(const bundle::ModelHead& head, const at::Tensor& logits, int64_t top) {
  const at::Tensor shares = at::softmax(logits.to(at::kCPU, at::kDouble), 0);
  const auto [values, numbers] = shares.topk(std::min(top, shares.size(0)));
  std::vector<Answer> answers;
  for (int64_t i = 0; i < values.size(0); ++i)
    answers.push_back({head.label(numbers[i].item<int64_t>()), values[i].item<double>()});
  return answers;
}

/// An image on its way: a row of the batch, or why there is none.
struct BatchImage {
  std::string path;
  int64_t row = -1;
  std::string error;
};

/// Reads the next images into pixels [B,3,H,W]; with `skip` a broken one takes no row.
std::vector<BatchImage> read_batch(const std::vector<std::string>& paths, const data::ImageTransform& transform,
                                   bool skip, at::Tensor& pixels) {
  std::vector<BatchImage> batch;
  pixels = at::empty({static_cast<int64_t>(paths.size()), 3, transform.height(), transform.width()});
  int64_t rows = 0;
  for (const std::string& path : paths) {
    BatchImage& image = batch.emplace_back(BatchImage{path, -1, {}});
    try {
      transform.measure(image_at(path), pixels[rows].mutable_data_ptr<float>());
      image.row = rows++;
    } catch (const base::InputError& error) {
      if (!skip) throw;
      image.error = error.what();
      base::log_warning("skipped {}", base::printable(image.error, 1000));
    }
  }
  pixels = pixels.narrow(0, 0, rows);
  return batch;
}

/// What the heads say of one image: lines of text, and the tables of --json.
struct ImageAnswers {
  std::string text;
  base::Node tasks = base::Node::table();
};
ImageAnswers answers_of(const std::vector<models::TaskLogits>& all, int64_t row,
                        const std::vector<bundle::ModelHead>& heads, int64_t top) {
  ImageAnswers said;
  for (const bundle::ModelHead& head : heads) {
    const auto found = std::find_if(all.begin(), all.end(),
                                    [&](const models::TaskLogits& one) { return one.name == head.name; });
    base::ensure(found != all.end(), "no logits of '{}'", head.name);
    base::Node answers = base::Node::array();
    for (const Answer& answer : best(head, found->logits[row], top)) {
      answers.push_back(
          base::Node::table({{"label", answer.label}, {"probability", base::json_number(answer.probability)}}));
      said.text += fmt::format("  {:<12} {:6.2f} %  {}\n", head.name, 100 * answer.probability,
                               base::printable(answer.label, 400));
    }
    said.tasks.set(head.name, std::move(answers));
  }
  return said;
}

int classify(const ClassifyArguments& arguments) {
  base::require(arguments.top >= 1, "classify: --top: expected at least 1, found {}", arguments.top);
  base::require(arguments.batch >= 1 && arguments.batch <= 4096, "classify: --batch: expected 1 to 4096, found {}",
                arguments.batch);
  base::require(arguments.broken == "stop" || arguments.broken == "skip",
                "classify: --broken: expected stop or skip, found '{}'", base::printable(arguments.broken));
  const at::Device device = experiment::device_named(arguments.device);
  const std::string folder = experiment::model_folder(arguments.model);
  const auto model = std::dynamic_pointer_cast<models::VisionModel>(experiment::read_model(folder).model);
  base::require(model != nullptr, "{}: expected a model of images, found another", folder);
  const bundle::ImagePreprocessing facts = bundle::ImagePreprocessing::read(folder);
  std::vector<bundle::ModelHead> heads = bundle::heads_of(*model, folder);
  for (const std::string& name : arguments.tasks) bundle::head_named(heads, name, "classify: --task");
  if (!arguments.tasks.empty()) {
    std::erase_if(heads, [&](const bundle::ModelHead& head) {
      return std::find(arguments.tasks.begin(), arguments.tasks.end(), head.name) == arguments.tasks.end();
    });
  }
  const std::vector<std::string> images = images_of(arguments.images);
  experiment::move_to(*model, device);
  const infer::TaskClassifier classifier(model);
  const data::ImageTransform transform(facts.options());
  base::Node results = base::Node::array();
  size_t broken = 0;
  for (size_t first = 0; first < images.size(); first += static_cast<size_t>(arguments.batch)) {
    const auto begin = images.begin() + static_cast<std::ptrdiff_t>(first);
    const size_t count = std::min(static_cast<size_t>(arguments.batch), images.size() - first);
    at::Tensor pixels;
    const std::vector<BatchImage> batch = read_batch({begin, begin + static_cast<std::ptrdiff_t>(count)}, transform,
                                                     arguments.broken == "skip", pixels);
    const std::vector<models::TaskLogits> all = pixels.size(0) > 0 ? classifier(pixels.to(device))
                                                                   : std::vector<models::TaskLogits>();
    for (const BatchImage& image : batch) {
      if (image.row < 0) {
        ++broken;
        results.push_back(base::Node::table({{"image", image.path}, {"error", image.error}}));
        continue;
      }
      ImageAnswers said = answers_of(all, image.row, heads, arguments.top);
      if (arguments.json) {
        results.push_back(base::Node::table({{"image", image.path}, {"tasks", std::move(said.tasks)}}));
      } else {
        base::print((images.size() > 1 ? base::printable(image.path, 400) + "\n" : "") + said.text);
      }
    }
  }
  if (arguments.json) base::print_json(results);
  if (broken > 0) base::log_warning("{} of {} images skipped", broken, images.size());
  return base::kDone;
}

}  // namespace

void add_classify(CLI::App& app) {
  auto arguments = std::make_shared<ClassifyArguments>();
  Command(app, "classify", "classify images with the model's own classes and those of all attached tasks, in one pass")
      .argument("MODEL", arguments->model, "model folder or run folder")
      .arguments("IMAGE", arguments->images,
                 "JPEG or PNG files, folders (all image files in them), or - to read one image from standard input")
      .option("--top", arguments->top, "K", "number of classes to print per head (default 5)")
      .option("--task", arguments->tasks, "NAME", "only this head; \"base\" is the model's own; may be repeated")
      .option("--batch", arguments->batch, "N", "images per batch (default 8)")
      .option("--broken", arguments->broken, "HOW",
              "on an unreadable image: stop with an error, or skip and count it (default stop)")
      .option("--device", arguments->device, "DEVICE", "cpu, cuda or cuda:N (default cpu)")
      .flag("--json", arguments->json, "print JSON")
      .footer("mnemo classify models/vit picture.jpg --top 3\ncat picture.png | mnemo classify models/vit -")
      .action([arguments] { return classify(*arguments); });
}

}  // namespace mnemo::cli
