#include <fmt/format.h>
#include <torch/types.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <iostream>
#include <iterator>
#include <memory>

#include "base/error.h"
#include "base/file_io.h"
#include "base/nearest.h"
#include "base/printable.h"
#include "cli/command.h"
#include "cli/commands.h"
#include "cli/device.h"
#include "cli/image_facts.h"
#include "cli/output.h"
#include "cli/workbench.h"
#include "data/image_reader.h"
#include "data/image_transform.h"
#include "infer/task_classifier.h"

namespace mnemo::cli {
namespace {

struct ClassifyArguments {
  std::string model;
  std::vector<std::string> images, tasks;
  std::optional<std::string> device;
  int64_t top = 5, batch = 8;
  bool json = false;
};

constexpr const char* kStandardInput = "-";
constexpr size_t kMostBytes = size_t{1} << 28;

/// One head: its name and what its classes are called.
struct Head {
  std::string name;
  std::vector<std::string> labels;
  std::string label(int64_t number) const { return labels.empty() ? std::to_string(number) : labels[static_cast<size_t>(number)]; }
};

/// Files as they are given, and of folders every file whose content is an image, in the order of their names.
std::vector<std::string> images_of(const std::vector<std::string>& given) {
  std::vector<std::string> images;
  for (const std::string& path : given) {
    if (path == kStandardInput || !base::is_folder(path)) {
      base::require(path == kStandardInput || base::path_exists(path), "{}: not there", base::printable(path, 400));
      images.push_back(path);
      continue;
    }
    std::vector<std::string> found;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(path)) {
      if (!entry.is_regular_file()) continue;
      std::string end = entry.path().extension().string();
      std::transform(end.begin(), end.end(), end.begin(), [](unsigned char c) { return std::tolower(c); });
      if (end == ".jpg" || end == ".jpeg" || end == ".png") found.push_back(entry.path().string());
    }
    base::require(!found.empty(), "{}: expected images in the folder (.jpg, .jpeg, .png), found none", base::printable(path, 400));
    std::sort(found.begin(), found.end());
    images.insert(images.end(), found.begin(), found.end());
  }
  return images;
}

data::Image image_at(const std::string& path) {
  if (path != kStandardInput) return data::read_image(path);
  std::string bytes;
  std::array<char, 1 << 16> part;
  while (std::cin.read(part.data(), part.size()) || std::cin.gcount() > 0) {
    bytes.append(part.data(), static_cast<size_t>(std::cin.gcount()));
    base::require(bytes.size() <= kMostBytes, "standard input: expected an image of at most {} bytes, found more", kMostBytes);
  }
  base::require(!bytes.empty(), "standard input: expected an image, found nothing");
  return data::decode_image(bytes, "standard input");
}

std::vector<Head> heads_of(const models::VisionModel& model, const std::string& folder, const std::vector<std::string>& asked) {
  std::vector<Head> heads = {{"base", class_names(folder)}};
  const int64_t own = model.num_classes();
  base::require(heads[0].labels.empty() || static_cast<int64_t>(heads[0].labels.size()) == own, "{}: expected {} lines, as many as the head has classes, found {}",
                base::join_path(folder, kClassesFile), own, heads[0].labels.size());
  if (const auto* tasks = model.tasks()) {
    for (const memory::TaskOptions& task : tasks->options().tasks) heads.push_back({task.name, task.labels});
  }
  std::vector<std::string> names;
  for (const Head& head : heads) names.push_back(head.name);
  for (const std::string& name : asked) {
    base::require(std::find(names.begin(), names.end(), name) != names.end(), "classify: --task: no task {}{}", base::in_quotes(name),
                  base::suggestion(name, names));
  }
  return heads;
}

struct Answer {
  std::string label;
  double probability;
};

std::vector<Answer> best(const Head& head, const at::Tensor& logits, int64_t top) {
  const at::Tensor shares = at::softmax(logits.to(at::kCPU, at::kDouble), 0);
  const auto [values, numbers] = shares.topk(std::min(top, shares.size(0)));
  std::vector<Answer> answers;
  for (int64_t i = 0; i < values.size(0); ++i) answers.push_back({head.label(numbers[i].item<int64_t>()), values[i].item<double>()});
  return answers;
}

int classify(const ClassifyArguments& arguments) {
  base::require(arguments.top >= 1, "classify: --top: expected at least 1, found {}", arguments.top);
  base::require(arguments.batch >= 1 && arguments.batch <= 4096, "classify: --batch: expected 1 to 4096, found {}", arguments.batch);
  const at::Device device = device_named(arguments.device);
  const std::string folder = model_folder(arguments.model);
  const auto model = std::dynamic_pointer_cast<models::VisionModel>(read_model(folder).model);
  base::require(model != nullptr && model->head() != nullptr, "{}: expected a model of images with a head, found another", folder);
  const ImageFacts facts = ImageFacts::read(folder);
  const std::vector<Head> heads = heads_of(*model, folder, arguments.tasks);
  const std::vector<std::string> images = images_of(arguments.images);
  move_to(*model, device);
  const infer::TaskClassifier classifier(model);
  const data::ImageTransform transform(facts.options());
  base::Node results = base::Node::array();
  for (size_t first = 0; first < images.size(); first += static_cast<size_t>(arguments.batch)) {
    const size_t count = std::min(static_cast<size_t>(arguments.batch), images.size() - first);
    at::Tensor pixels = at::empty({static_cast<int64_t>(count), 3, transform.height(), transform.width()});
    for (size_t i = 0; i < count; ++i) transform.measure(image_at(images[first + i]), pixels[static_cast<int64_t>(i)].mutable_data_ptr<float>());
    const auto all = classifier(pixels.to(device));
    for (size_t i = 0; i < count; ++i) {
      const std::string& image = images[first + i];
      base::Node tasks = base::Node::table();
      std::string text = images.size() > 1 ? image + "\n" : "";
      for (const auto& [name, logits] : all) {
        if (!arguments.tasks.empty() && std::find(arguments.tasks.begin(), arguments.tasks.end(), name) == arguments.tasks.end()) continue;
        const auto head = std::find_if(heads.begin(), heads.end(), [&, &wanted = name](const Head& one) { return one.name == wanted; });
        base::Node answers = base::Node::array();
        for (const Answer& answer : best(*head, logits[static_cast<int64_t>(i)], arguments.top)) {
          answers.push_back(base::Node::table({{"label", answer.label}, {"probability", json_number(answer.probability)}}));
          text += fmt::format("  {:<12} {:6.2f} %  {}\n", name, 100 * answer.probability, answer.label);
        }
        tasks.set(name, std::move(answers));
      }
      if (arguments.json) {
        results.push_back(base::Node::table({{"image", image}, {"tasks", std::move(tasks)}}));
      } else {
        print(text);
      }
    }
  }
  if (arguments.json) print_json(results);
  return kDone;
}

}  // namespace

void add_classify(CLI::App& app) {
  auto arguments = std::make_shared<ClassifyArguments>();
  Command(app, "classify", "says what is on images: the model's own classes and those of all attached tasks, in one pass")
      .argument("MODEL", arguments->model, "a model folder, or a run's folder")
      .arguments("IMAGE", arguments->images, "JPEG and PNG files, folders of them, or - for one image on standard input")
      .option("--top", arguments->top, "K", "best classes of each head (5)")
      .option("--task", arguments->tasks, "NAME", "this head alone; \"base\" is the model's own; may be repeated")
      .option("--batch", arguments->batch, "N", "images run side by side (8)")
      .option("--device", arguments->device, "DEVICE", "cpu, cuda or cuda:N (cpu)")
      .flag("--json", arguments->json, "prints JSON")
      .footer("mnemo classify models/vit picture.jpg --top 3\ncat picture.png | mnemo classify models/vit -")
      .action([arguments] { return classify(*arguments); });
}

}  // namespace mnemo::cli
