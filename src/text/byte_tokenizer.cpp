#include "text/tokenizer_types.h"

namespace mnemo::text {
namespace {

class ByteEncoder final : public Encoder {
 public:
  void put(std::string_view chunk, std::vector<int32_t>& out) override {
    out.reserve(out.size() + chunk.size());
    for (const char c : chunk) out.push_back(static_cast<unsigned char>(c));
  }
  void finish(std::vector<int32_t>&) override {}
};

class ByteTokenizer final : public Tokenizer {
 public:
  std::string type() const override { return "bytes"; }
  int64_t size() const override { return 256; }
  int64_t unknown_id() const override { return -1; }
  std::unique_ptr<Encoder> encoder(std::string, int64_t) const override { return std::make_unique<ByteEncoder>(); }
  void append(std::string& out, int64_t id) const override {
    require_id(id);
    out.push_back(static_cast<char>(id));
  }
  Files save() const override { return {{std::string(kFile), write_vocabulary({.type = "bytes"})}}; }
};

}  // namespace

std::shared_ptr<const Tokenizer> make_byte_tokenizer() { return std::make_shared<ByteTokenizer>(); }

}  // namespace mnemo::text
