#include "tests/verify/golden_file.h"

#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <regex>

#include "base/error.h"
#include "base/file_io.h"
#include "tests/verify/coco.h"
#include "tests/verify/vision.h"
#include "weights/model_tensors.h"

namespace mnemo::verify {
namespace {

const std::string& metadata_text(const std::string& path, const weights::Metadata& metadata, const char* key) {
  const auto found = metadata.find(key);
  base::require(found != metadata.end(), "{}: expected '{}' in __metadata__ of a golden file, found none", path, key);
  return found->second;
}

constexpr int64_t kShownNames = 5;

void require_format(const std::string& path, const weights::Metadata& metadata, const std::string& format) {
  const std::string& found = metadata_text(path, metadata, "format");
  base::require(found == format, "{}: expected format \"{}\", found \"{}\"", path, format, found);
}

double tolerance_of(const std::string& path, const weights::Metadata& metadata) {
  const std::string& text = metadata_text(path, metadata, "tolerance");
  char* end = nullptr;
  const double tolerance = std::strtod(text.c_str(), &end);
  base::require(end != text.c_str() && *end == '\0' && tolerance >= 0 && std::isfinite(tolerance),
                "{}: expected a number of at least 0 as tolerance, found \"{}\"", path, text);
  return tolerance;
}

/// Writes the defaults that a GRC had when its golden files were made into a memory without these keys.
void complete_grc(base::Node& memory) {
  if (!memory.is_table()) return;
  const base::Node* type = memory.find("type");
  if (type == nullptr || !type->is_string() || type->as_string() != "grc") return;
  const base::Node then = base::Node::table({{"attend", "sample"}, {"eval_read", "updated"}, {"gate_bias", true}});
  for (const auto& [key, value] : then.members()) {
    if (!memory.contains(key)) memory.set(key, value);
  }
}

void complete_memories(base::Node* memories) {
  if (memories == nullptr) return;
  if (!memories->is_array()) return complete_grc(*memories);
  for (base::Node& memory : memories->items()) complete_grc(memory);
}

}  // namespace

bool GoldenReport::passed() const {
  return std::all_of(groups.begin(), groups.end(),
                     [&](const GoldenGroup& group) { return group.error <= group.tolerance; });
}

GoldenFile::GoldenFile(const std::string& path, at::Device device)
    : path_(path), file_(weights::read_safetensors(path)), device_(device) {
  for (auto& [name, tensor] : file_.tensors) tensor = tensor.to(device);
  require_format(path, file_.metadata, "mnemo-golden/1");
  config_ = base::parse_json(metadata_text(path, file_.metadata, "config"), path + " (config)");
  if (config_.is_table()) {
    complete_memories(config_.find("memory"));
    base::Node* backbone = config_.find("backbone");
    base::Node* encoder = backbone == nullptr || !backbone->is_table() ? nullptr : backbone->find("encoder");
    if (encoder != nullptr && encoder->is_table()) complete_memories(encoder->find("memory"));
  }
  what_ = metadata_text(path, file_.metadata, "case");
  training_ = metadata_text(path, file_.metadata, "training") == "true";
  tolerance_ = tolerance_of(path, file_.metadata);
}

base::Node GoldenFile::metadata(const std::string& key) const {
  auto found = file_.metadata.find(key);
  return found == file_.metadata.end() ? base::Node() : base::parse_json(found->second, path_ + " (" + key + ")");
}

at::Tensor GoldenFile::find(const std::string& name) const {
  const at::Tensor* tensor = file_.find(name);
  if (tensor == nullptr) return {};
  asked_.insert(name);
  return *tensor;
}

at::Tensor GoldenFile::step(int64_t step, const std::string& rest) const {
  return find(fmt::format("step.{}.{}", step, rest));
}

int64_t GoldenFile::num_steps() const {
  int64_t steps = 0;
  while (!under(fmt::format("step.{}.", steps)).empty()) ++steps;
  base::require(steps > 0, "{}: expected tensors step.0.*, found none", path_);
  return steps;
}

std::vector<std::pair<std::string, at::Tensor>> GoldenFile::under(const std::string& prefix) const {
  std::vector<std::pair<std::string, at::Tensor>> found;
  for (const auto& [name, tensor] : file_.tensors) {
    if (name.starts_with(prefix)) found.emplace_back(name.substr(prefix.size()), tensor);
  }
  return found;
}

layers::Budget GoldenFile::budget() const { return weights::budget_of(file_, path_); }

weights::TensorFile GoldenFile::parameters() const {
  weights::TensorFile only;
  only.tensors = under("param.");
  for (const auto& [name, tensor] : only.tensors) asked_.insert("param." + name);
  return only;
}

void GoldenFile::load_parameters(const layers::ParameterSet& into,
                                 const std::function<std::string(const std::string&)>& name_in_file) const {
  into.to(at::kDouble, device_);
  auto named = into.named();
  for (auto& [name, tensor] : named) {
    if (name_in_file) name = name_in_file(name);
  }
  weights::load_into(parameters(), named, path_);
}

void GoldenFile::require_all_used(const std::set<std::string>& compared) const {
  static const std::regex input(R"((param|buffer|state\.init|step\.\d+\.(input|cotangent))\..*)");
  std::string unused;
  int64_t more = -kShownNames;
  for (const auto& [name, tensor] : file_.tensors) {
    if ((std::regex_match(name, input) ? asked_ : compared).contains(name)) continue;
    if (++more <= 0) unused += (unused.empty() ? "" : ", ") + base::in_quotes(name);
  }
  base::require(unused.empty(), "{}: expected tensors that this case uses or compares, found {}{}", path_, unused,
                more > 0 ? fmt::format(" and {} more", more) : "");
}

GoldenComparison::GoldenComparison(const GoldenFile& file) : file_(&file) {
  report_.file = file.path();
  report_.what = file.what();
  report_.tolerance = file.tolerance();
}

GoldenComparison::GoldenComparison(const std::string& path, const weights::Metadata& metadata,
                                   const std::string& format) {
  require_format(path, metadata, format);
  report_.file = path;
  report_.what = metadata_text(path, metadata, "case");
  report_.tolerance = tolerance_of(path, metadata);
}

void GoldenComparison::compare(const std::string& group, const std::string& name, const at::Tensor& expected,
                               const at::Tensor& found, std::optional<double> tolerance) {
  base::require(expected.defined(), "{}: expected a tensor '{}', found none", report_.file, name);
  compared_.insert(name);
  double error = 0.0;
  if (found.defined() && expected.sizes() != found.sizes()) {
    error = std::numeric_limits<double>::infinity();
  } else if (expected.numel() > 0) {
    const at::Tensor wanted = expected.to(at::kCPU, at::kDouble);
    const at::Tensor got = found.defined() ? found.detach().to(at::kCPU, at::kDouble) : at::zeros_like(wanted);
    // Equal infinities (z of an empty memory) count as no difference.
    const at::Tensor difference = at::where(wanted == got, at::zeros_like(wanted), (wanted - got).abs());
    error = difference.max().item<double>();
    if (std::isnan(error)) error = std::numeric_limits<double>::infinity();
  }
  count_error(report_, group, tolerance.value_or(report_.tolerance), name, error);
}

GoldenReport GoldenComparison::take() {
  if (file_ != nullptr) file_->require_all_used(compared_);
  return std::move(report_);
}

void count_error(GoldenReport& report, const std::string& group, double tolerance, const std::string& name,
                 double error) {
  auto at = std::find_if(report.groups.begin(), report.groups.end(),
                         [&](const GoldenGroup& g) { return g.name == group && g.tolerance == tolerance; });
  if (at == report.groups.end())
    at = report.groups.insert(report.groups.end(), GoldenGroup{group, 0, 0.0, tolerance, ""});
  ++at->tensors;
  if (error > tolerance) at->beyond.push_back(name);
  if (error >= at->error) {
    at->error = error;
    at->worst = name;
  }
}

namespace {

/// The kind of input of a model with that config.
core::InputKind input_of(const base::Node& config) {
  const base::Node* backbone = config.find("backbone");
  const base::Node* type = backbone == nullptr ? nullptr : backbone->find("type");
  const auto names = models::BackboneOptions::type_names();
  const bool known = type != nullptr && type->is_string() && std::ranges::find(names, type->as_string()) != names.end();
  return known ? models::BackboneOptions(type->as_string()).input() : models::BackboneOptions().input();
}

bool reads_images(const base::Node& config) { return input_of(config) == core::InputKind::images; }

}  // namespace

GoldenReport verify_golden(const std::string& path, at::Device device) {
  if (base::is_folder(path)) return is_coco_folder(path) ? verify_coco_folder(path) : verify_folder(path, device);
  if (path.ends_with(".json")) return verify_rle_file(path);
  if (const weights::TensorFile content = weights::read_safetensors(path); is_image_list(content))
    return verify_image_list(path, content);
  const GoldenFile file(path, device);
  const base::Node* kind = file.config().find("kind");
  base::require(kind != nullptr && kind->is_string(), "{}: expected a string 'kind' in config, found none", path);
  try {
    if (kind->as_string() == "attention") return verify_attention(file);
    if (kind->as_string() == "model" && reads_images(file.config())) return verify_vision_model(file);
    if (kind->as_string() == "model" && input_of(file.config()) == core::InputKind::pairs) return verify_pairs(file);
    if (kind->as_string() == "layer_stack" && reads_images(file.config())) return verify_vision_stack(file);
    if (kind->as_string() == "layer_stack" || kind->as_string() == "model") return verify_model(file);
    if (kind->as_string() == "image_transform") return verify_image_transform(file);
    if (kind->as_string() == "op") return verify_detection_op(file);
    if (kind->as_string() == "neck" || kind->as_string() == "head") return verify_detection_head(file);
  } catch (const c10::Error& error) {
    // The file's tensors are inconsistent.
    base::input_error("{}: the tensors do not match the config: {}", path, error.what_without_backtrace());
  }
  base::input_error("{}: expected kind attention, layer_stack, model, image_transform, op, neck or head, found \"{}\"",
                    path, kind->as_string());
}

}  // namespace mnemo::verify
