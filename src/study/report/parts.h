#pragma once

#include <string>
#include <string_view>

#include "study/summary.h"

/// The parts of a report, each an HTML fragment.
namespace mnemo::study::report {

/// Colour of the i-th variant of a study; the same in tables, charts and pictures.
std::string_view colour(size_t index);

/// Distance of about five ticks at round numbers, on an axis of that length.
double tick_step(double length);
/// The text of a tick, with as many digits as tell it from the next one, `step` away.
std::string tick_label(const StudyMetric& metric, double tick, double step);

/// The class of a verdict in page.css: better, worse, failed or none.
std::string_view verdict_class(Verdict verdict);
/// The study's table with coloured verdicts.
std::string table(const StudySummary& study);

/// Every seed of every variant as a dot on one axis; a line marks the mean of the first variant. Drawn for wide and
/// for narrow windows; the style sheet shows one of them.
std::string dots(const StudySummary& study);

/// Every attention mask of the variants' models, each once, with the variants and layers that have it.
std::string masks(const StudySummary& study);

/// One variant: its memory options, sigma(lambda) and sample.
std::string card(const StudySummary& study, const VariantSummary& variant);

/// The curves of a study as JSON for assets/charts.js; `id` is the element they are drawn in.
base::Node curves(const StudySummary& study, const std::string& id);

}  // namespace mnemo::study::report
