#include "heads/registry.h"

#include "core/head.h"
#include "heads/classification.h"
#include "heads/language_model.h"
#include "heads/masked_language_model.h"

namespace mnemo::heads {
namespace {

template <class O, class Make>
void add(base::OptionTypes& types, base::Registry<Entry>& entries, const char* name, const char* meaning, Make make) {
  types.add<O>(name, meaning);
  Entry entry;
  entry.make = [make](const base::Node& node, const HeadBuild& build) {
    return make(base::read_typed_options<O>(node), build);
  };
  entry.check = [](const base::Node& node, const core::ModelOutline& model, const base::Where& where) {
    base::read_typed_options<O>(node).check(model, where);
  };
  entry.classifies = O::kClassifies;
  entry.reads_first_row = [](const base::Node& node) { return base::read_typed_options<O>(node).reads_first_row(); };
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
}

}  // namespace mnemo::heads
