#include <algorithm>
#include <cmath>
#include <mutex>
#include <optional>
#include <span>

#include "base/error.h"
#include "binding.h"
#include "experiment/experiment.h"
#include "experiment/inspection.h"
#include "experiment/measure.h"
#include "experiment/text_classifier.h"
#include "experiment/translation_search.h"
#include "infer/text_session.h"
#include "infer/translator.h"
#include "model.h"
#include "text/tokenizer.h"

namespace mnemo::python {
namespace {

using namespace py::literals;
using Strings = std::vector<std::string>;

GenerateOptions generate_options(int64_t max_tokens, double temperature, int64_t top_k, double top_p, double min_p,
                                 double repetition_penalty, double frequency_penalty, double presence_penalty,
                                 const Strings& stop, bool past_end, bool sample_unknown, int64_t seed,
                                 const std::string& precision, const std::string& kv_precision) {
  GenerateOptions options{.max_tokens = max_tokens,
                          .temperature = temperature,
                          .top_k = top_k,
                          .top_p = top_p,
                          .min_p = min_p,
                          .repetition_penalty = repetition_penalty,
                          .frequency_penalty = frequency_penalty,
                          .presence_penalty = presence_penalty,
                          .stop = stop,
                          .past_end = past_end,
                          .sample_unknown = sample_unknown,
                          .seed = seed,
                          .precision = precision,
                          .kv_precision = kv_precision,
                          .should_stop = asked_by_signals};
  options.check_length();
  base::check_options(options);
  return options;
}

/// A saved text with its own sampling, but for the options that are `given`.
infer::TextSession resume_text(const Bundle& bundle, const std::string& path, const GenerateOptions& options,
                               const Strings& given) {
  infer::TextSession text = bundle.resume_text(path, options);
  base::Node sampling = base::write_options(text.session().sampling());
  const base::Node asked = base::write_options(options);
  for (const std::string& key : given)
    if (const base::Node* value = asked.find(key)) sampling.set(key, *value);
  GenerateOptions changed = base::read_options<GenerateOptions>(sampling);
  changed.should_stop = options.should_stop;
  text.session().set_sampling(changed);
  return text;
}

// ---- An open text

/// infer::TextSession for Python: calls from several threads wait for each other.
class Text {
 public:
  explicit Text(infer::TextSession session) : session_(std::move(session)) {}

  /// f(session), alone and without the GIL.
  template <class F>
  auto with(F&& f) {
    return without_gil([&] {
      const std::lock_guard lock(mutex_);
      return f(session_);
    });
  }
  infer::TextSession copy() {
    return with([](const infer::TextSession& session) { return session; });
  }

