#include "data/text/token_store.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "base/error.h"

namespace mnemo::data {
namespace {

TEST(TokenStore, HoldsEveryIdOfItsVocabularyInAsFewBytesAsItNeeds) {
  for (const auto& [size, width] : {std::pair<int64_t, int64_t>{256, 1}, {257, 2}, {65536, 2}, {65537, 4}}) {
    TokenStore store(size);
    const int64_t count = 200000;
    std::vector<int32_t> ids;
    for (int64_t i = 0; i < count; ++i) ids.push_back(static_cast<int32_t>((i * 7919 + size - 1) % size));
    store.append(std::span(ids).first(100));
    store.append(std::span(ids).subspan(100));
    const at::Tensor back = store.slice(0, count);
    for (int64_t i = 0; i < count; ++i) ASSERT_EQ(back.const_data_ptr<int64_t>()[i], ids[static_cast<size_t>(i)]);
    EXPECT_GE(store.num_bytes(), count * width);
    EXPECT_LE(store.num_bytes(), (count + 65536) * width + 1000);
    EXPECT_THROW(store.append(std::vector<int32_t>{static_cast<int32_t>(size)}), base::InternalError);
    EXPECT_THROW(store.append(std::vector<int32_t>{-1}), base::InternalError);
  }
}

RC_GTEST_PROP(TokenStore, ReadsAnyRangeAcrossBlocks, ()) {
  static const auto make = [] {
    TokenStore store(1000);
    std::vector<int32_t> ids;
    for (int32_t i = 0; i < 200000; ++i) ids.push_back(i % 997);
    store.append(ids);
    return store;
  };
  static const TokenStore store = make();
  const auto begin = *rc::gen::inRange<int64_t>(0, 200001);
  const auto count = *rc::gen::inRange<int64_t>(0, 200001 - begin);
  const at::Tensor slice = store.slice(begin, count);
  RC_ASSERT(slice.numel() == count);
  for (int64_t i = 0; i < count; ++i) RC_ASSERT(slice.const_data_ptr<int64_t>()[i] == (begin + i) % 997);
}

TEST(TokenStore, Documents) {
  TokenStore store(10, true);
  EXPECT_EQ(store.num_documents(), 0);
  store.start_document();
  store.append(std::vector<int32_t>{1, 2});
  store.start_document();
  store.start_document();
  store.append(std::vector<int32_t>{3});
  EXPECT_EQ(store.num_documents(), 2);
  EXPECT_EQ(store.document_begin(1), 2);
  EXPECT_EQ(store.document_end(0), 2);
  EXPECT_EQ(store.document_end(1), 3);
  TokenStore plain(10);
  EXPECT_THROW(plain.start_document(), base::InternalError);
  EXPECT_THROW(store.slice(2, 2), base::InternalError);
}

TEST(TokenStore, FingerprintSeesTokensOrderAndDocuments) {
  const auto make = [](std::vector<int32_t> a, bool cut, std::vector<int32_t> b) {
    TokenStore store(10, true);
    store.append(a);
    if (cut) store.start_document();
    store.append(b);
    return store.fingerprint();
  };
  const uint64_t one = make({1, 2}, true, {3});
  EXPECT_EQ(one, make({1, 2}, true, {3}));
  EXPECT_NE(one, make({2, 1}, true, {3}));
  EXPECT_NE(one, make({1, 2}, false, {3}));
  EXPECT_NE(one, make({1}, true, {2, 3}));
  EXPECT_NE(one, make({1, 2}, true, {4}));
}

}  // namespace
}  // namespace mnemo::data
