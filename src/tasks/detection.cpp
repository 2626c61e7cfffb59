#include "tasks/detection.h"

#include <ATen/CPUGeneratorImpl.h>
#include <torch/types.h>

#include <algorithm>
#include <bit>
#include <map>

#include "base/checksum.h"
#include "base/error.h"
#include "base/random.h"
#include "core/model.h"
#include "data/detection/detection_picture.h"
#include "heads/detection/detector_head.h"
#include "metrics/coco.h"
#include "tasks/data_position.h"
#include "tasks/found_objects.h"

namespace mnemo::tasks {
namespace {

constexpr const char* kWho = "detection";
/// In the order of metrics::kCocoNames.
constexpr std::array<const char*, 12> kMetricNames = {"ap",  "ap50", "ap75",  "ap_small", "ap_medium", "ap_large",
                                                      "ar1", "ar10", "ar100", "ar_small", "ar_medium", "ar_large"};

int64_t fingerprint_of(const data::CocoSet& set) {
  base::Fingerprint sum;
  const auto mix = [&](const std::string& text) {
    for (const char c : text) sum.mix(static_cast<unsigned char>(c));
  };
  for (const data::CocoImage& image : set.images) mix(image.file);
  for (const data::CocoCategory& category : set.categories) mix(category.name);
  for (const data::CocoObject& object : set.objects) {
    sum.mix(static_cast<uint64_t>(object.image));
    sum.mix(static_cast<uint64_t>(object.category));
    for (const double side : object.box) sum.mix(std::bit_cast<uint64_t>(side));
  }
  return static_cast<int64_t>(sum.value());
}

/// The objects of each image of a batch.
std::vector<heads::ObjectTargets> objects_of(const data::DetectionTargets& targets) {
  std::vector<heads::ObjectTargets> objects;
  int64_t first = 0;
  for (const int64_t count : targets.boxes.counts) {
    const auto own = [&](const data::Ragged& ragged) {
      return ragged.values.defined() ? ragged.values.narrow(0, first, count) : at::Tensor();
    };
    objects.push_back({own(targets.boxes), own(targets.labels), own(targets.masks)});
    first += count;
  }
  return objects;
}

std::vector<heads::PixelSize> sizes_of(const at::Tensor& sizes) {
  const at::Tensor host = sizes.to(at::kCPU).contiguous();
  const auto* at = host.const_data_ptr<int64_t>();
  std::vector<heads::PixelSize> out;
  for (int64_t b = 0; b < host.size(0); ++b) out.emplace_back(at[2 * b], at[2 * b + 1]);
  return out;
}

/// Draws of each image from a generator of its own, in the order in which its head asks.
class ImageDraws {
 public:
  ImageDraws(int64_t seed, const at::Tensor& numbers) : seed_(seed), numbers_(numbers.to(at::kCPU)) {}

  at::Tensor operator()(int64_t image, bool /*positive*/, int64_t count) {
    auto found = generators_.find(image);
    if (found == generators_.end()) {
      base::Random keys{static_cast<uint64_t>(seed_), static_cast<uint64_t>(numbers_[image].item<int64_t>())};
      found = generators_.emplace(image, at::detail::createCPUGenerator(keys.next())).first;
    }
    return at::randperm(count, found->second, at::TensorOptions(at::kLong));
  }

