#include "infer/image_classifier.h"

#include <torch/types.h>

#include <algorithm>

#include "base/error.h"
#include "base/file_io.h"
#include "base/log.h"
#include "base/printable.h"
#include "data/images/image_reader.h"
#include "data/images/image_transform.h"
#include "data/images/image_walk.h"
#include "infer/progress.h"

namespace mnemo::infer {

ImageClassifier::ImageClassifier(const bundle::Bundle& bundle, ClassifyOptions options)
    : options_(std::move(options)), preprocessing_(bundle.preprocessing()), classifier_(bundle.image_model()) {
  base::require(options_.top >= 1, "classify: --top: expected at least 1, found {}", options_.top);
  base::require(options_.batch >= 1 && options_.batch <= 4096, "classify: --batch: expected 1 to 4096, found {}",
                options_.batch);
  if (!options_.read) options_.read = [](const std::string& path) { return data::read_image(path); };
  heads_ = bundle.heads();
  for (const std::string& name : options_.tasks) bundle::head_named(heads_, name, "classify: --task");
  if (!options_.tasks.empty()) {
    std::erase_if(heads_, [&](const bundle::ModelHead& head) {
      return std::find(options_.tasks.begin(), options_.tasks.end(), head.name) == options_.tasks.end();
    });
  }
}

std::vector<ImageAnswer> ImageClassifier::read_batch(const std::vector<std::string>& paths, at::Tensor& pixels) const {
  const data::ImageTransform transform(preprocessing_.options());
  std::vector<ImageAnswer> batch;
  pixels = at::empty({static_cast<int64_t>(paths.size()), 3, transform.height(), transform.width()});
  int64_t rows = 0;
  for (const std::string& path : paths) {
    ImageAnswer& answer = batch.emplace_back(ImageAnswer{path, {}, {}});
    try {
      transform.measure(options_.read(path), pixels[rows].mutable_data_ptr<float>());
      ++rows;
    } catch (const base::InputError& error) {
      if (!options_.skip_broken) throw;
      answer.error = error.what();
      base::log_warning("skipped {}", base::printable(answer.error, 1000));
    }
  }
  pixels = pixels.narrow(0, 0, rows);
  return batch;
}

HeadAnswer ImageClassifier::answer_of(const bundle::ModelHead& head, const at::Tensor& logits) const {
  const at::Tensor shares = at::softmax(logits.to(at::kCPU, at::kDouble), 0);
  if (!shares.isfinite().all().item<bool>())
    throw base::NotFinite(fmt::format("classify: head '{}': expected finite logits, found others", head.name));
  const auto [values, numbers] = shares.topk(std::min(options_.top, shares.size(0)));
  HeadAnswer answer{head.name, {}};
  for (int64_t i = 0; i < values.size(0); ++i)
    answer.best.push_back({head.label(numbers[i].item<int64_t>()), values[i].item<double>()});
  return answer;
}

void ImageClassifier::operator()(const std::vector<std::string>& paths,
                                 const std::function<void(const ImageAnswer&)>& on_answer) const {
  const at::Device device = device_of(classifier_.model());
  for (size_t first = 0; first < paths.size(); first += static_cast<size_t>(options_.batch)) {
    const size_t end = std::min(paths.size(), first + static_cast<size_t>(options_.batch));
    at::Tensor pixels;
    std::vector<ImageAnswer> batch = read_batch(
        {paths.begin() + static_cast<std::ptrdiff_t>(first), paths.begin() + static_cast<std::ptrdiff_t>(end)}, pixels);
    const std::vector<models::TaskLogits> all = pixels.size(0) > 0 ? classifier_(pixels.to(device))
                                                                   : std::vector<models::TaskLogits>();
    int64_t row = 0;
    for (ImageAnswer& answer : batch) {
      if (answer.error.empty()) {
        for (const bundle::ModelHead& head : heads_) {
          const auto found = std::find_if(all.begin(), all.end(),
                                          [&](const models::TaskLogits& one) { return one.name == head.name; });
          base::ensure(found != all.end(), "no logits of '{}'", head.name);
          answer.heads.push_back(answer_of(head, found->logits[row]));
        }
        ++row;
      }
      on_answer(answer);
    }
  }
}

std::vector<std::string> image_paths(const std::vector<std::string>& given, const std::string& kept) {
  std::vector<std::string> images;
  for (const std::string& path : given) {
    const bool keeps = !kept.empty() && path == kept;
    if (keeps || !base::is_folder(path)) {
      base::require(keeps || base::path_exists(path), "{}: not there", base::printable(path, 400));
      images.push_back(path);
      continue;
    }
    const std::vector<std::string> found = data::ImageWalk(path, true).below("");
    base::require(!found.empty(), "{}: expected images in the folder, found none", base::printable(path, 400));
    for (const std::string& name : found) images.push_back(base::join_path(path, name));
  }
  return images;
}

}  // namespace mnemo::infer
