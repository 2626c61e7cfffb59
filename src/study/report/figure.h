#pragma once

#include <string>

#include "study/summary.h"

/// Parts of the report that show a sweep as a whole.
namespace mnemo::study::report {

/// The study's metric over the swept key: one line per variant, with error bars of one standard deviation over the
/// seeds; the paper's values are dashed and hollow. One plot per combination of values on the other axes.
std::string figure(const StudyGrid& study);

/// The study's metric over its cost: over the tokens that a loss reaches in training (Bulatov et al. 2022, figure
/// 6) and over the operations of a forward pass (Zhang et al. 2024, figure 1). Empty where the variants do not differ.
std::string trade_offs(const StudyGrid& study);

/// All means in one table: one row per point, one column per variant.
std::string grid(const StudyGrid& study);

/// The paper's values with their sources; empty if there are none.
std::string paper(const StudyGrid& study);

}  // namespace mnemo::study::report
