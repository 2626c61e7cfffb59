#include "inspect/model_summary.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/types.h>

#include <algorithm>

#include "base/output.h"
#include "base/text_format.h"
#include "base/text_table.h"
#include "inspect/attention_summary.h"
#include "inspect/cost.h"
#include "inspect/draw/span_picture.h"
#include "inspect/filled_state.h"
#include "models/full_state.h"
#include "models/kinds.h"
#include "page/table.h"

namespace mnemo::inspect {
namespace {

using Align = base::TextTable::Align;

core::StepResult run(const models::TextModel& model, int64_t tokens, core::Part part, const core::State& state) {
  core::Segment segment;
  segment.tokens = at::zeros({1, tokens}, at::TensorOptions(at::kLong).device(core::device_of(model)));
  segment.part = part;
  return model.forward(segment, state);
}

/// State of one sequence in bytes just before the last token of a segment decoded token by token; nothing if that
/// takes too long to run.
std::optional<int64_t> bytes_inside(const models::TextModel& model, const core::State& full) {
  const int64_t tokens = model.segment_size() - 1;
  if (too_long_to_run(model, model.segment_size(), full)) return std::nullopt;
  if (tokens == 0 || !model.options().backbone.causal()) return core::num_bytes(full, core::Lifetime::sequence);
  return core::num_bytes(run(model, tokens, {true, false}, full).state, core::Lifetime::sequence);
}

std::vector<ModuleSummary> modules_of(const layers::ParameterSet& parameters) {
  std::vector<ModuleSummary> modules;
  for (const layers::Parameter& parameter : parameters.all()) {
    const size_t dot = parameter.name.rfind('.');
    const std::string module = dot == std::string::npos ? "" : parameter.name.substr(0, dot);
    if (modules.empty() || modules.back().name != module) modules.push_back({module, {}, 0});
    modules.back().tensors.emplace_back(dot == std::string::npos ? parameter.name : parameter.name.substr(dot + 1),
                                        parameter.tensor.sizes().vec());
    modules.back().parameters += parameter.tensor.numel();
  }
  return modules;
}

std::string shape_text(const std::vector<int64_t>& shape) { return fmt::format("[{}]", fmt::join(shape, ",")); }

std::string bytes_text(int64_t bytes) {
  if (bytes < 10'000) return base::grouped(bytes) + " bytes";
  return fmt::format("{} bytes ({:.1f} {})", base::grouped(bytes),
                     static_cast<double>(bytes) / (bytes < 10'000'000 ? 1e3 : 1e6), bytes < 10'000'000 ? "kB" : "MB");
}

base::TextTable module_table(const ModelSummary& facts) {
  base::TextTable table({"module", "parameters", "tensors"}, {Align::left, Align::right, Align::left});
  for (const ModuleSummary& module : facts.modules) {
    std::string tensors;
    for (const auto& [name, shape] : module.tensors)
      tensors += (tensors.empty() ? "" : "  ") + name + " " + shape_text(shape);
    table.add_row({module.name, base::grouped(module.parameters), tensors});
  }
  table.add_row({"all", base::grouped(facts.parameters), ""});
  return table;
}

base::TextTable state_table(const ModelSummary& facts) {
  base::TextTable table({"state", "bytes", "shape", "dimensions", "type", "belongs to"},
                        {Align::left, Align::right, Align::left, Align::left, Align::left});
  for (const StateFieldSummary& field : facts.state) {
    table.add_row({field.path, base::grouped(field.bytes), shape_text(field.shape), field.dims, field.dtype,
                   field.per_sequence ? "a sequence" : "the model"});
  }
  table.add_row({"total per sequence", base::grouped(facts.state_bytes)});
  table.add_row({"total of the model", base::grouped(facts.model_state_bytes)});
  return table;
}

std::string besides_the_mask() { return fmt::format("Not in the mask: {}.", models::kSeesAheadNotice); }

/// " in layers 0, 2" where not all layers have the same table.
std::string in_layers(const ModelSummary& summary, const models::LayerTable& of) {
  return summary.tables.size() == 1 ? std::string() : fmt::format(" in layers {}", fmt::join(of.layers, ", "));
}

}  // namespace

ModelSummary summarize(const models::Model& model) {
  const at::NoGradGuard no_grad;
  ModelSummary facts{.sees_ahead = model.sees_ahead()};
  const FilledState filled = models::visit(
      model, models::Overloaded{
                 [&](const models::TextModel& text) {
                   FilledState own = fill_memories(text, 1, text.segment_size());
                   facts.tables = text.attend_tables(text.segment_size(), own.state, core::Mode::evaluate);
                   facts.open_bytes = facts.sees_ahead ? std::nullopt : bytes_inside(text, own.state);
                   return own;
                 },
                 // Of pairs the memories of the source are not run: they say how much they hold.
                 [](const models::PairModel& pairs) {
                   return FilledState{.state = pairs.initial_state(1), .full = !pairs.source().carries_memory()};
                 },
                 [](const models::ImageModel& images) { return FilledState{.state = images.initial_state(1)}; },
             });
  const core::State& full = filled.state;
  if (!filled.full) {
    facts.measured_after = filled.position;
    facts.full_bytes = models::full_state_bytes(model, core::Mode::evaluate, INT64_MAX);
  }
  facts.modules = modules_of(model.parameters());
  facts.parameters = model.parameters().count();
  for (const auto& [field, tensor] : full.fields()) {
    facts.state.push_back({field.path, std::string(field.dims), tensor.sizes().vec(),
                           c10::toString(tensor.scalar_type()), static_cast<int64_t>(tensor.nbytes()),
                           field.per_sequence()});
  }
  facts.state_bytes = core::num_bytes(full, core::Lifetime::sequence);
  facts.model_state_bytes = core::num_bytes(full, core::Lifetime::model);
  facts.cache_share = cache_shares(model.scalars());
  return facts;
}

std::string to_text(const ModelSummary& facts) {
  std::string text = module_table(facts).text(base::output_columns()) + "\n";
  if (facts.state.empty()) {
    text += !facts.tables.empty() ? "The model carries no state from segment to segment.\n"
                                  : "The model carries no state.\n";
  } else {
    text += facts.measured_after && facts.tables.empty() ? "State before the first text:\n"
            : facts.measured_after                       ? fmt::format(
                                                               "State between segments after {} tokens (filling the memories takes "
                                                                                     "too long to run):\n",
                                                               base::grouped(*facts.measured_after))
            : !facts.tables.empty() ? "State between segments, once every memory is full:\n"
                                    : "State from one training step to the next:\n";
    text += state_table(facts).text(base::output_columns());
    if (facts.measured_after)
      text += fmt::format("Once every memory is full, a sequence carries at most {}.\n", bytes_text(facts.full_bytes));
  }
  if (!facts.tables.empty()) {
    if (facts.open_bytes)
      text += fmt::format("Inside a segment, when run token by token, a sequence holds at most {}.\n\n",
                          bytes_text(*facts.open_bytes));
    for (const models::LayerTable& of : facts.tables)
      text += fmt::format("Attention mask{} (rows: queries, columns: keys):\n{}", in_layers(facts, of),
                          of.table.draw());
    if (facts.sees_ahead) text += besides_the_mask() + "\n";
  }
  if (!facts.cache_share.empty()) {
    text += "\nsigma(lambda), the fraction of each head's output that comes from the GRC cache:\n";
    for (const CacheShare& layer : facts.cache_share)
      text += fmt::format("  {}  {:.3f}\n", layer.layer, fmt::join(layer.heads, "  "));
  }
  return text;
}

base::Node to_node(const ModelSummary& facts) {
  auto list = [](const std::vector<int64_t>& numbers) {
    base::Node node = base::Node::array();
    for (const int64_t number : numbers) node.push_back(number);
    return node;
  };
  base::Node modules = base::Node::array();
  for (const ModuleSummary& module : facts.modules) {
    base::Node tensors = base::Node::table();
    for (const auto& [name, shape] : module.tensors) tensors.set(name, list(shape));
    modules.push_back(
        base::Node::table({{"name", module.name}, {"parameters", module.parameters}, {"tensors", tensors}}));
  }
  base::Node state = base::Node::array();
  for (const StateFieldSummary& field : facts.state) {
    state.push_back(base::Node::table({{"path", field.path},
                                       {"shape", list(field.shape)},
                                       {"dimensions", field.dims},
                                       {"dtype", field.dtype},
                                       {"bytes", field.bytes},
                                       {"lifetime", field.per_sequence ? "sequence" : "model"}}));
  }
  base::Node spans = base::Node::array();
  const auto add_spans = [&](const std::vector<core::Span>& list, const char* place) {
    for (const core::Span& span : list)
      spans.push_back(base::Node::table({{"kind", kind_of(span)}, {"length", span.length}, {"place", place}}));
  };
  if (!facts.tables.empty()) {
    add_spans(facts.tables[0].table.contexts(), "context");
    add_spans(facts.tables[0].table.rows(), "rows");
  }
  base::Node shares = base::Node::array();
  for (const CacheShare& layer : facts.cache_share) shares.push_back(base::write_options(layer));
  return base::Node::table({{"parameters", facts.parameters},
                            {"modules", modules},
                            {"state", state},
                            {"state_bytes", facts.state_bytes},
                            {"model_state_bytes", facts.model_state_bytes},
                            {"largest_inside_segment", facts.open_bytes ? base::Node(*facts.open_bytes) : base::Node()},
                            {"memories_full", !facts.measured_after},
                            {"full_state_bytes", facts.full_state_bytes()},
                            {"spans", spans},
                            {"sees_ahead", facts.sees_ahead},
                            {"sigma_lambda", shares}});
}

void add_overview(page::Document& page, const ModelSummary& facts) {
  page.add(
      fmt::format("<p class=\"lead\">{} parameters; {} carried by a sequence, {} by the model.</p>\n",
                  base::grouped(facts.parameters), bytes_text(facts.state_bytes), bytes_text(facts.model_state_bytes)),
      "the sizes");
  if (!facts.tables.empty()) {
    page.add("<h2>Attention mask</h2>\n<p>Row: query, column: key; one segment with full memories.</p>\n", "the masks");
    for (const models::LayerTable& of : facts.tables) {
      const std::string name = "attention mask" + in_layers(facts, of);
      page.add(page::figure(svg_of(of.table), facts.tables.size() > 1 ? name : "", name), name);
    }
    if (facts.sees_ahead) page.add("<p class=\"note\">" + besides_the_mask() + "</p>\n", "what the masks do not show");
  }
  if (!facts.cache_share.empty())
    page.add("<h2>σ(λ)</h2>\n<p>The fraction of each head's output that comes from the GRC cache.</p>\n" +
                 page::figure(svg_of(facts.cache_share), "", "sigma lambda") +
                 to_html({scalars_at(0, facts.cache_share)}),
             "sigma(lambda)");
}

void add_details(page::Document& page, const ModelSummary& facts, const std::string& options) {
  page::Table modules{{"module", "parameters", "tensors"}, {}, 3};
  page::Table state{{"field", "bytes", "shape", "dimensions", "type", "belongs to"}, {}, 6};
  for (const ModuleSummary& module : facts.modules) {
    std::string tensors;
    for (const auto& [name, shape] : module.tensors)
      tensors += (tensors.empty() ? "" : ", ") + name + " " + shape_text(shape);
    modules.rows.push_back({module.name, base::grouped(module.parameters), tensors});
  }
  for (const StateFieldSummary& field : facts.state) {
    state.rows.push_back({field.path, base::grouped(field.bytes), shape_text(field.shape), field.dims, field.dtype,
                          field.per_sequence ? "a sequence" : "the model"});
  }
  std::string html = std::string(!facts.tables.empty() ? "<h2>State between segments</h2>\n" : "<h2>State</h2>\n") +
                     (state.rows.empty() ? std::string("<p>None.</p>\n") : page::html_of(state));
  if (facts.measured_after)
    html += fmt::format("<p class=\"note\">{} Once the memories are full, a sequence carries at most {}.</p>\n",
                        facts.tables.empty()
                            ? std::string("Before the first text.")
                            : fmt::format("After {} tokens; filling the memories takes too long to run.",
                                          base::grouped(*facts.measured_after)),
                        bytes_text(facts.full_bytes));
  if (facts.open_bytes && !facts.tables.empty())
    html += fmt::format("<p class=\"note\">Inside a segment, token by token, a sequence holds at most {}.</p>\n",
                        bytes_text(*facts.open_bytes));
  page.add(html, "the state");
  page.add("<h2>Parameters</h2>\n" + page::html_of(modules), "the parameters");
  page.add("<h2>Options</h2>\n" + page::listing(options), "the options");
}

}  // namespace mnemo::inspect
