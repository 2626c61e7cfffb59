// The whole server, against clients over HTTP.
#include "serve/server.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "base/base64.h"
#include "base/error.h"
#include "base/file_io.h"
#include "base/json_value.h"
#include "base/printable.h"
#include "bundle/bundle.h"
#include "serve/attention_view.h"
#include "tests/support/temporary_folder.h"
#include "tests/unit/infer/decoding_cases.h"
#include "tests/unit/serve/client.h"
#include "tests/unit/serve/refusal.h"
#include "text/open_tokenizer.h"

namespace mnemo::serve {
namespace {

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

/// A text of bytes without tokens, with an engine.
infer::TextSession open_text(int64_t segment = 16, int64_t num_heads = 2, int64_t num_layers = 1) {
  const auto change = [&](models::ModelOptions& options) {
    options.embedding.vocab_size = 256;
    auto& stack = options.backbone.stack();
    stack.num_layers = num_layers, stack.dim = 16, stack.num_heads = num_heads, stack.ffn_dim = 32;
    stack.attention = base::Node::table({{"type", "relative"}});
    options.memory = {infer::memory("segment_cache", {{"mem_len", 16}})};
  };
  const auto engine = std::make_shared<const infer::Engine>(infer::build({"", change}, segment));
  return {infer::Session(engine, {.temperature = 0}), text::make_byte_tokenizer()};
}

/// Answers requests for translations as `write` does.
class OwnAnswers : public Answers {
 public:
  using Write = std::function<base::Node(const base::ShouldStop&)>;
  explicit OwnAnswers(Write write) : write_(std::move(write)) {}
  std::string route() const override { return "/v1/translate"; }
  base::Node answer(const Question&, const base::ShouldStop& should_stop) override { return write_(should_stop); }

