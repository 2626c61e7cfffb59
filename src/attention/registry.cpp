#include "attention/registry.h"

#include "attention/relative.h"
#include "attention/softmax.h"

namespace mnemo::attention {
namespace {

template <class A>
void add(base::OptionTypes& types, base::Registry<Factory>& factories, const char* name, const char* meaning) {
  types.add<typename A::Options>(name, meaning);
  factories.add(name, [](const base::Node& options, const core::AttentionBuild& build) {
    return std::make_unique<A>(base::read_typed_options<typename A::Options>(options), build);
  });
}

}  // namespace

void add_attentions(base::OptionTypes& types, base::Registry<Factory>& factories) {
  add<Softmax>(types, factories, "softmax", "scaled dot-product attention");
  add<Relative>(types, factories, "relative", "Transformer-XL: content and position terms over distances");
}

}  // namespace mnemo::attention
