// torchvision's and timm's ResNet: names, running statistics and logits at full size
// (tests/python/torchvision_detectors.py).
#include <gtest/gtest.h>
#include <torch/types.h>

#include <map>

#include "base/file_io.h"
#include "models/image_model.h"
#include "models/presets.h"
#include "tests/support/numbers.h"
#include "tests/support/torchvision_numbers.h"
#include "weights/foreign.h"

namespace mnemo::weights::foreign_resnet_test {
namespace {

const std::string kFolder = MNEMO_SOURCE_DIR "/tests/data/torchvision/";

TEST(ForeignResnet, HasTheNamesAndTheLogitsOfTorchvision) {
  for (const char* architecture : {"resnet18", "resnet50"}) {
    SCOPED_TRACE(architecture);
    const std::string path = kFolder + architecture + ".json";
    const base::Node stored = parse_model_config(base::read_file(path, 1 << 20), path);
    const base::Node config = base::Node::table({{"architecture", architecture}});
    const ForeignFormat& format = *foreign_format_of(config);
    EXPECT_EQ(format.name, "resnet");
    models::ImageModel model(models::read_model_options(format.options(config)), 0, at::kDouble);
    TensorFile file;
    std::map<std::string, std::vector<int64_t>> expected, found;
    for (const base::Node::Member& tensor : stored.at("tensors").members()) {
      std::vector<int64_t> shape;
      for (const base::Node& size : tensor.value.items()) shape.push_back(size.as_int());
      const bool count = tensor.key.ends_with("num_batches_tracked");
      file.tensors.emplace_back(tensor.key,
                                count ? at::zeros({}, at::kLong) : test::torchvision_value(tensor.key, shape));
      if (!count) expected[tensor.key] = shape;
    }
    const NamedModel named = named_model(format, model.parameters(), model.initial_state(1));
    for (const auto& [name, tensor] : to_theirs(format, named.tensors)) found[name] = tensor.sizes().vec();
    EXPECT_EQ(found, expected);
    load_theirs(format, file, named.tensors, "m");
    model.commit(named.state);
    core::Segment segment;
    segment.pixels = 3 * test::torchvision_uniform("pixels", {2, 3, 64, 96}) - 1.5;
    const at::Tensor logits = model.logits(model.forward(segment, model.initial_state(2)).hidden).squeeze(1);
    const at::Tensor theirs = read_safetensors(kFolder + architecture + ".safetensors").at("logits", "m");
    EXPECT_LT(test::difference(logits, theirs), 1e-9 * test::largest(theirs));
    EXPECT_EQ(base::write_options(models::read_model_options(format.options(format.config(model.options())))),
              base::write_options(model.options()));
  }
}

}  // namespace
}  // namespace mnemo::weights::foreign_resnet_test
