#include "runs/run_page.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <ctime>
#include <functional>
#include <optional>

#include "base/error.h"
#include "base/file_io.h"
#include "base/html.h"
#include "base/json_value.h"
#include "base/log.h"
#include "base/machine.h"
#include "base/progress.h"
#include "base/text_format.h"
#include "core/scalar.h"
#include "experiment/device.h"
#include "page/document.h"
#include "page/table.h"

namespace mnemo::runs {
namespace {

using base::html_escape;

constexpr const char* kColours[] = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                    "#b8860b", "#56b4e9", "#7b4fb5", "#8c564b"};
constexpr size_t kMaxCurvePoints = 1000;  // of one curve
constexpr size_t kMaxSamples = 100, kMaxRows = 500;

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string_view state_name(PageState state) {
  switch (state) {
    case PageState::training:
      return "training";
    case PageState::finished:
      return "finished";
    case PageState::stopped:
      return "stopped";
    case PageState::failed:
      return "failed";
  }
  return "";
}

std::string time_text(double seconds) {
  const auto time = static_cast<std::time_t>(seconds);
  std::tm local{};
  ::localtime_r(&time, &local);
  return fmt::format("{:%Y-%m-%d %H:%M:%S}", local);
}

struct Point {
  int64_t step = 0, tokens = 0;
  double seconds = 0;
  double value = 0;
};
using Curve = std::vector<Point>;

/// At most kMaxCurvePoints, with the smallest and the largest value of each of the parts that the curve is cut into.
Curve thinned(const Curve& curve) {
  if (curve.size() <= kMaxCurvePoints) return curve;
  Curve kept;
  const size_t parts = kMaxCurvePoints / 2;
  for (size_t part = 0; part < parts; ++part) {
    const auto begin = curve.begin() + static_cast<std::ptrdiff_t>(part * curve.size() / parts);
    const auto end = curve.begin() + static_cast<std::ptrdiff_t>((part + 1) * curve.size() / parts);
    const auto less = [](const Point& a, const Point& b) { return a.value < b.value; };
    auto [low, high] = std::minmax_element(begin, end, less);
    if (high < low) std::swap(low, high);
    kept.push_back(*low);
    if (high != low) kept.push_back(*high);
  }
  return kept;
}

base::Node series(std::string name, size_t colour, const Curve& curve) {
  base::Node points = base::Node::array();
  for (const Point& point : thinned(curve)) {
    points.push_back(base::Node::table({{"step", point.step},
                                        {"tokens", point.tokens},
                                        {"seconds", base::rounded(point.seconds)},
                                        {"value", base::json_number(point.value)}}));
  }
  return base::Node::table(
      {{"name", std::move(name)}, {"colour", kColours[colour % std::size(kColours)]}, {"points", std::move(points)}});
}

/// The charts of a page, and the places in which they are drawn.
class Charts {
 public:
  explicit Charts(const RunPageContent& content) : content_(content) {}

  void add(const std::string& title, const std::string& label, base::Node list, bool percent = false) {
    const std::string id = fmt::format("chart-{}", charts_.size());
    base::Node y = base::Node::table({{"key", "value"}, {"label", label}});
    if (percent) {
      y.set("scale", 100);
      y.set("unit", " %");
      y.set("digits", 1);
    }
    base::Node x = base::Node::array();
    x.push_back(base::Node::table({{"key", "step"}, {"label", "steps"}}));
    x.push_back(base::Node::table({{"key", "tokens"}, {"label", content_.counted}}));
    x.push_back(base::Node::table({{"key", "seconds"}, {"label", "seconds"}}));
    base::Node all = base::Node::array();
    all.push_back(std::move(y));
    charts_.push_back(base::Node::table({{"id", id},
                                         {"title", title},
                                         {"small", true},
                                         {"y", std::move(all)},
                                         {"x", std::move(x)},
                                         {"series", std::move(list)}}));
    html_ += fmt::format(
        "<section><h3>{}</h3>\n<div id=\"{}\"><noscript>Curves need JavaScript.</noscript></div></section>\n",
        html_escape(title), id);
  }

  const std::string& html() const { return html_; }
  const base::Node& node() const { return charts_; }