 private:
  int64_t seed_;
  at::Tensor numbers_;
  std::map<int64_t, at::Generator> generators_;
};

/// The orientation that undoes another.
int undone(int orientation) { return orientation == 6 ? 8 : orientation == 8 ? 6 : orientation; }

/// An object as a detection in an image as it is stored, whose orientation `back` restores.
data::CocoDetection stored_detection(FoundObject found, int32_t image, int back, ImageSize size) {
  data::AnnotatedObject object{found.box, static_cast<int32_t>(found.category)};
  const bool turns = back != 1 && !found.mask.counts.empty();
  if (turns) object.mask = data::bitmap_of(found.mask);
  data::orient(object, back, size.first, size.second);
  const data::CornerBox& box = object.box;
  data::CocoDetection out{image, object.category, {box[0], box[1], box[2] - box[0], box[3] - box[1]}, found.score};
  out.mask = turns ? data::rle_encode(object.mask.bytes.data(), object.mask.height, object.mask.width)
                   : std::move(found.mask);
  return out;
}

/// Detections as numbers, for other ranks.
at::Tensor packed(const std::vector<data::CocoDetection>& detections) {
  std::vector<double> values;
  for (const data::CocoDetection& one : detections) {
    values.insert(values.end(), {static_cast<double>(one.image), static_cast<double>(one.category), one.box[0],
                                 one.box[1], one.box[2], one.box[3], one.score, static_cast<double>(one.mask.height),
                                 static_cast<double>(one.mask.width), static_cast<double>(one.mask.counts.size())});
    values.insert(values.end(), one.mask.counts.begin(), one.mask.counts.end());
  }
  return at::tensor(values, at::kDouble);
}

void unpack(const at::Tensor& numbers, std::vector<data::CocoDetection>& detections) {
  const auto* at = numbers.const_data_ptr<double>();
  for (const auto* end = at + numbers.numel(); at < end;) {
    data::CocoDetection one{
        static_cast<int32_t>(at[0]), static_cast<int32_t>(at[1]), {at[2], at[3], at[4], at[5]}, at[6]};
    one.mask.height = static_cast<int64_t>(at[7]);
    one.mask.width = static_cast<int64_t>(at[8]);
    const auto counts = static_cast<int64_t>(at[9]);
    at += 10;
    for (int64_t i = 0; i < counts; ++i) one.mask.counts.push_back(static_cast<uint32_t>(at[i]));
    at += counts;
    detections.push_back(std::move(one));
  }
}

/// COCO's numbers of boxes or masks, and of each class.
void add_scores(const Detection::Found& found, data::CocoParts parts, Evaluation& evaluation) {
  const metrics::CocoScores scores = metrics::coco_scores(found.set, found.detections, parts);
  const std::string prefix = parts == data::CocoParts::masks ? "mask_" : "";
  for (size_t i = 0; i < kMetricNames.size(); ++i) {
    const double value = scores.all[i];
    if (value >= 0 || i == 0) evaluation.metrics.emplace_back(prefix + kMetricNames[i], std::max(value, 0.0));
  }
  base::Node classes = base::Node::table();
  for (size_t c = 0; c < found.set.categories.size(); ++c) {
    if (scores.of_category[c][0] >= 0) classes.set(found.set.categories[c].name, scores.of_category[c][0]);
  }
  evaluation.notes.emplace_back(prefix + "ap_of_classes", std::move(classes));
}

PreparedImages prepared(const data::DetectionBatch& batch) {
  return {batch.pixels, sizes_of(batch.targets.sizes), sizes_of(batch.targets.stored)};
}

}  // namespace

Detection::Detection(data::DetectionSets sets, const data::DetectionOptions& data, const DetectionTrainOptions& options)
    : sets_(std::move(sets)),
      data_(data),
      options_(options),
      fingerprint_(fingerprint_of(sets_.train->set())),
      training_(sets_.train, data, {options.batch_size, options.divisor, data.workers}, options.shuffle, options.seed) {
}

std::vector<data::Batch> Detection::next(const core::ModelInput&) {
  data::DetectionBatch images = training_.next();
  data::Batch batch;
  batch.input.pixels = std::move(images.pixels);
  batch.input.valid = real_pixels(batch.input.pixels, sizes_of(images.targets.sizes));
  batch.num_targets = batch.input.pixels.size(0);
  batch.targets = std::move(images.targets);
  return {batch};
}

std::vector<std::string> Detection::loss_parts(const core::Model& model) const {
  return heads::detector_head(model, kWho).loss_names();
}

TaskLoss Detection::loss(const core::Model& model, const core::StepResult& step, const data::Batch& batch,
                         int64_t targets) const {
  const auto& own = batch.targets.as<data::DetectionTargets>();
  std::vector<heads::ObjectTargets> objects = objects_of(own);
  for (heads::ObjectTargets& each : objects) each.boxes = each.boxes.to(step.hidden.scalar_type());
  const heads::DetectorHead& head = heads::detector_head(model, kWho);
  const at::Tensor& pixels = batch.input.pixels;
  const heads::NamedLosses losses = head.losses(step.hidden,
                                                head.images({pixels.size(2), pixels.size(3)}, sizes_of(own.sizes)),
                                                objects, ImageDraws(options_.seed, own.draws));
  // They are means over the images of this batch.
  const double share = static_cast<double>(objects.size()) / static_cast<double>(targets);
  std::vector<at::Tensor> parts;
  for (const auto& [name, value] : losses) parts.push_back(value * share);
  TaskLoss loss(at::stack(parts).sum());
  loss.parts = at::stack(parts).detach();
  return loss;
}

double Detection::epoch() const {
  return static_cast<double>(training_.position() * options_.batch_size) / static_cast<double>(sets_.train->size());
}

std::vector<data::CocoDetection> Detection::share_of(const core::Model& model,
                                                     const std::shared_ptr<const data::AnnotatedImages>& images) const {
  const data::DetectionShare share{ranks() == nullptr ? 0 : ranks()->rank(), ranks() == nullptr ? 1 : ranks()->size()};
  // One image a pass where a batch would make padding a part of it.
  const int64_t together = heads::detector_head(model, kWho).sees_padding() ? 1 : options_.eval_batch_size;
  data::MeasuredDetections measured(images, data_, {together, options_.divisor, data_.workers}, share);
  std::vector<data::CocoDetection> found;
  for (data::DetectionBatch batch; measured.next(batch);) {
    const PreparedImages read = prepared(batch);
    std::vector<std::vector<FoundObject>> objects = find_objects(model, read, {.masks = options_.masks});
    for (size_t b = 0; b < objects.size(); ++b) {
      const auto number = static_cast<int32_t>(batch.targets.images[static_cast<int64_t>(b)].item<int64_t>());
      const int back = undone(images->orientation(number));
      for (FoundObject& object : objects[b])
        found.push_back(stored_detection(std::move(object), number, back, read.originals[b]));
    }
  }
  return found;
}

/// The detections of all ranks in the order of the images.
std::vector<data::CocoDetection> Detection::of_all_ranks(std::vector<data::CocoDetection> own) const {
  std::vector<data::CocoDetection> all;
  if (ranks() == nullptr) {
    all = std::move(own);
  } else {
    for (const at::Tensor& numbers : ranks()->gather(packed(own))) unpack(numbers, all);
  }
  std::stable_sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.image < b.image; });
  return all;
}