 private:
  Write write_;
};

struct Answer {
  int status = 0;
  std::string body;
  base::Node json() const { return base::parse_json(body, "answer", {.max_bytes = 64 << 20, .max_values = 1 << 20}); }
};

std::string request_of(const std::string& method, const std::string& path, const std::string& body,
                       const std::string& headers = "") {
  return fmt::format("{} {} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{}Content-Length: {}\r\n\r\n{}", method, path,
                     headers, body.size(), body);
}

Answer ask(const Server& server, const std::string& method, const std::string& path, const std::string& body = "",
           const std::string& headers = "") {
  const Client client(server);
  client.send(request_of(method, path, body, headers));
  const std::string all = client.receive("\x01\x02\x03", 20'000);
  const size_t head = all.find("\r\n\r\n");
  if (!all.starts_with("HTTP/1.1 ") || head == std::string::npos) return {0, all};
  return {std::stoi(all.substr(9, 3)), all.substr(head + 4)};
}

Answer complete(const Server& server, const std::string& members) {
  return ask(server, "POST", "/v1/completions", "{\"model\": \"m\", " + members + "}");
}

int64_t metric(const Server& server, const std::string& name) {
  const std::string all = ask(server, "GET", "/metrics").body;
  return std::stoll(all.substr(all.find("\n" + name + " ") + name.size() + 2));
}

/// Whether a metric becomes that within some seconds.
bool becomes(const Server& server, const std::string& name, int64_t value) {
  for (const auto begin = std::chrono::steady_clock::now(); seconds_since(begin) < 5;) {
    if (metric(server, name) == value) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return false;
}

std::unique_ptr<Server> serve(ServerOptions options = {}) {
  options.port = 0;
  options.access_log = false;
  auto server = std::make_unique<Server>(options);
  server->open({.name = "m", .text = open_text()});
  return server;
}

std::unique_ptr<Server> serve(OwnAnswers::Write write) {
  auto server = std::make_unique<Server>(ServerOptions{.port = 0, .access_log = false});
  server->open({.name = "m", .answers = std::make_unique<OwnAnswers>(std::move(write))});
  return server;
}

std::string new_session(const Server& server) {
  return ask(server, "POST", "/v1/sessions").json().at("id").as_string();
}

const std::string kInFlight = "mnemo_requests_in_flight", kQuestion = R"({"model": "m"})";

TEST(Server, AnIdThatIsNoneIsNotFoundAndTakesNoPlace) {
  test::TemporaryFolder folder;
  const auto server = serve({.sessions = {.folder = folder.path()}});
  for (const std::string& id : {std::string("x"), std::string("../x"), std::string(32, 'A')}) {
    const Answer answer = complete(*server, fmt::format("\"prompt\": \"a\", \"session\": \"{}\"", id));
    EXPECT_EQ(answer.status, 404) << answer.body;
    EXPECT_NE(answer.body.find("session_not_found"), std::string::npos) << answer.body;
    EXPECT_EQ(ask(*server, "POST", "/v1/sessions/x/score", R"({"prompt": "a"})").status, 404);
  }
  EXPECT_TRUE(becomes(*server, kInFlight, 0));
}

TEST(Server, CountsARequestOutOnceWhateverItsAnswerThrows) {
  std::atomic<int> count = 0;
  const auto server = serve([&](const base::ShouldStop&) -> base::Node {
    const double not_in_json = std::numeric_limits<double>::infinity();
    if (++count == 1) return base::Node::table({{"data", not_in_json}});
    if (count == 2) throw base::NotFinite("logits");
    throw std::runtime_error("of any kind");
  });
  for (const int expected : {400, 500, 500})
    EXPECT_EQ(ask(*server, "POST", "/v1/translate", kQuestion).status, expected);
  EXPECT_EQ(metric(*server, kInFlight), 0);
}

TEST(Server, ComputesNoAnswersThatWaitAtItsEnd) {
  std::atomic<int> begun = 0;
  auto server = serve([&](const base::ShouldStop& should_stop) {
    ++begun;
    for (const auto begin = std::chrono::steady_clock::now(); seconds_since(begin) < 1;) {
      base::stop_if_asked(should_stop, "answer");
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return base::Node::table({});
  });
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < 3; ++i) {
    clients.push_back(std::make_unique<Client>(*server));
    clients.back()->send(request_of("POST", "/v1/translate", kQuestion));
    for (const auto begin = std::chrono::steady_clock::now(); begun == 0 && seconds_since(begin) < 5;)
      std::this_thread::yield();
  }
  ASSERT_TRUE(becomes(*server, kInFlight, 3));
  server.reset();
  EXPECT_EQ(begun, 1);
}

TEST(Server, OthersDoNotWaitForALongScore) {
  const auto server = serve();
  const std::string id = new_session(*server), other = new_session(*server);
  auto client = std::make_unique<Client>(*server);
  const std::string prompt = R"({"prompt": ")" + std::string(2'000'000, 'a') + "\"}";
  client->send(request_of("POST", "/v1/sessions/" + id + "/score", prompt));
  ASSERT_TRUE(becomes(*server, kInFlight, 1));
  EXPECT_EQ(ask(*server, "POST", "/v1/sessions/" + other + "/score", R"({"prompt": "abc"})").status, 200);
  EXPECT_EQ(complete(*server, R"("prompt": "a", "max_tokens": 1)").status, 200);
  EXPECT_TRUE(becomes(*server, kInFlight, 1)) << "else the score was too short to tell";
  client.reset();
  EXPECT_TRUE(becomes(*server, kInFlight, 0)) << "a client that leaves";
  EXPECT_EQ(ask(*server, "GET", "/v1/sessions/" + id).json().at("position").as_int(), 0);
  client = std::make_unique<Client>(*server);
  client->send(request_of("POST", "/v1/sessions/" + id + "/score", prompt));
  ASSERT_TRUE(becomes(*server, kInFlight, 1));
  const auto begin = std::chrono::steady_clock::now();
  server->stop();
  EXPECT_LT(seconds_since(begin), 10);
}

TEST(Server, ScoresInPiecesAsInOne) {
  const auto server = serve();
  std::string prompt;
  for (int i = 0; i < 150; ++i) prompt += static_cast<char>('a' + i * i % 26);
  infer::TextSession text = open_text();
  const auto expected = text.score(prompt);
  const base::Node found = ask(*server, "POST", "/v1/sessions/" + new_session(*server) + "/score",
                               "{\"prompt\": \"" + prompt + "\"}")
                               .json();
  const auto& tokens = found.at("tokens").items();
  ASSERT_EQ(tokens.size(), expected.size());
  for (size_t i = 1; i < tokens.size(); ++i)
    EXPECT_EQ(tokens[i].at("log_probability").as_double(), expected[i].log_probability) << i;
  EXPECT_EQ(found.at("position").as_int(), 150);
}

TEST(Server, AnAnswerThatEndsInsideACharacterLeavesItToTheNext) {
  const auto server = serve();
  const std::string id = new_session(*server);
  const auto text_of = [&](const std::string& session, const std::string& prompt) {
    const Answer answer = complete(*server,
                                   fmt::format(R"("session": "{}", "prompt": {}, "max_tokens": 0)", session, prompt));
    return answer.json().at("choices").items().at(0).at("text").as_string();
  };
  EXPECT_EQ(text_of(id, "[97, 230, 151]"), "\xEF\xBF\xBD");
  const std::string state = ask(*server, "GET", "/v1/sessions/" + id + "/state").body;
  const std::string loaded = ask(*server, "PUT", "/v1/sessions", state).json().at("id").as_string();
  EXPECT_EQ(text_of(id, R"("")"), text_of(loaded, R"("")"));
}

TEST(Server, EqualPromptsAreTextsOfTheirOwnUnlessASeedIsGiven) {
  const auto server = serve();
  const auto texts = [&](const std::string& seed) {
    const Answer answer = complete(*server, R"("prompt": ["ab", "ab"], "max_tokens": 24)" + seed);
    const base::Node choices = answer.json().at("choices");
    return std::pair(choices.items().at(0).at("text"), choices.items().at(1).at("text"));
  };
  const auto drawn = texts(""), given = texts(R"(, "seed": 3)");
  EXPECT_NE(drawn.first, drawn.second);
  EXPECT_EQ(given.first, given.second);
}

// The beginning of the stop text stands in the text, so its characters wait.
TEST(Server, AStopTextThatDoesNotComeMovesNoOffset) {
  const auto server = serve();
  const auto first_choice = [&](const std::string& stop) {
    const Answer answer = complete(*server, R"("prompt": "ab", "max_tokens": 24, "seed": 3, "logprobs": 0)" + stop);
    return answer.json().at("choices").items().at(0);
  };
  const base::Node free = first_choice("");
  std::string text = free.at("text").as_string(), begun = text.substr(0, text.size() / 2);
  while (!begun.empty() && base::first_invalid_utf8(begun)) begun.pop_back();
  const base::Node held = first_choice(", \"stop\": " + base::to_json(base::Node(begun + "~never"), -1));
  EXPECT_EQ(held.at("text"), free.at("text"));
  EXPECT_EQ(held.at("logprobs").at("text_offset"), free.at("logprobs").at("text_offset"));
}

TEST(Server, AForkWithoutRoomForAllLeavesNone) {
  infer::TextSession text = open_text();
  text.feed("abc");
  const auto server = serve({.sessions = {.memory = 5 * (text.session().num_bytes() + Sessions::kTextObjects)}});
  const std::string id = ask(*server, "PUT", "/v1/sessions", text.save_bytes()).json().at("id").as_string();
  EXPECT_EQ(ask(*server, "POST", "/v1/sessions/" + id + "/fork", R"({"n": 8})").status, 429);
  EXPECT_EQ(metric(*server, "mnemo_sessions"), 1);
  EXPECT_EQ(ask(*server, "POST", "/v1/sessions/" + id + "/fork", R"({"n": 3})").status, 201);
}

// keep_partial keeps what was written, and no part of a prompt: nobody could tell where to go on.
TEST(Server, AClientThatLeavesWhileItsPromptIsReadLeavesNoPartOfIt) {
  const auto server = serve();
  const std::string id = new_session(*server), prompt(1'500'000, 'a');
  {
    const Client client(*server);
    client.send(
        request_of("POST", "/v1/completions",
                   R"({"model": "m", "keep_partial": true, "session": ")" + id + R"(", "prompt": ")" + prompt + "\"}"));
    ASSERT_TRUE(becomes(*server, "mnemo_texts_running", 1));
  }
  ASSERT_TRUE(becomes(*server, kInFlight, 0));
  const int64_t position = ask(*server, "GET", "/v1/sessions/" + id).json().at("position").as_int();
  EXPECT_TRUE(position == 0 || position > std::ssize(prompt)) << position;
}

TEST(Server, ReadsNoBodyOfARequestWithoutAKey) {
  const test::TemporaryFolder folder;
  base::write_file_atomic(folder / "keys", "0123456789abcdef\n");
  const auto server = serve({.api_key_file = folder / "keys", .http = {.large_puts = 1}});
  const auto header = [](const std::string& path, const std::string& fields) {
    return "PUT " + path + " HTTP/1.1\r\nHost: a\r\nContent-Length: 9000000\r\n" + fields + "\r\n";
  };
  const std::string key = "Authorization: Bearer 0123456789abcdef\r\n";
  for (const auto& [request, status] : {std::pair(header("/v1/sessions", ""), 401), {header("/v1/models", key), 413}}) {
    const Client client(*server);
    client.send(request);
    EXPECT_TRUE(client.receive().starts_with(fmt::format("HTTP/1.1 {} ", status))) << request;
  }
  const std::string no_session(9'000'000, 'x');
  EXPECT_EQ(ask(*server, "PUT", "/v1/sessions", no_session, key).status, 400) << "those take no place of a large PUT";
}

/// A server of classes of images, and how it answers a request for them.
class ImageServer : public testing::Test {
 protected:
  ImageServer() {
    server_.open(
        {.name = "m", .answers = open_answers(bundle::read_bundle(kData + "vision_import/timm_vit", std::nullopt))});
  }
  Answer classify(const std::string& body, const std::string& type, const std::string& query = "") {
    return ask(server_, "POST", "/v1/classify" + query, body, "Content-Type: " + type + "\r\n");
  }
  Answer classify_base64(const std::string& text) {
    return classify(base::to_json(base::Node::table({{"model", "m"}, {"input", text}}), -1), "application/json");
  }

