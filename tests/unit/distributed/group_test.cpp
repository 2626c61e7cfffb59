#include "distributed/group.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include <cstdio>
#include <fstream>
#include <memory>
#include <mutex>
#include <thread>

#include "base/error.h"
#include "base/machine.h"
#include "distributed/reducer.h"
#include "distributed/shared_batches.h"
#include "tests/support/expect_error.h"
#include "tests/support/free_port.h"
#include "tests/support/thread_ranks.h"

namespace mnemo::distributed {
namespace {

class GroupTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!available()) GTEST_SKIP() << "built without Gloo's headers";
  }
};
using ReducerTest = GroupTest;

TEST_F(GroupTest, SumsAndGathers) {
  test::on_thread_ranks(3, [](const std::shared_ptr<Group>& group) {
    const auto rank = static_cast<double>(group->rank());
    at::Tensor numbers = at::full({5}, rank + 1, at::kDouble);
    group->sum(numbers);
    EXPECT_TRUE(at::equal(numbers, at::full({5}, 6, at::kDouble)));
    EXPECT_EQ(group->max(10 - group->rank()), 10);
    EXPECT_EQ(group->broadcast("from " + std::to_string(group->rank())), "from 0");
    // Tensors of different shapes and types, one of them empty.
    const at::Tensor own = group->rank() == 0   ? at::empty({0, 4}, at::kFloat)
                           : group->rank() == 1 ? at::arange(6).view({2, 3})
                                                : at::full({1}, true, at::kBool);
    const std::vector<at::Tensor> all = group->gather(own);
    EXPECT_EQ(all[0].sizes(), at::IntArrayRef({0, 4}));
    EXPECT_TRUE(at::equal(all[1], at::arange(6).view({2, 3})));
    EXPECT_TRUE(at::equal(all[2], at::full({1}, true, at::kBool)));
  });
}

TEST_F(GroupTest, BatchesOfTextsComeInOrder) {
  const auto result = [](int64_t batch) { return Texts{std::to_string(batch) + " of\nall", "", "1 2"}; };
  const auto all_of = [&](Group* group, int64_t count, int64_t broken) {
    std::vector<std::string> found;
    try {
      share_batches(
          group, count,
          [&](int64_t batch) {
            base::require(batch != broken, "batch {} is broken", batch);
            return batch % 4 == 3 ? Texts{} : result(batch);
          },
          [&](int64_t batch, const Texts& texts) {
            EXPECT_EQ(texts, batch % 4 == 3 ? Texts{} : result(batch));
            found.push_back(std::to_string(batch));
          });
    } catch (const base::InputError& error) {
      found.emplace_back(error.what());
    }
    return found;
  };
  const auto alone = all_of(nullptr, 7, -1), broken = all_of(nullptr, 7, 4);
  EXPECT_EQ(alone.size(), 7U);
  EXPECT_EQ(broken.back(), "batch 4 is broken");
  test::on_thread_ranks(3, [&](const std::shared_ptr<Group>& group) {
    EXPECT_EQ(all_of(group.get(), 7, -1), alone);
    EXPECT_EQ(all_of(group.get(), 7, 4), broken) << "on every rank, after those before it";
    EXPECT_TRUE(all_of(group.get(), 0, -1).empty());
  });
}

TEST_F(GroupTest, ADifferenceIsNamed) {
  std::mutex mutex;
  std::vector<std::string> messages;
  test::on_thread_ranks(3, [&](const std::shared_ptr<Group>& group) {
    group->require_same({{"recipe", "same"}}, "train");
    try {
      group->require_same({{"program", "a"}, {"recipe", group->rank() == 2 ? "x" : "y"}}, "train");
    } catch (const base::InputError& error) {
      const std::lock_guard lock(mutex);
      messages.emplace_back(error.what());
    }
  });
  ASSERT_EQ(messages.size(), 3U);  // on every rank
  for (const std::string& message : messages) {
    EXPECT_NE(message.find("train: rank 2 ("), std::string::npos) << message;
    EXPECT_NE(message.find("another recipe"), std::string::npos) << message;
    EXPECT_NE(message.find("expected y, found x"), std::string::npos) << message;
  }
}

/// The LibTorch that is loaded, not only the version of its headers.
TEST_F(GroupTest, ProgramEntriesNameTheLoadedLibrary) {
  const auto entries = program_entries();
  ASSERT_EQ(entries.size(), 2U);
  EXPECT_EQ(entries[0].second.size(), 64U);
  std::ifstream maps("/proc/self/maps");
  std::string file;
  for (std::string line; file.empty() && std::getline(maps, line);) {
    if (line.ends_with("/libtorch_cpu.so")) file = line.substr(line.find('/'));
  }
  const std::unique_ptr<FILE, int (*)(FILE*)> reader(popen(("readelf -n '" + file + "'").c_str(), "r"), pclose);
  std::string notes;
  for (int c = 0; (c = std::fgetc(reader.get())) != EOF;) notes += static_cast<char>(c);
  const std::string name = "Build ID: ";
  const size_t at = notes.find(name);
  if (at == std::string::npos) GTEST_SKIP() << "no readelf, or no build id in " << file;
  const std::string build = notes.substr(at + name.size(), notes.find('\n', at) - at - name.size());
  EXPECT_EQ(entries[1].second, fmt::format("{}, build {}", base::this_machine().libtorch, build));
}