 private:
  std::mutex mutex_;
  infer::TextSession session_;
};

struct Mark {
  infer::TextSession session;
};

py::list token_list(const std::vector<infer::ScoredToken>& tokens) {
  py::list list;
  for (const infer::ScoredToken& token : tokens)
    list.append(py::make_tuple(token.id, text_of(token.text), token.log_probability));
  return list;
}

void rewind(Text& text, const Mark& mark) {
  text.with([&](infer::TextSession& session) {
    base::require(session.session().shared_model() == mark.session.session().shared_model(),
                  "rewind: expected a mark of a text of the same model");
    session = mark.session;
  });
}

void add_text(py::module_& m) {
  py::class_<Mark>(m, "Mark");
  py::class_<Text>(m, "Text")
      .def("feed", [](Text& text, const std::string& more) { text.with([&](infer::TextSession& s) { s.feed(more); }); })
      .def("score",
           [](Text& text, const std::string& more) {
             return token_list(text.with([&](infer::TextSession& s) { return s.score(more); }));
           })
      .def("begin", [](Text& text,
                       const GenerateOptions& options) { text.with([&](infer::TextSession& s) { s.begin(options); }); })
      .def("next_piece", [](Text& text) { return text.with([](infer::TextSession& s) { return s.next_piece(); }); })
      .def("finish", [](Text& text) { return text.with([](infer::TextSession& s) { return s.finish(); }); })
      .def("finish_reason",
           [](Text& text) {
             return std::string(text.with([](infer::TextSession& s) { return infer::name_of(s.finish_reason()); }));
           })
      .def("fork",
           [](Text& text, std::optional<int64_t> seed) {
             return std::make_unique<Text>(
                 text.with([&](const infer::TextSession& s) { return seed ? s.fork(*seed) : infer::TextSession(s); }));
           })
      .def("mark", [](Text& text) { return Mark{text.copy()}; })
      .def("rewind", rewind)
      .def("save", [](Text& text, const std::string& path) { text.with([&](infer::TextSession& s) { s.save(path); }); })
      .def("save_bytes",
           [](Text& text) { return py::bytes(text.with([](const infer::TextSession& s) { return s.save_bytes(); })); })
      .def("load",
           [](Text& text, const std::string& path) {
             return std::make_unique<Text>(text.with([&](const infer::TextSession& s) { return s.load(path); }));
           })
      .def("load_bytes",
           [](Text& text, const std::string& bytes) {
             return std::make_unique<Text>(text.with([&](const infer::TextSession& s) { return s.load_bytes(bytes); }));
           })
      .def("num_tokens",
           [](Text& text) { return text.with([](infer::TextSession& s) { return s.session().position(); }); })
      .def("num_bytes",
           [](Text& text) { return text.with([](infer::TextSession& s) { return s.session().num_bytes(); }); });
}

// ---- Calls of a model

py::dict evaluate(const ModelHandle& handle, const experiment::MeasureOptions& options) {
  const experiment::Measured measured = without_gil([&] { return experiment::measure(handle.parts(), options); });
  py::dict metrics, notes;
  for (const auto& [name, value] : measured.metrics) metrics[text_of(name)] = value;
  for (const auto& [name, value] : measured.notes) notes[text_of(name)] = object_of(value);
  return py::dict("data"_a = text_of(measured.what), "predictions"_a = measured.predictions,
                  "unknown"_a = measured.unknown, "metrics"_a = metrics, "notes"_a = notes);
}

/// Rows (input, task, label, probability, error).
py::list classify_images(const ModelHandle& handle, const Strings& images, const ClassifyOptions& options) {
  const std::vector<ImageAnswer> answers = without_gil([&] { return handle.bundle.classify(images, options); });
  py::list rows;
  for (const ImageAnswer& answer : answers) {
    if (!answer.error.empty())
      rows.append(py::make_tuple(text_of(answer.image), "", "", std::nan(""), text_of(answer.error)));
    for (const TaskAnswer& task : answer.tasks) {
      for (const Label& label : task.labels)
        rows.append(
            py::make_tuple(text_of(answer.image), text_of(task.task), text_of(label.name), label.probability, ""));
    }
  }
  return rows;
}

using TextOrPair = std::pair<std::string, std::optional<std::string>>;

py::list classify_texts(const ModelHandle& handle, const std::vector<TextOrPair>& texts, int64_t top, int64_t batch) {
  base::require(top >= 1, "classify: top: expected at least 1, found {}", top);
  base::require(batch >= 1, "classify: batch: expected at least 1, found {}", batch);
  std::vector<std::vector<infer::ClassShare>> answers;
  without_gil([&] {
    const experiment::TextClassifier classifier(handle.parts(), experiment::own_recipe(handle.parts()), "classify");
    experiment::TextClassifier::ReadCount count;
    for (size_t from = 0; from < texts.size(); from += static_cast<size_t>(batch)) {
      data::LabelledTextList part;
      for (size_t i = from; i < std::min(texts.size(), from + static_cast<size_t>(batch)); ++i)
        part.push_back({.file = std::make_shared<const std::string>(fmt::format("text {}", i)),
                        .first = texts[i].first,
                        .second = texts[i].second,
                        .label = {}});
      for (auto& answer : classifier(std::move(part), top, count, asked_by_signals))
        answers.push_back(std::move(answer));
    }
    classifier.report_left_out(count, "texts");
  });
  py::list rows;
  for (size_t i = 0; i < answers.size(); ++i) {
    for (const infer::ClassShare& share : answers[i])
      rows.append(py::make_tuple(text_of(texts[i].first), "base", text_of(share.label), share.probability, ""));
  }
  return rows;
}

struct TranslateArguments {
  std::optional<int64_t> beam, max_tokens;
  std::optional<double> length_penalty;
  std::optional<std::string> precision;
  infer::TranslateOptions options;
};

/// The search of the model's run, or the one it was published with, with the changes of the arguments.
void choose_search(const ModelHandle& handle, const infer::Translator& translator, const TranslateArguments& wanted,
                   infer::TranslateOptions& options) {
  base::require(wanted.beam.value_or(1) >= 1, "translate: beam: expected at least 1, found {}",
                wanted.beam.value_or(0));
  const auto own = experiment::own_search(handle.parts());
  int64_t beams = 0;
  if (!own && translator.settings()) {
    search::GenerationOptions search = *translator.settings();
    search.num_beams = wanted.beam.value_or(search.num_beams);
    search.length_penalty = wanted.length_penalty.value_or(search.length_penalty);
    search.max_new_tokens = wanted.max_tokens.value_or(search.max_new_tokens);
    base::check_options(search);
    beams = search.num_beams;
    options.generation = search;
  } else {
    options.search = own.value_or(search::BeamSearchOptions());
    options.search.beam_size = wanted.beam.value_or(options.search.beam_size);
    options.search.length_penalty = wanted.length_penalty.value_or(options.search.length_penalty);
    if (wanted.max_tokens) {  // the end is one of them
      base::require(*wanted.max_tokens >= 2,
                    "translate: max_tokens: expected at least 2, a token and the end, found {}", *wanted.max_tokens);
      options.search.max_len_a = 0;
      options.search.max_len_b = *wanted.max_tokens - 1;
      options.search.min_len = std::min(options.search.min_len, options.search.max_len_b);
    }
    base::check_options(options.search);
    beams = options.search.beam_size;
  }
  base::require(options.nbest >= 1 && options.nbest <= beams, "translate: nbest: expected 1 to the beam's {}, found {}",
                beams, options.nbest);
  base::require(options.batch_size >= 1, "translate: batch: expected at least 1, found {}", options.batch_size);
}

/// Rows (line, source, text, score, log_probability, tokens, alignment).
py::list translate(const ModelHandle& handle, const Strings& lines, const TranslateArguments& wanted) {
  const auto all = without_gil([&] {
    std::optional<ops::Precision> precision;
    if (wanted.precision) precision = ops::precision_of(*wanted.precision, "translate: precision");
    const infer::Translator translator(handle.parts(), precision);
    infer::TranslateOptions options = wanted.options;
    options.should_stop = asked_by_signals;
    choose_search(handle, translator, wanted, options);
    translator.require_fitting(options);
    return translator(lines, options, "lines", 0);
  });
  py::list rows;
  for (size_t i = 0; i < all.size(); ++i) {
    for (const infer::TranslatedText& found : all[i])
      rows.append(
          py::make_tuple(i, lines[i], text_of(found.text), found.score, found.sum, found.tokens, found.alignment));
  }
  return rows;
}

// ---- Tokenizers

std::shared_ptr<const text::Tokenizer> tokenizer_of(const ModelHandle& handle) {
  handle.parts().words("tokenizer");
  return handle.parts().tokenizer;
}

/// Number of characters that begin in the bytes.
int64_t characters(std::string_view bytes) {
  return std::ranges::count_if(bytes, [](char byte) { return (static_cast<unsigned char>(byte) & 0xC0) != 0x80; });
}

/// First and last character + 1 of each token in the text. Throws InputError where the tokens do not spell the text.
std::vector<std::pair<int64_t, int64_t>> offsets(const text::Tokenizer& tokenizer, const std::string& text) {
  std::vector<std::pair<int64_t, int64_t>> places;
  std::string spelled;
  size_t skipped = 0;  // bytes of the text that no token spells: blanks at its start
  size_t counted = 0;  // bytes before the last token
  int64_t first = 0;   // characters in these
  for (const int32_t id : tokenizer.encode(text)) {
    const size_t before = spelled.size();
    tokenizer.append(spelled, id);
    if (before == 0) {
      while (skipped < text.size() && text[skipped] == ' ' && !spelled.starts_with(' ')) ++skipped;
    }
    const size_t begin = skipped + before, length = spelled.size() - before;
    base::require(begin + length <= text.size() && text.compare(begin, length, spelled, before, length) == 0,
                  "offsets: the tokens of a tokenizer of {} do not spell the text; token {} is \"{}\"",
                  tokenizer.type(), places.size(), spelled.substr(before));
    first += characters(std::string_view(text).substr(counted, begin - counted));
    counted = begin;
    places.emplace_back(first, first + characters(std::string_view(text).substr(begin, length)));
  }
  return places;
}

void add_tokenizer(py::module_& m) {
  using text::Tokenizer;
  py::class_<Tokenizer, std::shared_ptr<Tokenizer>>(m, "Tokenizer")
      .def("encode", [](const Tokenizer& tokenizer,
                        const std::string& text) { return without_gil([&] { return tokenizer.encode(text); }); })
      .def("decode",
           [](const Tokenizer& tokenizer, const std::vector<int64_t>& ids) {
             return text_of(without_gil([&] { return tokenizer.decode(std::span<const int64_t>(ids)); }));
           })
      .def("offsets", [](const Tokenizer& tokenizer,
                         const std::string& text) { return without_gil([&] { return offsets(tokenizer, text); }); })
      .def("find", [](const Tokenizer& tokenizer, const std::string& token) { return tokenizer.find(token); })
      .def_property_readonly("type", &Tokenizer::type)
      .def_property_readonly("size", &Tokenizer::size)
      .def_property_readonly("unknown_id", &Tokenizer::unknown_id);
}

// ---- Inspection

/// Attention of the first sequence, by layer: [H,R,C] of each kind of map.
py::dict maps_of(const Inspection& inspection) {
  py::dict layers;
  const experiment::Inspection& parts = inspection.parts();
  if (parts.attention) {
    for (const inspect::HeadMap& map : parts.attention->shown().maps) {
      const py::int_ layer(map.layer);
      if (!layers.contains(layer)) layers[layer] = py::dict();
      const py::dict of_layer = layers[layer];
      const py::str name(map.name);
      if (!of_layer.contains(name)) of_layer[name] = py::list();
      of_layer[name].cast<py::list>().append(map.weights);
    }
  }
  return layers;
}

Inspection inspect_any(const std::function<Inspection(const InspectOptions&)>& look, const InspectOptions& options) {
  return without_gil([&] { return look(options); });
}

void add_inspection(py::module_& m) {
  py::class_<Inspection>(m, "Inspection")
      .def_property_readonly("parameters", &Inspection::parameters)
      .def_property_readonly("state_bytes", &Inspection::state_bytes)
      .def("text", [](const Inspection& i) { return text_of(i.text()); })
      .def("to_dict", [](const Inspection& i) { return object_of(i.parts().to_node()); })
      .def("html", [](const Inspection& i,
                      const std::string& title) { return text_of(without_gil([&] { return i.html(title); })); })
      .def("svg", [](const Inspection& i) { return text_of(i.svg()); })
      .def("words",
           [](const Inspection& i) { return i.parts().attention ? i.parts().attention->shown().words : Strings(); })
      .def("maps", maps_of);
  const auto options = [](const Strings& set, const std::string& variant, const std::string& text,
                          const std::string& image, const std::string& layers, const std::string& heads, bool cost,
                          const std::string& checkpoint) {
    return InspectOptions{set, variant, text, image, layers, heads, cost, checkpoint};
  };
  py::class_<InspectOptions>(m, "InspectOptions")
      .def(py::init(options), py::kw_only(), "set"_a = Strings(), "variant"_a = "", "text"_a = "", "image"_a = "",
           "layers"_a = "", "heads"_a = "", "cost"_a = false, "checkpoint"_a = "");
  m.def("inspect_source", [](const std::string& source, const InspectOptions& wanted) {
    return inspect_any([&](const InspectOptions& o) { return inspect_model(source, o); }, wanted);
  });
}

experiment::MeasureOptions measure_options(std::optional<std::string> data, std::optional<std::string> part,
                                           std::optional<std::string> documents, std::optional<std::string> separator,
                                           std::optional<std::string> reset, std::optional<std::string> precision,
                                           std::optional<std::string> kv_precision, std::optional<std::string> task,
                                           std::optional<int64_t> segment_size, std::optional<int64_t> context,
                                           std::optional<std::string> memory, std::optional<int64_t> translated,
                                           bool strict, int64_t batch) {
  return {.data = std::move(data),
          .part = std::move(part),
          .documents = std::move(documents),
          .separator = std::move(separator),
          .reset = std::move(reset),
          .precision = std::move(precision),
          .kv_precision = std::move(kv_precision),
          .task = std::move(task),
          .segment_size = segment_size,
          .context = context,
          .memory = std::move(memory),
          .translated = translated,
          .strict = strict,
          .batch = batch,
          .should_stop = asked_by_signals};
}

void add_options(py::module_& m) {
  py::class_<GenerateOptions>(m, "GenerateOptions")
      .def(py::init(&generate_options), py::kw_only(), "max_tokens"_a = 256, "temperature"_a = 0.8, "top_k"_a = 0,
           "top_p"_a = 1.0, "min_p"_a = 0.0, "repetition_penalty"_a = 1.0, "frequency_penalty"_a = 0.0,
           "presence_penalty"_a = 0.0, "stop"_a = Strings(), "past_end"_a = false, "sample_unknown"_a = false,
           "seed"_a = 0, "precision"_a = "", "kv_precision"_a = "");
  py::class_<experiment::MeasureOptions>(m, "MeasureOptions")
      .def(py::init(&measure_options), py::kw_only(), "data"_a = py::none(), "part"_a = py::none(),
           "documents"_a = py::none(), "separator"_a = py::none(), "reset"_a = py::none(), "precision"_a = py::none(),
           "kv_precision"_a = py::none(), "task"_a = py::none(), "segment_size"_a = py::none(),
           "context"_a = py::none(), "memory"_a = py::none(), "translated"_a = py::none(), "strict"_a = false,
           "batch"_a = 1);
}

}  // namespace

void add_bundle(py::module_& m) {
  add_options(m);
  add_text(m);
  add_tokenizer(m);
  add_inspection(m);
  m.def("load", [](const std::string& folder, const std::string& checkpoint, const std::string& device) {
    return ModelHandle{without_gil([&] { return load(folder, {.device = device, .checkpoint = checkpoint}); })};
  });
  m.def("save_model", [](const std::string& folder, const ModelHandle& handle) {
    without_gil([&] { save_model(folder, handle.bundle); });
  });
  py::class_<ModelHandle>(m, "Model")
      .def_property_readonly("folder", [](const ModelHandle& h) { return h.bundle.folder(); })
      .def_property_readonly("format", [](const ModelHandle& h) { return h.bundle.format(); })
      .def_property_readonly("is_images", [](const ModelHandle& h) { return h.bundle.is_images(); })
      .def_property_readonly(
          "tokenizer", [](const ModelHandle& h) { return std::const_pointer_cast<text::Tokenizer>(tokenizer_of(h)); })
      .def("labels", [](const ModelHandle& h, const std::string& task) { return h.bundle.labels(task); })
      .def("text",
           [](const ModelHandle& h, const GenerateOptions& options) {
             return std::make_unique<Text>(without_gil([&] { return h.bundle.text(options); }));
           })
      .def("resume_text",
           [](const ModelHandle& h, const std::string& path, const GenerateOptions& options, const Strings& given) {
             return std::make_unique<Text>(without_gil([&] { return resume_text(h.bundle, path, options, given); }));
           })
      .def("generate",
           [](const ModelHandle& h, const std::string& prompt, const GenerateOptions& options) {
             return without_gil([&] { return h.bundle.generate(prompt, options); });
           })
      .def("evaluate", evaluate)
      .def("classify_images",
           [](const ModelHandle& h, const Strings& images, const Strings& tasks, int64_t top, int64_t batch,
              bool skip_broken) {
             return classify_images(h, images, {tasks, top, batch, skip_broken, {.should_stop = asked_by_signals}});
           })
      .def("classify_texts", classify_texts)
      .def(
          "translate",
          [](const ModelHandle& h, const Strings& lines, std::optional<int64_t> beam, int64_t nbest,
             std::optional<double> length_penalty, std::optional<int64_t> max_tokens, int64_t batch,
             std::optional<std::string> precision, bool align, bool replace_unknown, const std::string& unknown) {
            TranslateArguments wanted{beam, max_tokens, length_penalty, std::move(precision), {}};
            wanted.options.nbest = nbest;
            wanted.options.batch_size = batch;
            wanted.options.align = align;
            wanted.options.replace_unknown = replace_unknown;
            wanted.options.unknown = unknown;
            return translate(h, lines, wanted);
          },
          "lines"_a, py::kw_only(), "beam"_a = py::none(), "nbest"_a = 1, "length_penalty"_a = py::none(),
          "max_tokens"_a = py::none(), "batch"_a = 32, "precision"_a = py::none(), "align"_a = false,
          "replace_unknown"_a = false, "unknown"_a = "<unk>")
      .def("inspect", [](const ModelHandle& h, const InspectOptions& options) {
        return inspect_any([&](const InspectOptions& o) { return h.bundle.inspect(o); }, options);
      });
}

}  // namespace mnemo::python
