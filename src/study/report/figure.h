#pragma once

#include <string>

#include "study/summary.h"

/// The pieces of a report that show a swept study as a whole.
namespace mnemo::study::report {

/// The study's metric over the swept key, a line a variant with bars of one standard deviation over the seeds; the
/// paper's values dashed and hollow. One picture for every combination of the other axes' values.
std::string figure(const StudyGrid& study);

/// All means in one table: a row a point, a column a variant.
std::string grid(const StudyGrid& study);

/// The paper's values with their sources; empty where there are none.
std::string paper(const StudyGrid& study);

}  // namespace mnemo::study::report
