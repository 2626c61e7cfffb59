#pragma once

#include <string>

#include "core/spans.h"

namespace mnemo::inspect {

/// Who attends to whom as a picture: a row a query, a column a key, coloured by the query's span.
std::string svg_of(const core::AttendTable& table);

}  // namespace mnemo::inspect
