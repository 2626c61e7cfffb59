#include <fmt/format.h>
#include <sys/stat.h>

#include <filesystem>
#include <map>
#include <memory>

#include "base/ascii.h"
#include "base/error.h"
#include "base/exit_status.h"
#include "base/file_io.h"
#include "base/json_value.h"
#include "base/log.h"
#include "base/output.h"
#include "base/printable.h"
#include "base/text_format.h"
#include "cli/command.h"
#include "cli/commands.h"
#include "cli/input_lines.h"
#include "data/images/image_reader.h"
#include "experiment/detection_recipe.h"
#include "experiment/device.h"
#include "infer/image_classifier.h"
#include "infer/object_detector.h"
#include "inspect/draw/rasterise.h"
#include "models/detection_options.h"
#include "models/model.h"
#include "tasks/detection.h"

namespace mnemo::cli {
namespace {

namespace fs = std::filesystem;

struct DetectArguments {
  std::string model;
  std::vector<std::string> inputs;
  std::optional<std::string> checkpoint, device, broken, draw, data, results, masks;
  std::optional<double> threshold;
  std::optional<int64_t> top;
  bool json = false;
};

constexpr const char* kStdin = "-";
constexpr size_t kMaxImageBytes = size_t{1} << 28;

data::Image read_input(const std::string& path) {
  if (path != kStdin) return data::read_image(path);
  const std::string bytes = read_standard_input(kMaxImageBytes);
  base::require(!bytes.empty(), "standard input: expected an image, found nothing");
  return data::decode_image(bytes, "standard input");
}

base::Node objects_node(const infer::ObjectDetector& detector, const std::string& path,
                        const infer::ImageObjects& found) {
  base::Node node = base::Node::table({{"image", path}});
  const base::Node facts = detector.node(found);
  for (const auto& [key, value] : facts.members()) node.set(key, value);
  return node;
}

std::string objects_text(const infer::ObjectDetector& detector, const infer::ImageObjects& found) {
  std::string text;
  for (const tasks::FoundObject& object : found.objects)
    text += fmt::format("  {:<16} {:5.1f} %  x {:.0f} to {:.0f}, y {:.0f} to {:.0f}\n",
                        base::printable(detector.label(object.category), 100), 100 * object.score, object.box[0],
                        object.box[2], object.box[1], object.box[3]);
  return text.empty() ? "  nothing found\n" : text;
}

/// ".png" of "photo.PNG".
std::string extension_of(const std::string& path) { return base::lower_case(fs::path(path).extension().string()); }

bool is_picture(const std::string& path) { return extension_of(path) == ".svg" || extension_of(path) == ".png"; }

/// Where the picture of an image goes: a file, or one named after the image in a folder.
std::string picture_path(const std::string& draw, const std::string& image) {
  if (is_picture(draw)) return draw;
  const std::string name = image == kStdin ? "stdin" : fs::path(image).filename().string();
  return base::join_path(draw, name + ".svg");
}

/// Files that are read, by device and number, so that links and other ways to write a path lead to the same one.
using InputFiles = std::map<std::pair<dev_t, ino_t>, std::string>;

InputFiles input_files(const std::vector<std::string>& paths) {
  InputFiles files;
  for (const std::string& path : paths) {
    struct stat status {};
    if (::stat(path.c_str(), &status) == 0) files.emplace(std::pair(status.st_dev, status.st_ino), path);
  }
  return files;
}

/// Refuses to write where it would replace what is read.
void require_another(const char* option, const std::string& file, const InputFiles& inputs) {
  struct stat status {};
  if (::stat(file.c_str(), &status) != 0) return;
  const auto found = inputs.find({status.st_dev, status.st_ino});
  base::require(found == inputs.end(), "detect: {}: it would replace {}; give another place", option,
                base::in_quotes(found == inputs.end() ? "" : found->second));
}

/// Refuses places where pictures of the images would not be found or would replace one another or an image.
void require_drawable(const std::string& draw, const std::vector<std::string>& images) {
  base::require(images.size() == 1 || !is_picture(draw),
                "detect: --draw: expected a folder for {} images, found one file", images.size());
  const std::string extension = extension_of(draw);
  for (const char* other : {".jpg", ".jpeg", ".gif", ".bmp", ".webp", ".tif", ".tiff", ".pdf"})
    base::require(extension != other, "detect: --draw: expected a file .svg or .png, or a folder, found {}",
                  base::in_quotes(draw));
  std::map<std::string, std::string> drawn;
  const InputFiles inputs = input_files(images);
  for (const std::string& image : images) {
    const auto [before, fresh] = drawn.emplace(picture_path(draw, image), image);
    base::require(fresh, "detect: --draw: {} and {} would both be drawn as {}; draw them into two folders",
                  base::in_quotes(before->second), base::in_quotes(image), base::in_quotes(before->first));
    require_another("--draw", before->first, inputs);
  }
}

void require_arguments(const DetectArguments& arguments) {
  const std::string broken = arguments.broken.value_or("stop");
  base::require(broken == "stop" || broken == "skip", "detect: --broken: expected stop or skip, found '{}'",
                base::printable(broken));
  const bool measures = arguments.results || arguments.masks;
  base::require(measures == arguments.data.has_value(),
                "detect: --data goes with --results FILE or --mask-results FILE; to measure: mnemo eval MODEL --data");
  base::require(!measures || (arguments.inputs.empty() && !arguments.draw && !arguments.threshold && !arguments.top &&
                              !arguments.broken && !arguments.json),
                "detect: --data takes the place of images, --draw, --threshold, --top, --broken and --json");
  base::require(!arguments.masks || arguments.results != arguments.masks,
                "detect: --results and --mask-results: expected two files, found {} twice",
                base::in_quotes(arguments.masks.value_or("")));
  if (arguments.results) require_another("--results", *arguments.results, input_files({*arguments.data}));
  if (arguments.masks) require_another("--mask-results", *arguments.masks, input_files({*arguments.data}));
  base::require(measures || !arguments.inputs.empty(), "detect: expected images, folders of images or -, found none");
}

/// Detections of annotated images, as files in COCO's format.
int write_results(const DetectArguments& arguments, const bundle::Bundle& stored) {
  base::require(!arguments.masks || models::gives_masks(stored.options()),
                "detect: --mask-results: {} is a detector without masks", stored.folder);
  for (const auto& file : {arguments.results, arguments.masks}) {
    if (file) base::AtomicFile{*file};  // fail before detecting if the file cannot be written
  }
  const recipes::Recipe recipe = experiment::detection_recipe(stored, *arguments.data);
  tasks::TaskSettings settings = recipe.task_settings();
  settings.eval_samples = INT64_MAX;
  const tasks::LoadedTask loaded = recipe.task()->load(stored.options(), settings);
  const auto found = dynamic_cast<const tasks::Detection&>(*loaded.task).detections(*stored.model, data::Part::valid);
  if (arguments.results)
    base::write_file_atomic(*arguments.results,
                            data::coco_results(found.detections, found.set, data::CocoParts::boxes));
  if (arguments.masks)
    base::write_file_atomic(*arguments.masks, data::coco_results(found.detections, found.set, data::CocoParts::masks));
  base::print(fmt::format("{} in {}\n", base::counted(static_cast<int64_t>(found.detections.size()), "object"),
                          base::counted(static_cast<int64_t>(found.set.images.size()), "image")));
  return base::kDone;
}

int detect(const DetectArguments& arguments) {
  require_arguments(arguments);
  const bundle::Bundle stored = bundle::read_bundle(arguments.model, arguments.checkpoint);
  const at::Device device = experiment::device_named(arguments.device);
  infer::DetectOptions options;
  options.threshold = arguments.threshold.value_or(options.threshold);
  options.top = arguments.top.value_or(options.top);
  options.masks = arguments.json || arguments.draw;
  const infer::ObjectDetector detector(stored, options);
  experiment::move_to(*stored.model, device);
  if (arguments.data) return write_results(arguments, stored);
  const double least = stored.options().head.table().at("score_thresh").as_double();
  if (options.threshold < least)
    base::log_info("detect: --threshold {}: the model leaves out scores below {} itself (model.head.score_thresh)",
                   options.threshold, least);
  const std::vector<std::string> images = infer::image_paths(arguments.inputs, kStdin);
  if (arguments.draw) require_drawable(*arguments.draw, images);
  if (arguments.draw && !is_picture(*arguments.draw)) base::make_folders(*arguments.draw);
  base::Node results = base::Node::array();
  size_t skipped = 0;
  for (const std::string& path : images) {
    infer::ImageObjects found;
    try {
      found = detector(read_input(path));
    } catch (const base::NotFinite&) {
      throw;  // the model's fault
    } catch (const base::InputError& error) {
      if (arguments.broken != "skip") throw;
      ++skipped;
      base::log_warning("skipped {}", base::printable(error.what(), 1000));
      results.push_back(base::Node::table({{"image", path}, {"error", base::json_text(error.what())}}));
      continue;
    }
    if (arguments.draw) {
      const std::string file = picture_path(*arguments.draw, path), svg = detector.svg(found);
      base::write_file_atomic(file, extension_of(file) == ".png" ? inspect::png_of(svg) : svg);
    }
    if (arguments.json) {
      results.push_back(objects_node(detector, path, found));
    } else {
      base::print((images.size() > 1 ? base::printable(path, 400) + "\n" : "") + objects_text(detector, found));
    }
  }
  if (arguments.json) base::print_json(results);
  if (skipped > 0) base::log_warning("{} of {} images skipped", skipped, images.size());
  return base::kDone;
}

}  // namespace

void add_detect(CLI::App& app) {
  auto arguments = std::make_shared<DetectArguments>();
  Command(app, "detect", "find objects in images with a detector: boxes, scores and masks, as text, JSON and pictures")
      .argument("MODEL", arguments->model, "model folder, run folder or checkpoint of a detector")
      .arguments("IMAGE", arguments->inputs,
                 "JPEG or PNG files, folders (all image files in them), or - to read one image from standard input",
                 false)
      .option("--threshold", arguments->threshold, "SCORE",
              "leave out objects of a lower score (default 0.5); below the model's "
              "head.score_thresh none is found")
      .option("--top", arguments->top, "K", "at most so many objects of an image (default 100)")
      .option("--draw", arguments->draw, "PATH",
              "draw the image with boxes, masks and labels: a file .svg or .png, or a folder for SVG files")
      .option("--data", arguments->data, "PATH",
              "annotated images (a COCO JSON file, a VOC folder) instead of IMAGE, for --results")
      .option("--results", arguments->results, "FILE", "with --data: write boxes as COCO results")
      .option("--mask-results", arguments->masks, "FILE", "with --data: write masks as COCO results")
      .option("--broken", arguments->broken, "HOW",
              "on an unreadable image: stop with an error, or skip and count it (default stop)")
      .option("--checkpoint", arguments->checkpoint, "WHICH", "checkpoint of a run: latest, best or a step")
      .option("--device", arguments->device, "DEVICE", "cpu, cuda or cuda:N (default cpu)")
      .flag("--json", arguments->json, "print JSON; masks are COCO's runs")
      .footer(
          "mnemo detect runs/cells photo.jpg --draw found.svg\nmnemo detect runs/cells photos/ --threshold 0.7 --json\n"
          "cat photo.png | mnemo detect runs/cells -\n"
          "mnemo detect runs/cells --data annotations.json --results boxes.json")
      .action([arguments] { return detect(*arguments); });
}

}  // namespace mnemo::cli
