#include "infer/image_classifier.h"

#include <torch/types.h>

#include <algorithm>
#include <bit>

#include "base/error.h"
#include "base/file_io.h"
#include "base/log.h"
#include "base/printable.h"
#include "data/images/image_reader.h"
#include "data/images/image_transform.h"
#include "data/images/image_walk.h"
#include "distributed/shared_batches.h"
#include "infer/progress.h"
#include "models/image_model.h"

namespace mnemo::infer {
namespace {

/// Answers without their images' paths, as texts for another process.
std::vector<std::string> pack(const std::vector<ImageAnswer>& answers) {
  std::vector<std::string> packed;
  for (const ImageAnswer& answer : answers) {
    packed.insert(packed.end(), {answer.error, std::to_string(answer.heads.size())});
    for (const HeadAnswer& head : answer.heads) {
      packed.insert(packed.end(), {head.head, std::to_string(head.best.size())});
      for (const ClassShare& share : head.best)
        packed.insert(packed.end(), {share.label, std::to_string(std::bit_cast<int64_t>(share.probability))});
    }
  }
  return packed;
}

std::vector<ImageAnswer> unpack(const std::vector<std::string>& packed) {
  std::vector<ImageAnswer> answers;
  for (auto next = packed.begin(); next != packed.end();) {
    ImageAnswer& answer = answers.emplace_back();
    answer.error = *next++;
    answer.heads.resize(std::stoull(*next++));
    for (HeadAnswer& head : answer.heads) {
      head.head = *next++;
      head.best.resize(std::stoull(*next++));
      for (ClassShare& share : head.best) {
        share.label = *next++;
        share.probability = std::bit_cast<double>(static_cast<int64_t>(std::stoll(*next++)));
      }
    }
  }
  return answers;
}

}  // namespace

ImageClassifier::ImageClassifier(const bundle::Bundle& bundle, ClassifyOptions options)
    : options_(std::move(options)), preprocessing_(bundle.preprocessing()), classifier_(bundle.images()) {
  base::require(options_.top >= 1, "classify: --top: expected at least 1, found {}", options_.top);
  base::require(options_.batch >= 1 && options_.batch <= ClassifyOptions::kMaxBatch,
                "classify: --batch: expected 1 to {}, found {}", ClassifyOptions::kMaxBatch, options_.batch);
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
  pixels = at::empty({static_cast<int64_t>(paths.size()), 3, transform.height(), transform.width()}, at::kFloat);
  int64_t rows = 0;
  for (const std::string& path : paths) {
    base::stop_if_asked(options_.should_stop, "classify");
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

std::vector<ImageAnswer> ImageClassifier::answers(const std::vector<std::string>& paths) const {
  at::Tensor pixels;
  std::vector<ImageAnswer> batch = read_batch(paths, pixels);
  const std::vector<models::TaskLogits> all = pixels.size(0) > 0
                                                  ? classifier_(core::as_input(classifier_.model(), pixels))
                                                  : std::vector<models::TaskLogits>();
  int64_t row = 0;
  for (ImageAnswer& answer : batch) {
    if (!answer.error.empty()) continue;
    for (const bundle::ModelHead& head : heads_) {
      const auto found = std::find_if(all.begin(), all.end(),
                                      [&](const models::TaskLogits& one) { return one.name == head.name; });
      base::ensure(found != all.end(), "no logits of '{}'", head.name);
      answer.heads.push_back({head.name, best_classes(head, found->logits[row], options_.top)});
    }
    ++row;
  }
  return batch;
}

void ImageClassifier::operator()(const std::vector<std::string>& paths,
                                 const std::function<void(const ImageAnswer&)>& on_answer) const {
  const auto size = static_cast<int64_t>(paths.size());
  const auto work = [&](int64_t batch) {
    const auto first = paths.begin() + batch * options_.batch,
               last = paths.begin() + std::min(size, (batch + 1) * options_.batch);
    return pack(answers({first, last}));
  };
  distributed::share_batches(options_.ranks.get(), (size + options_.batch - 1) / options_.batch, work,
                             [&](int64_t batch, const distributed::Texts& packed) {
                               size_t image = static_cast<size_t>(batch * options_.batch);
                               for (ImageAnswer& answer : unpack(packed)) {
                                 answer.image = paths[image++];
                                 on_answer(answer);
                               }
                             });
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
