#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/node.h"
#include "base/stop.h"
#include "bundle/bundle.h"

namespace mnemo::serve {

/// A request of /v1/translate, /v1/classify or /v1/detect: a JSON object, or an image as the whole body.
struct Question {
  base::Node body = base::Node::table();
  std::optional<std::string> image = {};
  bool lenient = false;  ///< unknown members are ignored
};

/// A model that answers a request as a whole instead of continuing texts. One thread uses it.
class Answers {
 public:
  virtual ~Answers() = default;
  /// "/v1/translate"
  virtual std::string route() const = 0;
  /// The members of the answer. Throws ApiError 400 naming the parameter, and base::Stopped.
  virtual base::Node answer(const Question& question, const base::ShouldStop& should_stop) = 0;
};

/// How a stored model of pairs, of images, of objects in images or of classes of texts answers; null for one that
/// continues texts. Throws InputError for a model that cannot be used, and for a precision where there is none.
std::unique_ptr<Answers> open_answers(const bundle::Bundle& stored, const std::optional<std::string>& precision = {});

}  // namespace mnemo::serve
