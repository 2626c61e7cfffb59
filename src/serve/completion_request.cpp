#include "serve/completion_request.h"

#include <algorithm>
#include <array>
#include <iterator>

#include "base/error.h"
#include "base/json_value.h"
#include "base/nearest.h"
#include "base/options.h"
#include "base/printable.h"

namespace mnemo::serve {
namespace {

constexpr int64_t kPrompts = 8, kTexts = 8, kStops = 4, kLogprobs = 5;
constexpr std::array<std::string_view, 8> kSampling = {
    "temperature", "top_k", "top_p", "min_p", "repetition_penalty", "frequency_penalty", "presence_penalty", "seed"};

[[noreturn]] void refuse(const std::string& param, const std::string& message) {
  throw ApiError(400, fmt::format("'{}': {}", param, message), param);
}

/// A member, null where it is absent or JSON's null.
const base::Node* given(const base::Node& body, std::string_view key) {
  const base::Node* found = body.find(key);
  return found == nullptr || found->is_null() ? nullptr : found;
}

int64_t integer(const base::Node& value, const std::string& key, int64_t low, int64_t high) {
  if (!value.is_int() || value.as_int() < low || value.as_int() > high)
    refuse(key, fmt::format("expected an integer from {} to {}, found {}", low, high, value.found()));
  return value.as_int();
}

bool boolean(const base::Node& value, const std::string& key) {
  if (!value.is_bool()) refuse(key, fmt::format("expected true or false, found {}", value.found()));
  return value.as_bool();
}

const std::string& string(const base::Node& value, const std::string& key) {
  if (!value.is_string()) refuse(key, fmt::format("expected a string, found {}", value.found()));
  return value.as_string();
}

std::vector<int64_t> ids(const base::Node& value) {
  std::vector<int64_t> tokens;
  for (const base::Node& token : value.items()) {
    if (!token.is_int()) refuse("prompt", fmt::format("expected token ids, found {}", token.found()));
    tokens.push_back(token.as_int());
  }
  return tokens;
}

std::vector<CompletionRequest::Prompt> prompts(const base::Node& value) {
  if (value.is_string()) return {value.as_string()};
  if (!value.is_array() || value.size() == 0)
    refuse("prompt",
           fmt::format("expected a text, a list of texts, token ids or lists of them, found {}", value.found()));
  if (value.items().front().is_int()) return {ids(value)};
  if (value.size() > kPrompts)
    refuse("prompt", fmt::format("expected at most {} prompts, found {}", kPrompts, value.size()));
  std::vector<CompletionRequest::Prompt> all;
  for (const base::Node& one : value.items()) {
    if (one.is_string()) {
      all.emplace_back(one.as_string());
    } else if (one.is_array()) {
      all.emplace_back(ids(one));
    } else {
      refuse("prompt", fmt::format("expected a text or a list of token ids, found {}", one.found()));
    }
  }
  return all;
}

std::vector<std::string> stops(const base::Node& value) {
  std::vector<std::string> all;
  if (value.is_string()) {
    all.push_back(value.as_string());
  } else if (value.is_array()) {
    for (const base::Node& one : value.items()) all.push_back(string(one, "stop"));
  } else {
    refuse("stop", fmt::format("expected a text or a list of texts, found {}", value.found()));
  }
  if (all.size() > kStops) refuse("stop", fmt::format("expected at most {} texts, found {}", kStops, all.size()));
  if (std::ranges::any_of(all, [](const std::string& one) { return one.empty(); }))
    refuse("stop", "expected texts of one character or more, found ''");
  return all;
}

bool usage_of(const base::Node& value, bool lenient) {
  if (!value.is_table()) refuse("stream_options", fmt::format("expected an object, found {}", value.found()));
  bool usage = false;
  for (const auto& [key, option] : value.members()) {
    if (key == "include_usage") {
      usage = boolean(option, "stream_options");
    } else if (!lenient) {
      refuse("stream_options", fmt::format("'{}' is not supported", base::printable(key, 40)));
    }
  }
  return usage;
}

/// A parameter of a completion, by name, and how it is read; those of sampling are read together (read_sampling).
struct Parameter {
  std::string_view name;
  void (*read)(CompletionRequest&, const base::Node&, const std::string& key, const RequestLimits&);
};

constexpr Parameter kParameters[] = {
    {"model", [](auto& request, auto& value, auto& key, auto&) { request.model = string(value, key); }},
    {"prompt", [](auto& request, auto& value, auto&, auto&) { request.prompts = prompts(value); }},
    {"max_tokens", [](auto& request, auto& value, auto& key,
                      auto& limits) { request.max_tokens = integer(value, key, 0, limits.max_tokens); }},
    {"n", [](auto& request, auto& value, auto& key, auto&) { request.n = integer(value, key, 1, kTexts); }},
    {"logprobs",
     [](auto& request, auto& value, auto& key, auto&) { request.logprobs = integer(value, key, 0, kLogprobs); }},
    {"echo", [](auto& request, auto& value, auto& key, auto&) { request.echo = boolean(value, key); }},
    {"stream", [](auto& request, auto& value, auto& key, auto&) { request.stream = boolean(value, key); }},
    {"stream_options",
     [](auto& request, auto& value, auto&, auto& limits) { request.include_usage = usage_of(value, limits.lenient); }},
    {"stop", [](auto& request, auto& value, auto&, auto&) { request.stop = stops(value); }},
    {"session", [](auto& request, auto& value, auto& key, auto&) { request.session = string(value, key); }},
    {"if_position",
     [](auto& request, auto& value, auto& key, auto&) { request.if_position = integer(value, key, 0, INT64_MAX); }},
    {"keep_partial", [](auto& request, auto& value, auto& key, auto&) { request.keep_partial = boolean(value, key); }},
    {"user", [](auto&, auto& value, auto& key, auto&) { string(value, key); }},
};

/// Takes one parameter; false if it is not one of a completion.
bool take(CompletionRequest& request, const std::string& key, const base::Node& value, const RequestLimits& limits) {
  const auto* found = std::ranges::find(kParameters, key, &Parameter::name);
  if (found == std::end(kParameters)) return std::ranges::find(kSampling, key) != kSampling.end();
  found->read(request, value, key, limits);
  return true;
}

/// "; did you mean 'max_tokens'?", or nothing if no parameter of a completion is near.
std::string meant(const std::string& key) {
  std::vector<std::string> known(kSampling.begin(), kSampling.end());
  for (const Parameter& parameter : kParameters) known.emplace_back(parameter.name);
  return base::nearest(key, known) ? base::suggestion(key, known) : "";
}

void check_together(const CompletionRequest& request) {
  if (request.prompts.empty() && request.session.empty()) refuse("prompt", "expected a text or token ids, found none");
  if (request.include_usage && !request.stream) refuse("stream_options", "expected it with \"stream\": true only");
  if (request.echo && request.logprobs >= 0)
    refuse("echo",
           "expected it without logprobs: log probabilities of a prompt are those of POST /v1/sessions/ID/score");
  const base::Node* seed = request.sampling.find("seed");
  if (seed != nullptr && seed->as_int() > INT64_MAX - request.n + 1)
    refuse("seed", fmt::format("expected at most {} with n = {}, found {}", INT64_MAX - request.n + 1, request.n,
                               seed->as_int()));
  if (request.session.empty()) {
    if (request.if_position) refuse("if_position", "expected it with a session only");
    if (request.keep_partial) refuse("keep_partial", "expected it with a session only");
  } else {
    if (request.prompts.size() > 1) refuse("prompt", "a session reads one prompt");
    if (request.n > 1) refuse("n", "a session writes one text; fork it to write several");
  }
}

}  // namespace

infer::GenerateOptions CompletionRequest::options(const infer::GenerateOptions& otherwise) const {
  base::Node all = base::write_options(otherwise);
  for (const auto& [key, value] : sampling.members()) all.set(key, value);
  if (all.at("temperature").as_double() == 0.0) {
    for (const char* key : {"top_k", "top_p", "min_p"}) all.erase(key);
  }
  auto options = base::read_options<infer::GenerateOptions>(all);
  options.max_tokens = max_tokens;
  options.stop = stop;
  return options;
}

base::Node read_body(std::string_view body, const RequestLimits& limits) {
  base::Node node;
  try {
    node = base::parse_json(body, "body", {.max_bytes = limits.body_bytes, .max_depth = 32, .max_values = 1 << 18});
  } catch (const base::InputError& error) {
    throw ApiError(400, error.what());
  }
  if (!node.is_table()) throw ApiError(400, fmt::format("body: expected a JSON object, found {}", node.found()));
  return node;
}

base::Node read_sampling(const base::Node& body) {
  base::Node sampling = base::Node::table();
  for (const std::string_view key : kSampling) {
    const base::Node* value = given(body, key);
    if (value == nullptr) continue;
    base::Node one = base::Node::table();
    one.set(key, *value);
    one.set_place_deep({});
    try {
      auto alone = one;  // without what could contradict it
      base::read_options<infer::GenerateOptions>(alone);
    } catch (const base::InputError& error) {
      refuse(std::string(key), error.what());
    }
    sampling.set(key, *one.find(key));
  }
  return sampling;
}

CompletionRequest read_completion(std::string_view body, const RequestLimits& limits) {
  const base::Node node = read_body(body, limits);
  CompletionRequest request;
  for (const auto& [key, value] : node.members()) {
    if (value.is_null() || take(request, key, value, limits) || limits.lenient) continue;
    throw ApiError(400, fmt::format("'{}' is not supported{}", base::printable(key, 60), meant(key)),
                   base::json_text(key));
  }
  request.sampling = read_sampling(node);
  check_together(request);
  if (request.prompts.empty()) request.prompts.emplace_back("");
  return request;
}

}  // namespace mnemo::serve
