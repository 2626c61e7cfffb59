#include "heads/registry.h"

#include "core/head.h"
#include "heads/classification.h"
#include "heads/detection/detector_head.h"
#include "heads/language_model.h"
#include "heads/masked_language_model.h"

namespace mnemo::heads {
namespace {

template <class O, class Make>
void add(base::OptionTypes& types, base::Registry<Entry>& entries, const char* name, const char* meaning, Make make) {
  types.add<O>(name, meaning);
  Entry entry;
  entry.make = [make](const base::TypedOptions& options, const HeadBuild& build) {
    return make(options.as<O>(), build);
  };
  entry.check = [](const base::TypedOptions& options, const core::ModelOutline& model, const base::Where& where) {
    options.as<O>().check(model, where);
  };
  entry.reads_first_row = [](const base::TypedOptions& options) { return options.as<O>().reads_first_row(); };
  if constexpr (requires(const O& options) { options.num_classes; })
    entry.num_classes = [](const base::TypedOptions& options) { return options.as<O>().num_classes; };
  if constexpr (requires { O::kMasks; }) {
    entry.detects = true;
    entry.gives_masks = O::kMasks;
  }
  if constexpr (requires(const O& options) { options.tied; })
    entry.is_tied = [](const base::TypedOptions& options) { return options.as<O>().tied; };
  entries.add(name, std::move(entry));
}

}  // namespace

void add_heads(base::OptionTypes& types, base::Registry<Entry>& entries) {
  add<LanguageModelOptions>(types, entries, "language_model", "softmax over the vocabulary for each token",
                            make_language_model);
  add<MaskedLanguageModelOptions>(
      types, entries, "masked_language_model", "softmax over the vocabulary for masked tokens of an encoder",
      [](const MaskedLanguageModelOptions& options, const HeadBuild& build) -> std::unique_ptr<core::Head> {
        return std::make_unique<MaskedLanguageModel>(options, build.scope, build.table, build.dim, build.init_std);
      });
  add<ClassificationOptions>(
      types, entries, "classification", "one class per segment of an encoder",
      [](const ClassificationOptions& options, const HeadBuild& build) -> std::unique_ptr<core::Head> {
        return std::make_unique<Classification>(options, build.scope, build.dim, build.init_std);
      });
  const auto detector = [](const auto& options, const HeadBuild& build) {
    return make_detector(options, *build.detector);
  };
  add<RetinaNetHeadOptions>(types, entries, "retinanet", "boxes of objects in images, in one stage (RetinaNet)",
                            detector);
  add<FasterRcnnOptions>(types, entries, "faster_rcnn", "boxes of objects in images, in two stages (Faster R-CNN)",
                         detector);
  add<MaskRcnnOptions>(types, entries, "mask_rcnn", "boxes and masks of objects in images (Mask R-CNN)", detector);
}

}  // namespace mnemo::heads
