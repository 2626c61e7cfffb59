#include "page/document.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "base/html.h"
#include "page/embedded.h"

namespace mnemo::page {
namespace {

using base::html_escape;

/// Left for the style, the scripts and notes.
constexpr size_t kReserved = size_t{1} << 20;

constexpr std::string_view
    kPolicy = "default-src 'none'; img-src data: blob:; style-src 'unsafe-inline'; script-src 'unsafe-inline'";

std::string left_out(std::string_view what) {
  return fmt::format("<p class=\"note\">Left out: {}; the page would be larger than {} MB.</p>\n", html_escape(what),
                     kMaxPageBytes >> 20);
}

}  // namespace

void Document::add(std::string_view html, std::string_view what) {
  if (size() + html.size() + kReserved > kMaxPageBytes)
    body_ += left_out(what);
  else
    body_ += html;
}

bool Document::add_data(std::string_view id, const base::Node& data, std::string_view what) {
  const std::string json = fmt::format("<script type=\"application/json\" id=\"{}\">{}</script>\n", html_escape(id),
                                       base::script_escape(base::to_json(data, -1)));
  const bool fits = size() + json.size() + kReserved <= kMaxPageBytes;
  if (fits)
    data_ += json;
  else
    body_ += left_out(what);
  return fits;
}

void Document::use(std::string_view script) {
  if (std::find(scripts_.begin(), scripts_.end(), script) == scripts_.end()) scripts_.emplace_back(script);
}

std::string Document::html() const {
  const bool charts = std::find(scripts_.begin(), scripts_.end(), "charts.js") != scripts_.end();
  std::string html = fmt::format(
      "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"{}\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta name=\"color-scheme\" content=\"light dark\">\n<link rel=\"icon\" href=\"data:,\">\n<title>{}</title>\n",
      kPolicy, html_escape(title_));
  html += fmt::format("<style>\n{}\n{}\n</style>\n</head>\n<body>\n", charts ? embedded_file("dygraph.css") : "",
                      embedded_file("page.css"));
  html += "<a class=\"skip\" href=\"#content\">Skip to the content</a>\n";
  html += fmt::format("<main id=\"content\">\n<h1>{}</h1>\n", html_escape(title_));
  html += body_ + "</main>\n" + data_;
  if (charts) html += fmt::format("<script>\n{}\n</script>\n", embedded_file("dygraph.min.js"));
  html += fmt::format("<script>\n{}\n</script>\n", embedded_file("page.js"));
  for (const std::string& script : scripts_) html += fmt::format("<script>\n{}\n</script>\n", embedded_file(script));
  return html + "</body>\n</html>\n";
}

std::string picture(std::string_view svg, std::string_view about) {
  std::string address;
  for (const char c : svg) {
    const bool plain = c > ' ' && c < 127 && std::string_view("%#\"<>&'").find(c) == std::string_view::npos;
    address += plain ? std::string(1, c) : fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return fmt::format("<img class=\"picture\" alt=\"{}\" src=\"data:image/svg+xml,{}\">\n", html_escape(about), address);
}

std::string figure(std::string_view content, std::string_view caption, std::string_view name) {
  return fmt::format(
      "<figure class=\"figure\" data-name=\"{}\">{}<div class=\"scroll\">{}</div></figure>\n", html_escape(name),
      caption.empty() ? std::string() : fmt::format("<figcaption>{}</figcaption>", html_escape(caption)), content);
}

std::string capitalised(std::string name) {
  if (!name.empty()) name.front() = static_cast<char>(std::toupper(static_cast<unsigned char>(name.front())));
  return name;
}

std::string listing(std::string_view text) { return fmt::format("<pre data-copy>{}</pre>\n", html_escape(text)); }

}  // namespace mnemo::page
