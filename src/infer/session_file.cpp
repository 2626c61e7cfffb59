#include <c10/core/InferenceMode.h>
#include <torch/types.h>

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <set>
#include <sstream>

#include "base/error.h"
#include "base/printable.h"
#include "core/model.h"
#include "infer/session.h"
#include "weights/safetensors.h"

namespace mnemo::infer {
namespace {

constexpr const char* kFormat = "mnemo-session/1";
constexpr const char* kStatePrefix = "state.";
constexpr const char* kLogits = "logits";
constexpr const char* kRecent = "recent";
// Files of earlier versions do not contain these.
constexpr const char* kSampleUnknown = "sample_unknown";
constexpr const char* kMinP = "min_p";
constexpr const char* kRepetition = "repetition_penalty";
constexpr const char* kFrequency = "frequency_penalty";
constexpr const char* kPresence = "presence_penalty";
constexpr const char* kResets = "reset_segments";
constexpr const char* kKeys = "kv_precision";  // only of int8
constexpr const char* kRead = "counts.read";
constexpr const char* kWritten = "counts.written";

/// The metadata of a session file; errors name the file.
class Header {
 public:
  Header(const weights::Metadata& metadata, const std::string& path) : metadata_(metadata), path_(path) {}

  const std::string& text(const std::string& key) const {
    const auto found = metadata_.find(key);
    base::require(found != metadata_.end(), "{}: expected the metadata '{}', found none; is this a session file?",
                  path_, key);
    return found->second;
  }

  bool has(const std::string& key) const { return metadata_.contains(key); }
  const std::string& path() const { return path_; }

  template <class T>
  T number(const std::string& key) const {
    return number<T>(key, text(key));
  }

  /// `absent` where the file has no such key.
  template <class T>
  T number_or(const std::string& key, T absent) const {
    return has(key) ? number<T>(key) : absent;
  }

  template <class T>
  T number(const std::string& key, const std::string& value) const {
    T number{};
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    base::require(error == std::errc() && end == value.data() + value.size(),
                  "{}: expected a number as '{}', found '{}'", path_, key, base::printable(value, 40));
    return number;
  }

