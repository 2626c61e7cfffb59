#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/exit_status.h"
#include "base/json_value.h"
#include "base/output.h"
#include "base/process.h"
#include "base/text_table.h"
#include "cli/application.h"
#include "cli/command.h"
#include "experiment/device.h"
#include "tests/verify/golden.h"
#include "tests/verify/lines.h"

namespace mnemo {
namespace {

struct VerifyArguments {
  std::vector<std::string> files;
  std::optional<std::string> device, tokenizer;
  bool json = false;
};

base::Node as_node(const verify::GoldenReport& report) {
  base::Node groups = base::Node::array();
  for (const verify::GoldenGroup& group : report.groups) {
    groups.push_back(base::Node::table({{"name", group.name},
                                        {"tensors", group.tensors},
                                        {"error", group.error},
                                        {"tolerance", group.tolerance},
                                        {"worst", group.worst},
                                        {"beyond", base::Node::array({group.beyond.begin(), group.beyond.end()})}}));
  }
  return base::Node::table({{"file", report.file},
                            {"case", report.what},
                            {"tolerance", report.tolerance},
                            {"passed", report.passed()},
                            {"groups", groups}});
}

base::Node as_node(const verify::LinesReport& report) {
  base::Node fields = base::Node::array();
  for (const verify::FieldReport& field : report.fields) {
    fields.push_back(base::Node::table({{"name", field.name},
                                        {"compared", field.compared},
                                        {"wrong", field.wrong},
                                        {"skipped", field.skipped},
                                        {"error", base::json_number(field.error)},
                                        {"tolerance", field.tolerance},
                                        {"first", base::json_text(field.first)}}));
  }
  return base::Node::table({{"file", report.file},
                            {"case", report.what},
                            {"lines", report.lines},
                            {"passed", report.passed()},
                            {"fields", fields}});
}

/// The last two parts of a path.
std::string short_name(const std::string& path) {
  const std::string name = std::filesystem::path(path).lexically_normal().string();
  const size_t slash = name.find_last_of('/', name.size() - 2);
  return slash == std::string::npos ? name : name.substr(slash + 1);
}

std::vector<std::string> row(const std::string& path, const verify::FieldReport& field) {
  const std::string verdict = field.wrong > 0
                                  ? fmt::format("WRONG: {} of {}; {}", field.wrong, field.compared, field.first)
                              : field.compared == 0 ? "not compared"
                                                    : "ok";
  return {short_name(path),
          field.name,
          std::to_string(field.compared + field.skipped),
          fmt::format("{:.1e}", field.error),
          fmt::format("{:.0e}", field.tolerance),
          verdict};
}

int run_verify(const VerifyArguments& arguments) {
  const at::Device device = experiment::device_named(arguments.device);
  bool all = true;
  base::Node reports = base::Node::array();
  base::TextTable table({"file", "group", "tensors", "largest error", "tolerance", ""},
                        {base::TextTable::Align::left, base::TextTable::Align::left, base::TextTable::Align::right,
                         base::TextTable::Align::right, base::TextTable::Align::right});
  base::require(
      !arguments.tokenizer || std::any_of(arguments.files.begin(), arguments.files.end(), verify::is_lines_file),
      "--tokenizer goes with a .jsonl file of a tokenizer's results");
  for (const std::string& path : arguments.files) {
    if (verify::is_lines_file(path)) {
      const verify::LinesReport report = verify::verify_lines(path, arguments.tokenizer);
      all = all && report.passed();
      reports.push_back(as_node(report));
      for (const verify::FieldReport& field : report.fields) table.add_row(row(path, field));
      continue;
    }
    const verify::GoldenReport report = verify::verify_golden(path, device);
    all = all && report.passed();
    reports.push_back(as_node(report));
    for (const verify::GoldenGroup& group : report.groups) {
      const std::string more = group.beyond.size() > 1 ? fmt::format(" and {} more", group.beyond.size() - 1) : "";
      table.add_row({short_name(path), group.name, std::to_string(group.tensors), fmt::format("{:.1e}", group.error),
                     fmt::format("{:.0e}", group.tolerance),
                     group.beyond.empty() ? "ok" : "TOO FAR: " + group.worst + more});
    }
  }
  if (arguments.json) {
    base::print(base::to_json(reports, 2) + "\n");
  } else {
    base::print(fmt::format("{}{}\n", table.text(), all ? "all within tolerance" : "out of tolerance"));
  }
  return all ? base::kDone : base::kAnswerIsNo;
}

std::shared_ptr<CLI::App> make_verify() {
  auto arguments = std::make_shared<VerifyArguments>();
  cli::Command command("mnemo-verify",
                       "Compare this build with golden files: outputs, states, gradients, optimizer steps.");
  command
      .arguments(
          "FILE", arguments->files,
          "golden files (safetensors), model folders with an expect.safetensors, expected scores and tokens (.jsonl), "
          "COCO sets with an expect.json, or masks (.json)")
      .option("--device", arguments->device, "DEVICE", "cpu, cuda or cuda:N (default cpu)")
      .option("--tokenizer", arguments->tokenizer, "FOLDER", "of results of a tokenizer (.jsonl): its folder")
      .flag("--json", arguments->json, "print JSON")
      .action([arguments] { return run_verify(*arguments); });
  return command.program();
}

}  // namespace
}  // namespace mnemo

int main(int argc, char** argv) {
  mnemo::base::init_process();
  return mnemo::cli::run(argc, argv, mnemo::make_verify);
}