 private:
  const RunPageContent& content_;
  base::Node charts_ = base::Node::array();
  std::string html_;
};

Curve losses(const train::History& history, const std::function<double(const train::LossPoint&)>& value) {
  Curve curve;
  for (const train::LossPoint& point : history.losses)
    curve.push_back({point.step, point.tokens, point.seconds, value(point)});
  return curve;
}

/// Targets per second between two points.
Curve speeds(const train::History& history) {
  Curve curve;
  for (size_t i = 0; i < history.losses.size(); ++i) {
    const train::LossPoint& point = history.losses[i];
    const double seconds = point.seconds - (i == 0 ? 0 : history.losses[i - 1].seconds);
    const auto tokens = static_cast<double>(point.tokens - (i == 0 ? 0 : history.losses[i - 1].tokens));
    if (seconds > 0) curve.push_back({point.step, point.tokens, point.seconds, tokens / seconds});
  }
  return curve;
}

base::Node one(base::Node series) {
  base::Node list = base::Node::array();
  list.push_back(std::move(series));
  return list;
}

Charts charts_of(const RunPageContent& content) {
  Charts charts(content);
  const train::History& history = content.history;
  const tasks::MetricInfo& metric = content.metric;
  Curve held_out;
  for (const train::EvaluationPoint& point : history.evaluations)
    held_out.push_back({point.step, point.tokens, point.seconds, point.evaluation.at(metric.key())});
  base::Node training = series("training", 0, losses(history, [](const train::LossPoint& p) { return p.loss; }));
  base::Node evaluated = series("held out", 1, held_out);
  if (content.loss_in_metric) {
    base::Node both = one(std::move(training));
    if (!held_out.empty()) both.push_back(std::move(evaluated));
    charts.add(page::capitalised(metric.name), metric.name, std::move(both), metric.percent);
  } else {
    charts.add("Training loss", metric.loss_name, one(std::move(training)));
    if (!held_out.empty())
      charts.add("Held-out " + metric.name, metric.name, one(std::move(evaluated)), metric.percent);
  }
  charts.add("Learning rate", "learning rate",
             one(series("learning rate", 2, losses(history, [](const train::LossPoint& p) { return p.lr; }))));
  charts.add(
      "Gradient norm", "gradient norm before clipping",
      one(series("gradient norm", 3, losses(history, [](const train::LossPoint& p) { return p.gradient_norm; }))));
  charts.add("Speed", content.counted + " per second", one(series("speed", 4, speeds(history))));
  const size_t gauges = history.losses.empty() ? 0 : history.losses.front().scalars.size();
  for (size_t g = 0; g < gauges; ++g) {
    const core::Scalar& first = history.losses.front().scalars[g];
    base::Node heads = base::Node::array();
    for (size_t head = 0; head < first.values.size(); ++head) {
      Curve curve;
      for (const train::LossPoint& point : history.losses) {
        if (g < point.scalars.size() && head < point.scalars[g].values.size())
          curve.push_back({point.step, point.tokens, point.seconds, point.scalars[g].values[head]});
      }
      heads.push_back(series(first.values.size() == 1 ? first.name : fmt::format("head {}", head), head, curve));
    }
    charts.add(first.name, first.name, std::move(heads));
  }
  return charts;
}

std::string metric_text(const tasks::MetricInfo& metric, double value) {
  return metric.percent ? fmt::format("{:.1f} %", 100 * value) : fmt::format("{:.4f}", value);
}

int64_t steps_done(const RunPageContent& content) {
  int64_t step = content.first_step;
  if (!content.history.losses.empty()) step = std::max(step, content.history.losses.back().step);
  if (!content.history.evaluations.empty()) step = std::max(step, content.history.evaluations.back().step);
  return step;
}

const train::EvaluationPoint* best_of(const RunPageContent& content) {
  const train::EvaluationPoint* best = nullptr;
  const auto value = [&](const train::EvaluationPoint& point) {
    const double found = point.evaluation.at(content.metric.key());
    return content.metric.higher_is_better ? -found : found;
  };
  for (const train::EvaluationPoint& point : content.history.evaluations) {
    if (std::isfinite(value(point)) && (best == nullptr || value(point) < value(*best))) best = &point;
  }
  return best;
}

std::string status(const RunPageContent& content) {
  const int64_t done = steps_done(content);
  std::string note = content.note;
  if (content.state == PageState::training) note = "As of " + time_text(content.written) + ".";
  std::string html = fmt::format(
      "<div class=\"status\"><span class=\"state {0}\" id=\"state\" role=\"status\">{0}</span><span>step {1} of "
      "{2}</span>"
      "<span id=\"state-note\">{3}</span></div>\n"
      "<progress max=\"{4}\" value=\"{5}\" aria-label=\"steps done\"></progress>\n",
      state_name(content.state), base::grouped(done), base::grouped(content.steps), html_escape(note), content.steps,
      done);
  if (content.state == PageState::stopped || content.state == PageState::failed)
    html += "<p>To resume from the last checkpoint:</p>\n" + page::listing(content.resume);
  return html;
}

std::string values(const RunPageContent& content) {
  std::string html = "<dl class=\"values\">\n";
  const auto add = [&](std::string_view name, const std::string& value, const std::string& more = "") {
    html += fmt::format("<div><dt>{}</dt><dd>{}{}</dd></div>\n", html_escape(name), html_escape(value),
                        more.empty() ? "" : fmt::format(" <small>{}</small>", html_escape(more)));
  };
  const tasks::MetricInfo& metric = content.metric;
  const train::History& history = content.history;
  if (!history.evaluations.empty()) {
    const train::EvaluationPoint& last = history.evaluations.back();
    add("held-out " + metric.short_name, metric_text(metric, last.evaluation.at(metric.key())),
        fmt::format("step {}", last.step));
    if (const train::EvaluationPoint* best = best_of(content); best != nullptr && best->step != last.step)
      add("best", metric_text(metric, best->evaluation.at(metric.key())), fmt::format("step {}", best->step));
  }
  if (!history.losses.empty()) {
    const train::LossPoint& last = history.losses.back();
    add(content.loss_in_metric ? "training " + metric.short_name : "training loss",
        content.loss_in_metric ? metric_text(metric, last.loss) : fmt::format("{:.4f}", last.loss));
    add("learning rate", fmt::format("{:.3g}", last.lr));
    add("gradient norm", fmt::format("{:.3g}", last.gradient_norm));
    const Curve speed = speeds(history);
    if (!speed.empty()) add(content.counted + " per second", base::grouped(std::llround(speed.back().value)));
    const int64_t done = steps_done(content);
    if (content.state == PageState::training && done > content.first_step && done < content.steps) {
      const double per_step = (content.written - content.begun) / static_cast<double>(done - content.first_step);
      add("time left", base::duration_text(per_step * static_cast<double>(content.steps - done)));
    }
    add("training time", base::duration_text(last.seconds));
  }
  const auto add_memory = [&](const std::string& of, int64_t bytes) {
    if (bytes > 0) add("peak memory" + of, fmt::format("{:.2f} GB", static_cast<double>(bytes) / 1e9));
  };
  add_memory(content.peak_device_memory > 0 ? " of the processor" : "", content.peak_memory);
  add_memory(" of " + content.device, content.peak_device_memory);
  return html + "</dl>\n";
}

std::string samples_html(const RunPageContent& content) {
  if (content.samples.empty()) return {};
  std::string html = "<h2>Samples</h2>\n<div class=\"cards\">\n";
  const size_t count = std::min(content.samples.size(), kMaxSamples);
  // The newest, and an even choice of the others.
  for (size_t i = count; i-- > 0;) {
    const size_t at = count < 2 ? content.samples.size() - 1 : i * (content.samples.size() - 1) / (count - 1);
    const RunSample& sample = content.samples[at];
    if (i + 5 == count)
      html += fmt::format("</div>\n<details><summary>{} earlier samples</summary>\n<div class=\"cards\">\n", i + 1);
    html += fmt::format(
        "<section class=\"card\"><h4>step {}</h4><pre data-copy><span class=\"prompt\">{}</span>{}</pre></section>\n",
        base::grouped(sample.step), html_escape(sample.prompt), html_escape(sample.text));
  }
  return html + (count > 4 ? "</div></details>\n" : "</div>\n");
}

std::string picture_html(const RunPageContent& content) {
  if (content.picture.empty()) return {};
  const std::string when = content.picture_step > 0 ? fmt::format(", step {}", base::grouped(content.picture_step))
                                                    : "";
  return fmt::format("<h2>Held-out data</h2>\n<p>What the model makes of it{}.</p>\n<div>{}</div>\n", when,
                     content.picture);
}

std::string evaluations_html(const RunPageContent& content) {
  const auto& points = content.history.evaluations;
  if (points.empty()) return {};
  page::Table table{{"step", content.counted, "seconds"}, {}, 0};
  for (const auto& [name, value] : points.front().evaluation.metrics) table.header.push_back(name);
  const size_t first = points.size() > kMaxRows ? points.size() - kMaxRows : 0;
  for (size_t i = first; i < points.size(); ++i) {
    const train::EvaluationPoint& point = points[i];
    std::vector<std::string> row = {base::grouped(point.step), base::grouped(point.tokens),
                                    fmt::format("{:.1f}", point.seconds)};
    for (const auto& [name, value] : points.front().evaluation.metrics)  // a resumed run may have another order
      row.push_back(fmt::format("{:.5g}", point.evaluation.at(name)));
    table.rows.push_back(std::move(row));
  }
  return fmt::format("<details><summary>{}{}</summary>\n{}</details>\n", first > 0 ? "the last " : "",
                     base::counted(static_cast<int64_t>(points.size() - first), "evaluation"), page::html_of(table));
}

std::string made_html(const RunPageContent& content) {
  const auto fact = [](std::string_view name, std::string_view value) {
    return fmt::format("<dt>{}</dt><dd>{}</dd>\n", html_escape(name), html_escape(value));
  };
  const auto word = [&](const char* key) -> std::string {
    const base::Node* value = content.machine.find(key);
    return value == nullptr ? "unknown" : value->is_string() ? value->as_string() : std::to_string(value->as_int());
  };
  std::string html = "<h2>How this was made</h2>\n" + page::listing(content.command) + "<dl class=\"facts\">\n";
  html += fact("folder", content.folder);
  html += fact("model", base::counted(content.parameters, "parameter"));
  html += fact("seed", std::to_string(content.seed));
  html += fact("device", content.threads == 0
                             ? content.device
                             : fmt::format("{}, {}", content.device, base::counted(content.threads, "thread")));
  html += fact("page written", time_text(content.written));
  html += fact("processor", fmt::format("{}, {} cores ({})", word("cpu"), word("cores"), word("features")));
  html += fact("system", word("system"));
  html += fact("versions", fmt::format("Mnemo {}, LibTorch {}", word("mnemo"), word("libtorch")));
  return html + "</dl>\n<details><summary>the recipe</summary>" + page::listing(content.recipe) + "</details>\n";
}

}  // namespace