  const std::string kData = MNEMO_SOURCE_DIR "/tests/golden/data/";
  const std::string photo_ = base::read_file(kData + "images/files/photo_7865c0.jpg");
  Server server_{{.port = 0, .access_log = false}};
};

TEST_F(ImageServer, TakesImagesAsBodiesAndAsBase64) {
  const std::string expected = classify(photo_, "image/jpeg").body;
  EXPECT_NE(expected.find("\"heads\""), std::string::npos) << expected;
  EXPECT_EQ(classify(photo_, "Image/JPEG; a=b").body, expected);
  std::string lines = base::to_base64(photo_);
  for (size_t at = 76; at < lines.size(); at += 77) lines.insert(at, "\n");
  for (const std::string& text : {lines + "\n", "data:image/jpeg;base64," + lines})
    EXPECT_EQ(classify_base64(text).body, expected);
}

TEST_F(ImageServer, SaysHowAnImageIsSent) {
  const auto refused = [](const Answer& answer, const std::string& said) {
    EXPECT_EQ(answer.status, 400) << answer.body;
    EXPECT_NE(answer.body.find(said), std::string::npos) << answer.body;
  };
  const std::string png = base::read_file(kData + "images/files/rgb8.png"), form = "application/x-www-form-urlencoded";
  for (const std::string& image : {photo_, png}) refused(classify(image, form), "image/jpeg or image/png, or JSON");
  refused(classify("--a\r\n", "Multipart/form-data; boundary=a"), "image/jpeg or image/png, or JSON");
  refused(classify(photo_, "image/jpeg", "?top=1&b=2"), "'top' is not read from the query; send JSON");
  refused(classify("", "image/jpeg"), "found no bytes");
  for (const char* text : {"", "\n", "data:image/png", "data:image/png;base64,"})
    refused(classify_base64(text), "found no bytes");
}

TEST(EngineThread, GoesOnWhereAListenerThrows) {
  Metrics metrics;
  const infer::TextSession text = open_text();
  EngineThread thread(text.session().shared_engine(), {}, 1, 8, metrics);
  std::atomic<int> calls = 0, failures = 0;
  thread.post([&] {
    const auto id = thread.scheduler().submit(text, {{97}}, {.max_tokens = 4});
    thread.listen(id, [&](auto& event) {
      ++calls;
      if (event.error.empty()) throw std::bad_alloc();
      ++failures;
      throw std::bad_alloc();
    });
  });
  for (const auto begin = std::chrono::steady_clock::now(); failures == 0 && seconds_since(begin) < 5;)
    std::this_thread::yield();
  EXPECT_EQ(failures, 1);
  EXPECT_EQ(calls, 2);
  std::atomic<bool> idle = false;
  thread.post([&] { idle = thread.scheduler().idle(); });
  for (const auto begin = std::chrono::steady_clock::now(); !idle && seconds_since(begin) < 5;)
    std::this_thread::yield();
  EXPECT_TRUE(idle);
}

TEST(LastAttention, StopsWhenAskedAndRefusesWhatIsTooMuch) {
  EXPECT_THROW(last_attention(open_text(), false, std::string(64, 'a'), [] { return 1; }), base::Stopped);
  int left = 6;  // inside the text
  EXPECT_THROW(last_attention(open_text(), false, std::string(200, 'a'), [&] { return --left == 0 ? 1 : 0; }),
               base::Stopped);
  const infer::TextSession large = open_text(1040, 4, 64);
  EXPECT_EQ(refusal([&] { last_attention(large, false, std::string(1040, 'a')); }),
            std::pair(400, std::string("attention_too_large")));
}

}  // namespace
}  // namespace mnemo::serve
