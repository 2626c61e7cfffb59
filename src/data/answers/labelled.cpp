#include "data/answers/labelled.h"

#include "base/checksum.h"
#include "base/error.h"

namespace mnemo::data {

void LabelledDocuments::add(std::span<const int32_t> tokens, int64_t label, std::span<const int32_t> types) {
  base::ensure(!tokens.empty() && label >= 0 && label < num_labels_, "a document of {} tokens with label {} of {}",
               tokens.size(), label, num_labels_);
  tokens_.start_document();
  tokens_.append(tokens);
  if (types_) {
    base::ensure(types.size() == tokens.size(), "{} types of {} tokens", types.size(), tokens.size());
    types_->start_document();
    types_->append(types);
  }
  labels_.push_back(static_cast<int32_t>(label));
}

uint64_t LabelledDocuments::labels_fingerprint() const {
  base::Fingerprint sum;
  if (types_) sum.mix(types_->fingerprint());
  for (const int32_t label : labels_) sum.mix(static_cast<uint64_t>(label));
  return sum.value();
}

}  // namespace mnemo::data