 private:
  const weights::Metadata& metadata_;
  const std::string& path_;
};

/// The last tokens; files of earlier versions do not contain them.
decltype(Progress::recent) read_recent(const Header& header, const Progress& progress, int64_t vocab_size) {
  Progress read;
  if (progress.pending >= 0) read.append(progress.pending);
  if (!header.has(kRecent)) return read.recent;
  read = {};
  std::istringstream words(header.text(kRecent));
  for (std::string word; words >> word;) {
    const auto token = header.number<int64_t>(kRecent, word);
    base::require(token >= 0 && token < vocab_size, "{}: expected '{}' from 0 to {}, found {}", header.path(), kRecent,
                  vocab_size - 1, token);
    read.append(token);
  }
  base::require(read.position <= std::min<int64_t>(progress.position, static_cast<int64_t>(read.recent.size())) &&
                    (progress.pending < 0 || read.recent.back() == progress.pending),
                "{}: '{}' [{}] contradicts 'position' {} and 'pending' {}", header.path(), kRecent,
                base::printable(header.text(kRecent), 80), progress.position, progress.pending);
  return read.recent;
}

/// How often tokens have occurred; nothing of a session that has not counted them.
TokenCounts read_counts(const weights::TensorFile& file, int64_t vocab_size, const std::string& path) {
  TokenCounts counts;
  if (file.find(kRead) == nullptr && file.find(kWritten) == nullptr) return counts;
  const auto read = [&](const char* name) {
    const at::Tensor& found = file.at(name, path);
    base::require(found.scalar_type() == at::kInt && found.sizes() == at::IntArrayRef({vocab_size}) &&
                      found.min().item<int32_t>() >= 0,
                  "{}: expected '{}' [{}] of type Int, none negative, found {} of {}", path, name, vocab_size,
                  c10::str(found.sizes()), c10::toString(found.scalar_type()));
    return found.contiguous();
  };
  const at::Tensor all_read = read(kRead), all_written = read(kWritten);
  for (int64_t token = 0; token < vocab_size; ++token) {
    const int32_t reads = all_read.const_data_ptr<int32_t>()[token],
                  writes = all_written.const_data_ptr<int32_t>()[token];
    if (reads > 0 || writes > 0) counts.add(token, reads, writes);
  }
  return counts;
}

/// Counts for each token of the vocabulary, of what was read and of what was written.
std::pair<at::Tensor, at::Tensor> tensors_of(const TokenCounts& counts, int64_t vocab_size) {
  at::Tensor read = at::zeros({vocab_size}, at::kInt), written = at::zeros({vocab_size}, at::kInt);
  for (const TokenCounts::Entry& entry : counts.entries()) {
    read.mutable_data_ptr<int32_t>()[entry.token] = entry.read;
    written.mutable_data_ptr<int32_t>()[entry.token] = entry.written;
  }
  return {read, written};
}

/// A state with the fields that every session has after `used` tokens of a segment.
core::State pattern(const core::Model& model, int64_t used) {
  Progress progress = begin(model);
  const int64_t any_token = 0;
  if (used > 0) run(model, progress, {&any_token, 1});
  return progress.state;
}

core::State read_state(const weights::TensorFile& file, const core::State& like, const std::string& path) {
  std::set<std::string> wanted = {kLogits, kRead, kWritten};
  for (const auto& [field, tensor] : like.fields()) wanted.insert(kStatePrefix + field.path);
  for (const auto& [name, tensor] : file.tensors) {
    base::require(wanted.contains(name), "{}: the tensor '{}' is not part of this model's state", path,
                  base::printable(name));
  }
  core::State state;
  try {
    state = core::load(like, [&](const std::string& name) {
      const at::Tensor* found = file.find(kStatePrefix + name);
      return found == nullptr ? at::Tensor() : *found;
    });
  } catch (const base::InputError& error) {
    base::input_error("{}: {}", path, error.what());
  }
  for (const auto& [field, tensor] : state.fields()) {
    base::require(!field.per_sequence() || tensor.size(field.dim("B")) == 1,
                  "{}: expected the state of one sequence, found '{}' for {}", path, field.path,
                  field.per_sequence() ? tensor.size(field.dim("B")) : 0);
  }
  return state;
}

/// Throws InputError unless the number of rows of the open segment matches the tokens processed in it plus the memory
/// rows, and what marks them has a place for each.
void require_open_rows(const core::State& state, const core::State& like, int64_t used, const std::string& path) {
  const auto found = state.fields();
  for (const auto& [field, tensor] : like.fields()) {
    if (field.path != "open.length" && field.path != "open.read_rows") continue;
    // `like` has processed one token.
    const int64_t expected = tensor.item<int64_t>() + (field.path == "open.length" ? used - 1 : 0);
    for (const auto& [other, value] : found) {
      if (other.path != field.path) continue;
      const int64_t rows = value.item<int64_t>();
      base::require(
          rows == expected,
          "{}: the state's tensors contradict one another: expected '{}' {} after {} tokens of the segment, found {}",
          path, field.path, expected, used, rows);
    }
    if (field.path != "open.length") continue;
    for (const auto& [other, value] : found) {
      if (!other.path.starts_with("open.") || other.dim("M") < 0) continue;
      base::require(value.size(other.dim("M")) >= expected,
                    "{}: the state's tensors contradict one another: expected '{}' with {} rows of the segment at "
                    "least, found {}",
                    path, other.path, expected, value.size(other.dim("M")));
    }
  }
}

/// Runs a copy for a few tokens, past the end of a segment that comes early. This finds inconsistencies that checking
/// each tensor separately cannot (contradicting lengths), now rather than in the middle of a text.
void rehearse(const core::Model& model, Progress progress, const std::string& path) {
  std::string problem;
  try {
    run_pending(model, progress);
    core::Segment segment;
    segment.tokens = at::zeros({1, 1}, at::TensorOptions().dtype(at::kLong).device(device_of(model)));
    const auto step = [&](bool starts, bool ends) {
      segment.part = {starts, ends};
      progress.state = model.forward(segment, progress.state).state;
    };
    const bool whole = progress.used == 0, last = core::token_input(model.input()).segment_size - progress.used == 1;
    if (!last) step(whole, false);
    step(whole && last, true);
    step(true, core::token_input(model.input()).segment_size == 1);
    return;
  } catch (const c10::Error& error) {
    problem = error.what_without_backtrace();
  } catch (const std::exception& error) {
    problem = error.what();
  }
  base::input_error("{}: the state's tensors contradict one another: {}", path, base::printable(problem, 400));
}

}  // namespace

weights::TensorFile Session::to_file() const {
  weights::TensorFile file;
  for (auto& [name, tensor] : core::save(state())) file.tensors.emplace_back(kStatePrefix + name, tensor);
  if (!counts_.entries().empty()) {
    const auto [read, written] = tensors_of(counts_, core::token_input(model_->input()).vocab_size);
    file.tensors.emplace_back(kRead, read);
    file.tensors.emplace_back(kWritten, written);
  }
  if (progress_.logits.defined()) file.tensors.emplace_back(kLogits, progress_.logits);
  if (engine_ && !decoding_->logits.empty()) file.tensors.emplace_back(kLogits, at::tensor(decoding_->logits));
  const GenerateOptions& options = sampling();
  file.metadata = {{"format", kFormat},
                   {"model", fingerprint_.text()},
                   {"position", fmt::format("{}", progress_.position)},
                   {"used", fmt::format("{}", progress_.used)},
                   {"pending", fmt::format("{}", progress_.pending)},
                   {kRecent, fmt::format("{}", fmt::join(recent(), " "))},
                   {kResets, fmt::format("{}", static_cast<int>(progress_.reset_segments))},
                   {"temperature", fmt::format("{}", options.temperature)},
                   {"top_k", fmt::format("{}", options.top_k)},
                   {"top_p", fmt::format("{}", options.top_p)},
                   {"seed", fmt::format("{}", options.seed)},
                   {kSampleUnknown, fmt::format("{}", static_cast<int>(options.sample_unknown))},
                   {kMinP, fmt::format("{}", options.min_p)},
                   {kRepetition, fmt::format("{}", options.repetition_penalty)},
                   {kFrequency, fmt::format("{}", options.frequency_penalty)},
                   {kPresence, fmt::format("{}", options.presence_penalty)}};
  if (engine_ && engine_->options().int8_keys) file.metadata[kKeys] = "int8";
  return file;
}

void Session::restore(const weights::TensorFile& file, const std::string& name) {
  const c10::InferenceMode inference;
  Progress progress = read_progress(file, name);
  rehearse(*model_, progress, name);
  continue_from(std::move(progress), name);
}

void Session::restore_own(const weights::TensorFile& file, const std::string& name) {
  continue_from(read_progress(file, name), name);
}

Progress Session::read_progress(const weights::TensorFile& file, const std::string& name) {
  const Header header(file.metadata, name);
  base::require(header.text("format") == kFormat, "{}: expected the format '{}', found '{}'", name, kFormat,
                base::printable(header.text("format"), 40));
  base::require(header.text("model") == fingerprint_.text(),
                "{}: this session belongs to a model with other options or weights (fingerprint {}, this model's is "
                "{}); load it with the model it was saved with",
                name, base::printable(header.text("model"), 64), fingerprint_.text());
  const std::string keys = header.has(kKeys) ? header.text(kKeys) : "auto",
                    own = engine_ && engine_->options().int8_keys ? "int8" : "auto";
  base::require(keys == own,
                "{}: expected a session with kv_precision {}, found {}; continue it with the kv_precision that it was "
                "saved with",
                name, own, base::printable(keys, 40));
  try {
    set_sampling({.temperature = header.number<double>("temperature"),
                  .top_k = header.number<int64_t>("top_k"),
                  .top_p = header.number<double>("top_p"),
                  .min_p = header.number_or(kMinP, 0.0),
                  .repetition_penalty = header.number_or(kRepetition, 1.0),
                  .frequency_penalty = header.number_or(kFrequency, 0.0),
                  .presence_penalty = header.number_or(kPresence, 0.0),
                  .sample_unknown = header.number_or(kSampleUnknown, 0) != 0,
                  .seed = header.number<int64_t>("seed"),
                  .should_stop = sampling().should_stop});
  } catch (const base::InputError& error) {
    base::input_error("{}: {}", name, error.what());
  }

  const c10::InferenceMode inference;
  const core::Model& like = *model_;
  const auto& [vocab_size, segment_size] = core::token_input(like.input());
  Progress progress;
  progress.reset_segments = header.number_or(kResets, static_cast<int>(progress_.reset_segments)) != 0;
  progress.position = header.number<int64_t>("position");
  progress.used = header.number<int64_t>("used");
  progress.pending = header.number<int64_t>("pending");
  const int64_t ran = progress.position - (progress.pending >= 0 ? 1 : 0);
  base::require(progress.pending >= -1 && progress.pending < vocab_size && ran >= 0 &&
                    progress.used == ran % segment_size && (ran > 0 || progress.pending < 0),
                "{}: 'position' {}, 'used' {} and 'pending' {} contradict one another (segments of {}, {} tokens)",
                name, progress.position, progress.used, progress.pending, segment_size, vocab_size);
  progress.recent = read_recent(header, progress, vocab_size);
  const core::State expected = pattern(like, progress.used);
  progress.state = read_state(file, expected, name);
  require_open_rows(progress.state, expected, progress.used, name);
  if (ran > 0) {
    const at::Tensor& logits = file.at(kLogits, name);
    base::require(logits.is_floating_point() && logits.sizes() == at::IntArrayRef({vocab_size}),
                  "{}: expected '{}' [{}] of a floating type, found {} of {}", name, kLogits, vocab_size,
                  c10::str(logits.sizes()), c10::toString(logits.scalar_type()));
    progress.logits = logits.to(device_of(like));
  }
  counts_ = read_counts(file, vocab_size, name);
  return progress;
}

void Session::continue_from(Progress progress, const std::string& name) {
  const c10::InferenceMode inference;
  progress_ = std::move(progress);
  if (!engine_) return;
  try {
    decoding_ = Decoding{engine_->import(progress_.state), {}};
  } catch (const base::InputError& error) {
    base::input_error("{}: {}", name, error.what());
  }
  if (progress_.logits.defined()) {
    const at::Tensor logits = progress_.logits.to(at::kFloat).contiguous();
    decoding_->logits.assign(logits.const_data_ptr<float>(), logits.const_data_ptr<float>() + logits.numel());
  }
  progress_.state = {};
  progress_.logits.reset();
}

void Session::save(const std::string& path) const {
  const weights::TensorFile file = to_file();
  weights::write_safetensors(path, file.tensors, file.metadata);
}

std::string Session::save_bytes() const {
  const weights::TensorFile file = to_file();
  return weights::encode_safetensors(file.tensors, file.metadata);
}

Session Session::load(const std::string& path, std::shared_ptr<const core::Model> model) {
  Session session(std::move(model));
  session.restore(weights::read_safetensors(path), path);
  return session;
}

Session Session::load(const std::string& path, std::shared_ptr<const Engine> engine) {
  Session session(std::move(engine));
  session.restore(weights::read_safetensors(path), path);
  return session;
}

Session Session::load_bytes(std::string_view bytes, std::shared_ptr<const core::Model> model) {
  Session session(std::move(model));
  session.restore(weights::read_safetensors(bytes, "session"), "session");
  return session;
}

Session Session::load_bytes(std::string_view bytes, std::shared_ptr<const Engine> engine) {
  Session session(std::move(engine));
  session.restore(weights::read_safetensors(bytes, "session"), "session");
  return session;
}

}  // namespace mnemo::infer
