#include "serve/api_keys.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/file_io.h"
#include "base/utf8.h"
#include "serve/metrics.h"
#include "tests/support/expect_error.h"
#include "tests/support/temporary_folder.h"

namespace mnemo::serve {
namespace {

TEST(ApiKeys, AreLinesOfAFile) {
  test::TemporaryFolder folder;
  const std::string file = folder / "keys";
  base::write_file_atomic(file, "# keys\n\n0123456789abcdef\r\nfedcba9876543210\n");
  const ApiKeys keys(file);
  EXPECT_TRUE(keys.required());
  EXPECT_EQ(keys.find("Bearer 0123456789abcdef"), 0u);
  for (const char* scheme : {"Bearer", "bearer", "BEARER"})
    EXPECT_EQ(keys.find(fmt::format("{} fedcba9876543210", scheme)), 1u);
  for (const char* wrong : {"", "Bearer ", "0123456789abcdef", "Bearer 0123456789abcdeF", "Bearer 0123456789abcdef0",
                            "Bearer # keys", "Basic 0123456789abcdef"})
    EXPECT_EQ(keys.find(wrong), std::nullopt) << wrong;
  base::write_file_atomic(file, std::string(base::kByteOrderMark) + "0123456789abcdef\n");
  EXPECT_EQ(ApiKeys(file).find("Bearer 0123456789abcdef"), 0u) << "behind a byte order mark";
  base::write_file_atomic(file, "short\n");
  test::expect_error<base::InputError>([&] { ApiKeys{file}; }, {file, "16 characters"});
  base::write_file_atomic(file, "# nothing\n");
  test::expect_error<base::InputError>([&] { ApiKeys{file}; }, {file, "found none"});
}

TEST(Metrics, AreInPrometheusFormat) {
  Metrics metrics;
  metrics.request("/v1/completions", 200);
  metrics.request("/v1/completions", 200);
  metrics.tokens(5, 7);
  metrics.first_token(0.003);
  metrics.first_token(30);
  const std::string text = metrics.text({.connections = 2, .ready = true});
  for (const char* line :
       {"mnemo_requests_total{path=\"/v1/completions\",status=\"200\"} 2\n", "mnemo_tokens_in_total 5\n",
        "mnemo_tokens_out_total 7\n", "mnemo_first_token_seconds_bucket{le=\"0.0025\"} 0\n",
        "mnemo_first_token_seconds_bucket{le=\"0.005\"} 1\n", "mnemo_first_token_seconds_bucket{le=\"+Inf\"} 2\n",
        "mnemo_first_token_seconds_count 2\n", "# TYPE mnemo_first_token_seconds histogram\n", "mnemo_ready 1\n",
        "mnemo_connections 2\n"})
    EXPECT_NE(text.find(line), std::string::npos) << line << text;
  constexpr std::string_view kResident = "process_resident_memory_bytes ";
  const size_t resident = text.rfind(kResident);
  ASSERT_NE(resident, std::string::npos) << text;
  EXPECT_GT(std::stoll(text.substr(resident + kResident.size())), 1 << 20);
}

}  // namespace
}  // namespace mnemo::serve