/// A store of rank 0 listens where it is asked to, not on every interface of the machine.
TEST_F(GroupTest, TheStoreListensAtItsAddress) {
  const std::string port = fmt::format(":{:04X} ", test::free_port());
  const auto place = [&](int64_t rank) {
    Place made;
    made.rank = made.local_rank = rank;
    made.size = made.local_size = 2;
    made.port = static_cast<uint16_t>(std::stoi(port.substr(1), nullptr, 16));
    made.job = "listens";
    return made;
  };
  const auto join = [&](int64_t rank) {
    return Group::join(place(rank), {.timeout = std::chrono::seconds(60), .watches = false});
  };
  std::shared_ptr<Group> second;
  std::thread other([&] { second = join(1); });
  const std::shared_ptr<Group> first = join(0);
  other.join();
  std::vector<std::string> addresses;
  for (const char* file : {"/proc/self/net/tcp", "/proc/self/net/tcp6"}) {
    std::ifstream table(file);
    for (std::string line; std::getline(table, line);) {
      const size_t at = line.find(port), listens = line.find(" 0A ");
      if (at != std::string::npos && listens != std::string::npos && at < 50)
        addresses.push_back(line.substr(line.find(": ") + 2, at - line.find(": ") - 2));
    }
  }
  EXPECT_EQ(addresses, std::vector<std::string>{"0100007F"});  // 127.0.0.1
  Place elsewhere = place(0);
  elsewhere.address = "192.0.2.7";  // of documents (RFC 5737), no machine's
  test::expect_error<base::InputError>([&] { Group::join(elsewhere); }, {"rank 0 (", "cannot listen at 192.0.2.7:"});
}

/// Gradients of several parameters over two backward passes are summed once, undefined where no rank has one.
TEST_F(ReducerTest, SumsOverRanksAndPasses) {
  for (const bool bf16 : {false, true}) {
    test::on_thread_ranks(3, [&](const std::shared_ptr<Group>& group) {
      const auto rank = static_cast<double>(group->rank());
      std::vector<at::Tensor> parameters;
      for (int64_t i = 0; i < 5; ++i) parameters.push_back(at::ones({4}, at::kDouble).requires_grad_());
      Reducer reducer(*group, parameters, {.first_bucket_bytes = 40, .bucket_bytes = 64, .bf16 = bf16});
      for (int step = 0; step < 3; ++step) {
        for (at::Tensor& parameter : parameters) parameter.mutable_grad() = at::Tensor();
        // Parameter 0: first pass only. 1 and 2: both. 3: the last rank alone. 4: none.
        (parameters[0].sum() * (rank + 1) + parameters[1].sum() + parameters[2].sum()).backward();
        at::Tensor last = parameters[1].sum() * 2 + parameters[2].sum() * rank;
        if (group->rank() == 2) last = last + parameters[3].sum();
        reducer.arm();
        last.backward();
        at::Tensor sums = at::full({2}, rank, at::kDouble);
        reducer.finish(sums);
        EXPECT_TRUE(at::equal(sums, at::full({2}, 3, at::kDouble)));
        const std::vector<double> expected = {6, 9, 6, 1};
        for (size_t i = 0; i < expected.size(); ++i)
          EXPECT_TRUE(at::equal(parameters[i].grad(), at::full({4}, expected[i], at::kDouble))) << i << " " << step;
        EXPECT_FALSE(parameters[4].grad().defined());
      }
    });
  }
}

/// After the first step the buckets follow the backward pass; the first holds what is finished first.
TEST_F(ReducerTest, BucketsFollowTheBackwardPass) {
  test::on_thread_ranks(2, [](const std::shared_ptr<Group>& group) {
    std::vector<at::Tensor> parameters;
    for (int64_t i = 0; i < 4; ++i) parameters.push_back(at::full({2}, 0.5, at::kDouble).requires_grad_());
    Reducer reducer(*group, parameters, {.first_bucket_bytes = 16, .bucket_bytes = 32});
    EXPECT_EQ(reducer.buckets().front(), std::vector<size_t>{3});
    at::Tensor h = parameters[1];
    for (const size_t i : {3, 0, 2}) h = h * parameters[i];  // 2 is finished first
    reducer.arm();
    h.sum().backward();
    at::Tensor sums = at::zeros({1}, at::kDouble);
    reducer.finish(sums);
    EXPECT_EQ(reducer.buckets().front(), std::vector<size_t>{2});
    size_t parameters_in_buckets = 0;
    for (const auto& bucket : reducer.buckets()) parameters_in_buckets += bucket.size();
    EXPECT_EQ(parameters_in_buckets, 4U);
    // A run that goes on takes the order over, and its first pass changes nothing.
    Reducer next(*group, parameters, {.first_bucket_bytes = 16, .bucket_bytes = 32});
    EXPECT_EQ(next.order().numel(), 0);
    next.take_order(reducer.order());
    EXPECT_EQ(next.buckets(), reducer.buckets());
    next.arm();
    (parameters[3] * parameters[0]).sum().backward();
    next.finish(sums);
    EXPECT_EQ(next.buckets(), reducer.buckets());
    test::expect_error<base::InputError>(
        [&] {
          next.take_order(at::tensor({0, 1, 2, 2}, at::kLong));
        },
        {"expected each of 4 parameters once"});
  });
}

}  // namespace
}  // namespace mnemo::distributed