std::string run_page(const RunPageContent& content) {
  page::Document page(content.title);
  if (!content.about.empty())
    page.add(fmt::format("<p class=\"lead\">{}</p>\n", html_escape(content.about)), "what it is for");
  page.add(status(content), "the state");
  page.add(values(content), "the last values");
  const Charts charts = charts_of(content);
  if (!content.history.losses.empty())
    page.add("<h2>Curves</h2>\n<div class=\"charts\">\n" + charts.html() + "</div>\n", "the curves");
  page.add(evaluations_html(content), "the evaluations");
  page.add(picture_html(content), "the picture");
  page.add(samples_html(content), "the samples");
  page.add(made_html(content), "how this was made");
  if (page.add_data("curves", charts.node(), "the curves")) page.use("charts.js");
  page.add_data("run",
                base::Node::table({{"state", state_name(content.state)},
                                   {"written", content.written},
                                   {"beat", content.beat},
                                   {"resume", content.resume}}),
                "the state");
  page.use("run.js");
  return page.html();
}

RunPageWriter::RunPageWriter(RunPageContent content, const std::string& folder, const base::FolderLock& lock)
    : path_(base::join_path(folder, kFile)), lock_(lock), content_(std::move(content)) {
  content_.begun = seconds_now();
  content_.machine = base::to_node(base::this_machine());
  write(content_);
  // Signals are the training's.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this, to = base::console()] {
    const base::ConsoleScope scope(to);
    write_pages();
  });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

