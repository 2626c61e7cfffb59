#pragma once

namespace mnemo::tasks {

/// The notice of a training without validation data.
inline constexpr const char* kNothingHeldOut =
    "No data is held out, so nothing measures the model on unseen data. Name held-out data with data.valid, or take 5 "
    "% "
    "of the training data with data.valid_fraction = 0.05.";

}  // namespace mnemo::tasks
