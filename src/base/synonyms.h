#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace mnemo::base {

class PolyType;

/// Names that other programs give to keys of a recipe ("lr"), each with the whole key ("train.optimiser.lr"), or with
/// the option of the command line that it is here ("--device").
std::span<const std::pair<std::string_view, std::string_view>> key_synonyms();

/// The key of a recipe that other programs call `name`, in which '-' stands for '_'; nothing if there is none.
std::optional<std::string> key_called(std::string_view name);

/// The index of the only description ("RMT: memory rows …") with words that begin with `name`, ignoring case and
/// everything but letters and digits. Nothing for a name of fewer than three of these, and if several hold it.
std::optional<size_t> described_as(std::string_view name, const std::vector<std::string>& descriptions);

/// The type whose description alone holds `name`, in that sense.
std::optional<std::string> type_described_as(std::string_view name, const PolyType& types);

}  // namespace mnemo::base
