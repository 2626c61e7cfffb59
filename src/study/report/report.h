#pragma once

#include <string>

#include "study/summary.h"

namespace mnemo::study::report {

/// A comparison as one HTML file that works offline: tables, zoomable training curves, the attention mask of each
/// model, sigma(lambda) of GRC, a sample from each model, and how the results were made. All external text is escaped.
std::string report_html(const Comparison& comparison);

}  // namespace mnemo::study::report
