#include "train/publish.h"

#include <fmt/format.h>

#include "base/progress.h"
#include "weights/model_folder.h"
#include "weights/model_tensors.h"

namespace mnemo::train {
namespace {

/// 1234567 -> "1,234,567"
std::string grouped(int64_t number) {
  std::string digits = std::to_string(number);
  for (size_t place = digits.size(); place > 3 && digits[place - 4] != '-'; place -= 3) digits.insert(place - 3, ",");
  return digits;
}

/// A block of code, fenced with more backticks than any run inside.
std::string code_block(const std::string& language, const std::string& text) {
  std::string fence = "```";
  while (text.find(fence) != std::string::npos) fence += '`';
  return fmt::format("{}{}\n{}{}{}\n", fence, language, text, text.ends_with('\n') ? "" : "\n", fence);
}

}  // namespace

std::string model_card(const CardText& text, const core::Model& model, const TrainReport& report,
                       const tasks::Evaluation& final) {
  std::string card = "---\nlibrary_name: mnemo\n---\n\n";
  card += fmt::format("# {}\n\n", text.name.empty() ? "A model" : text.name);
  if (!text.about.empty()) card += text.about + "\n\n";
  card += fmt::format("{} parameters, {} different tokens, segments of {} tokens.\n\n", grouped(model.parameters().count()),
                      grouped(model.vocab_size()), grouped(model.segment_size()));
  if (!text.data.empty()) card += fmt::format("## Data\n\n{}\n\n", text.data);
  card += fmt::format("## Training\n\n{} steps over {} tokens in {}.\n", grouped(report.steps), grouped(report.tokens),
                      base::duration_text(report.seconds));
  if (!report.history.losses.empty()) {
    card += fmt::format("Last training loss: {:.4f} nats a token.\n", report.history.losses.back().loss);
  }
  card += "\n## Held-out metrics\n\n";
  if (final.metrics.empty()) card += "None were measured.\n";
  if (!final.metrics.empty()) card += "| metric | value |\n|---|---|\n";
  for (const auto& [name, value] : final.metrics) card += fmt::format("| {} | {:.6g} |\n", name, value);
  if (!text.recipe.empty()) card += "\n## Recipe\n\n" + code_block("toml", text.recipe);
  if (!text.command.empty()) card += "\n## Command\n\n" + code_block("", text.command);
  return card;
}

void write_model(const std::string& folder, const core::Model& model, const std::string& config,
                 const data::Tokenizer* tokenizer, const std::string& card) {
  weights::ModelFolder content;
  content.config = config;
  content.weights.tensors = weights::model_tensors(model);
  if (tokenizer != nullptr) content.vocabulary = tokenizer->save();
  content.card = card;
  weights::write_model_folder(folder, content);
}

}  // namespace mnemo::train
