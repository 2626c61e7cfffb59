#pragma once

#include <map>
#include <string>
#include <vector>

#include "models/model.h"

namespace mnemo::bundle {

/// The parts of a model folder that a new model starts with.
struct Taken {
  std::vector<std::string> fresh = {};   ///< weights that the folder lacks, or has for another number of classes
  std::vector<std::string> unused = {};  ///< weights of the folder that the model has no place for
  std::string note = {};                 ///< a note about classes and memories; empty: none
  /// Files that stay with a model that writes: how it wants to be searched, and where its texts end.
  std::map<std::string, std::string> files = {};
};

/// Fills `model` with the weights of the model in a folder, by our names, and with the memory that belongs to it (GRC's
/// cache), where that has the same size; otherwise it stays empty, and the note says so.
///   classes   of the model to be, in order; empty: not known. If they are the folder's in another order, the rows of
///             the classifier change places; under other names they stay, and the note says so.
/// Throws InputError naming a tensor of another shape.
Taken take_weights(const std::string& folder, models::Model& model, const std::vector<std::string>& classes = {});

}  // namespace mnemo::bundle