RunPageWriter::~RunPageWriter() {
  if (!ended_) end(PageState::failed, "The training has ended with an error.");
}

void RunPageWriter::add(const train::LossPoint& point) {
  const std::scoped_lock lock(mutex_);
  content_.history.losses.push_back(point);
  changed_ = true;
}

void RunPageWriter::add(const train::EvaluationPoint& point) {
  const std::scoped_lock lock(mutex_);
  content_.history.add(point);
  changed_ = true;
}

void RunPageWriter::add(const RunSample& sample) {
  const std::scoped_lock lock(mutex_);
  content_.samples.push_back(sample);
  changed_ = true;
}

void RunPageWriter::set_picture(std::string picture, int64_t step) {
  const std::scoped_lock lock(mutex_);
  content_.picture = std::move(picture);
  content_.picture_step = step;
  changed_ = true;
}

void RunPageWriter::end(PageState state, const std::string& note) {
  {
    const std::scoped_lock lock(mutex_);
    if (ended_) return;
    ended_ = true;
    content_.state = state;
    content_.note = note;
  }
  wake_.notify_all();
  thread_.join();
  write(content_);
}

void RunPageWriter::write_pages() {
  using Seconds = std::chrono::duration<double>;
  constexpr double kRest = 3;  // at least, between two pages
  std::unique_lock lock(mutex_);
  double written = seconds_now();
  while (!ended_) {
    wake_.wait_for(lock, Seconds(1));
    const double age = seconds_now() - written;
    if (ended_ || !(changed_ ? age >= kRest : age >= content_.beat)) continue;
    changed_ = false;
    const RunPageContent shown = content_;
    lock.unlock();
    write(shown);
    lock.lock();
    written = seconds_now();
  }
}

void RunPageWriter::write(const RunPageContent& content) {
  if (broken_) return;
  try {
    RunPageContent shown = content;
    shown.written = seconds_now();
    shown.peak_memory = base::peak_memory();
    shown.peak_device_memory = experiment::peak_device_memory(at::Device(shown.device));
    lock_.require_same_folder();
    base::write_file_atomic(path_, run_page(shown));
  } catch (const std::exception& error) {
    broken_ = true;
    base::log_warning("{}; the run's page is not written any more", error.what());
  }
}

}  // namespace mnemo::runs
