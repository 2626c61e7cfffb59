#pragma once

#include <string>

#include "study/summary.h"

namespace mnemo::study::report {

/// A comparison as one HTML file that opens without a network: tables, training curves to zoom in, who attends to whom
/// in each model, sigma(lambda) of GRC, a sample from each, and how it was made. All text from outside is escaped.
std::string report_html(const Comparison& comparison);

}  // namespace mnemo::study::report