Detection::Found Detection::detections(const core::Model& model, data::Part part) const {
  const auto& images = sets_.part(part);
  base::require(images != nullptr, "{}: the data has no such part", kWho);
  const int64_t own = heads::detector_head(model, kWho).num_classes(), given = std::ssize(sets_.classes);
  base::require(
      own == given,
      "{}: the model has {} classes, the data {}, and no file of the model says which are which; expected their "
      "names in classes.txt beside the model, one a line",
      kWho, own, given);
  Found found;
  const std::vector<int64_t> numbers = data::spread_numbers(images->size(), options_.eval_samples);
  const bool all = static_cast<int64_t>(numbers.size()) == images->size();
  found.set = all ? images->set() : data::chosen_images(images->set(), numbers);
  const auto measured = all ? images
                            : std::make_shared<const data::AnnotatedImages>(found.set, images->folder(), false);
  found.detections = of_all_ranks(share_of(model, measured));
  return found;
}

std::optional<Evaluation> Detection::evaluate(const core::Model& model, data::Part part) const {
  if (!has(part)) return std::nullopt;
  if (options_.masks) data::require_masks(sets_.part(part)->set(), true);  // before the detections, which take long
  const Found found = detections(model, part);
  Evaluation evaluation;
  evaluation.predictions = static_cast<int64_t>(found.set.images.size());
  add_scores(found, data::CocoParts::boxes, evaluation);
  if (options_.masks) add_scores(found, data::CocoParts::masks, evaluation);
  return evaluation;
}

std::string Detection::picture(const core::Model& model) const {
  constexpr int64_t kImages = 6;
  constexpr double kShown = 0.3;
  constexpr int64_t kMostObjects = 25;
  const auto& images = sets_.valid;
  if (images == nullptr) return {};
  const data::DetectionTransform transform(data_);
  std::vector<std::string> cells;
  for (const int64_t i : data::spread_numbers(images->size(), kImages)) {
    const data::AnnotatedImage image = images->read(i);
    std::vector<data::DrawnObject> drawn;
    for (const data::AnnotatedObject& object : image.objects)
      if (!object.crowd) drawn.push_back({.box = object.box, .is_truth = true});
    const auto found = find_objects(model, prepare_image(transform, image.image, options_.divisor),
                                    {.threshold = kShown, .top = kMostObjects});
    for (const FoundObject& object : found.front()) {
      drawn.push_back({object.box, sets_.classes[static_cast<size_t>(object.category)], object.score, object.category,
                       object.mask});
    }
    cells.push_back(data::detection_svg(image.image, drawn, {.max_side = 420}));
  }
  return data::side_by_side(cells);
}

weights::NamedTensors Detection::save() const {
  return {{"next_batch", at::full({1}, training_.position(), at::kLong)},
          {"fingerprint", at::full({1}, fingerprint_, at::kLong)}};
}

void Detection::load(const std::function<at::Tensor(const std::string&)>& find) {
  const int64_t next_batch = saved_next_batch(find);
  base::require(saved_number(find, "fingerprint") == fingerprint_,
                "data position: it belongs to other annotations than those of data.train");
  training_.seek(next_batch);
}

}  // namespace mnemo::tasks
