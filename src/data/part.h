#pragma once

#include <string_view>

namespace mnemo::data {

/// The parts of a data set.
enum class Part { train, valid, test };

/// The part of that name; throws InputError "WHERE: expected train, valid or test" for another.
Part part_of(std::string_view name, std::string_view where);

}  // namespace mnemo::data
