#include "bench/image.h"

#include <ATen/CPUGeneratorImpl.h>
#include <c10/core/InferenceMode.h>
#include <fmt/format.h>
#include <torch/types.h>

#include <chrono>

#include "base/file_io.h"
#include "bench/rounds.h"
#include "models/image_model.h"

namespace mnemo::bench {
namespace {

constexpr int64_t kMaxImages = 8;
constexpr double kImageTolerance = 1e-4;  ///< relative to the largest logit

}  // namespace

ImageSubject::ImageSubject(const models::ModelOptions& options)
    : model_(std::make_shared<models::ImageModel>(options, 1, at::kFloat)) {
  at::Generator generator = at::detail::createCPUGenerator(1);
  const std::vector<int64_t> size = model_->options().backbone.image_size();
  pixels_ = at::randn({kMaxImages, model_->options().backbone.image_channels(), size[0], size[1]}, generator,
                      at::kFloat);
  labels_ = at::randint(0, model_->num_classes(), {kMaxImages, 1}, generator, at::kLong);
  optimiser_ = train::make_optimiser(
      train::optimiser_types().complete(base::Node::table({{"type", "adamw"}, {"lr", 1e-4}})),
      model_->parameters().all());
}

void ImageSubject::write(const weights::ForeignFormat& format, const std::string& folder) const {
  base::make_folders(folder);
  base::write_file_atomic(base::join_path(folder, "config.json"), base::to_json(format.config(model_->options())));
  weights::write_safetensors(base::join_path(folder, "model.safetensors"),
                             weights::to_theirs(format, model_->parameters().named()));
  weights::write_safetensors(base::join_path(folder, "pixels.safetensors"),
                             {{"pixels", pixels_}, {"labels", labels_.squeeze(1)}});
}

const infer::TaskClassifier& ImageSubject::classifier() {
  if (!classifier_) classifier_ = std::make_unique<infer::TaskClassifier>(model_);
  return *classifier_;
}

double ImageSubject::forward(int64_t batch, int64_t count) {
  const c10::InferenceMode inference;
  const infer::TaskClassifier& classify = classifier();
  const at::Tensor pixels = pixels_.narrow(0, 0, batch);
  const auto begin = std::chrono::steady_clock::now();
  for (int64_t i = 0; i < count; ++i) classify(pixels);
  return seconds_since(begin);
}

double ImageSubject::train(int64_t batch, int64_t count) {
  classifier_.reset();
  const auto begin = std::chrono::steady_clock::now();
  for (int64_t i = 0; i < count; ++i) {
    model_->parameters().zero_grad();
    core::Segment segment;
    segment.pixels = pixels_.narrow(0, 0, batch);
    segment.mode = core::Mode::train;
    const core::StepResult step = model_->forward(segment, model_->initial_state(batch));
    model_->nll(step.hidden, labels_.narrow(0, 0, batch)).mean().backward();
    optimiser_->step();
    model_->commit(step.state);
  }
  return seconds_since(begin);
}

std::string ImageSubject::difference(PeerProcess& peer) {
  const base::Node answer = base::parse_json(peer.ask("check"), "the peer's answer");
  const at::Tensor ours = classifier()(pixels_)[0].logits.flatten().to(at::kDouble).contiguous();
  const double scale = ours.abs().max().item<double>();
  double worst = 0;
  for (int64_t i = 0; i < ours.numel(); ++i) {
    worst = std::max(worst, std::abs(ours.const_data_ptr<double>()[i] -
                                     answer.at("logits").items()[static_cast<size_t>(i)].as_double()) /
                                scale);
  }
  return worst <= kImageTolerance ? "" : fmt::format("logits differ by {:.1e} of the largest", worst);
}

}  // namespace mnemo::bench
