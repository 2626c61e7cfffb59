#pragma once

namespace mnemo::tasks {

/// The notice of a training without validation data.
inline constexpr const char* kNothingHeldOut =
    "Nothing is held out, so no figure says how good the model is on other data: data.valid names such data, "
    "data.valid_fraction = 0.05 takes 5 % of the training data.";

}  // namespace mnemo::tasks
