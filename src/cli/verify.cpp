#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/exit_status.h"
#include "base/output.h"
#include "base/text_table.h"
#include "cli/command.h"
#include "cli/commands.h"
#include "experiment/device.h"
#include "verify/golden.h"

namespace mnemo::cli {
namespace {

struct VerifyArguments {
  std::vector<std::string> files;
  std::optional<std::string> device;
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

int verify(const VerifyArguments& arguments) {
  const at::Device device = experiment::device_named(arguments.device);
  bool all = true;
  base::Node reports = base::Node::array();
  base::TextTable table({"file", "group", "tensors", "largest error", "tolerance", ""},
                        {base::TextTable::Align::left, base::TextTable::Align::left, base::TextTable::Align::right,
                         base::TextTable::Align::right, base::TextTable::Align::right});
  for (const std::string& path : arguments.files) {
    const verify::GoldenReport report = verify::verify_golden(path, device);
    all = all && report.passed();
    reports.push_back(as_node(report));
    const std::string name = std::filesystem::path(path).lexically_normal().string();
    const size_t slash = name.find_last_of('/', name.size() - 2);
    for (const verify::GoldenGroup& group : report.groups) {
      const std::string more = group.beyond.size() > 1 ? fmt::format(" and {} more", group.beyond.size() - 1) : "";
      table.add_row({slash == std::string::npos ? name : name.substr(slash + 1), group.name,
                     std::to_string(group.tensors), fmt::format("{:.1e}", group.error),
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

}  // namespace

void add_verify(CLI::App& app) {
  auto arguments = std::make_shared<VerifyArguments>();
  Command(app, "verify", "compare this build with golden files: outputs, states, gradients, optimizer steps")
      .arguments("FILE", arguments->files, "golden files (safetensors), or model folders with an expect.safetensors")
      .option("--device", arguments->device, "DEVICE", "cpu, cuda or cuda:N (default cpu)")
      .flag("--json", arguments->json, "print JSON")
      .action([arguments] { return verify(*arguments); });
}

}  // namespace mnemo::cli
