#pragma once

#include <string_view>

namespace mnemo::data {

/// The parts of a data set.
enum class Part { train, valid, test };

/// The part with that name; throws InputError "WHERE: expected train, valid or test" for any other name.
Part part_of(std::string_view name, std::string_view where);

}  // namespace mnemo::data
