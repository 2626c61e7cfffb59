#pragma once

#include <string>

#include "core/spans.h"

namespace mnemo::inspect {

/// The attention mask as a picture: rows are queries, columns are keys, coloured by the query's span.
std::string svg_of(const core::AttendTable& table);

}  // namespace mnemo::inspect
