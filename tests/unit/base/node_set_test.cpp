#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "base/node.h"
#include "base/node_path.h"
#include "tests/support/expect_error.h"

namespace mnemo::base {
namespace {

using test::expect_error;

Node recipe() {
  return parse_toml(
      "attention = 'relative'\nsizes = [1, 2]\n[train]\nsteps = 10\n[[memory]]\ntype = 'a'\nmem_len = 4\n", "r.toml");
}

std::string after(const std::string& assignment) {
  Node root = recipe();
  set_value(root, assignment);
  return to_json(root, -1);
}

TEST(SetValue, ReplacesAndCreates) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"train.steps=20", R"("train":{"steps":20})"},
      {"train.lr = 1e-3 ", R"("train":{"steps":10,"lr":0.001})"},
      {"memory[0].mem_len=32", R"("memory":[{"type":"a","mem_len":32}])"},
      {"memory.0.mem_len=32", R"("memory":[{"type":"a","mem_len":32}])"},
      {"memory[1].type=b", R"({"type":"a","mem_len":4},{"type":"b"}])"},
      {"new.deep.key=true", R"("new":{"deep":{"key":true}})"},
      {"new[0][0]=1", R"("new":[[1]])"},
      {"new.\"a.b[0]\".c=1", R"("new":{"a.b[0]":{"c":1}})"},
      {"sizes[1]=5", R"("sizes":[1,5])"},
      {"sizes=[3, 4]", R"("sizes":[3,4])"},
      {"memory=[]", R"("memory":[])"},
      {"attention.clamp_len=5", R"("attention":{"type":"relative","clamp_len":5})"},
      {"name=plain text", R"("name":"plain text")"},
      {"name=", R"("name":"")"},
      {"name=\"3\"", R"("name":"3")"},
      {"name=a=b", R"("name":"a=b")"},
      {"name=3 # not a comment", R"("name":"3 # not a comment")"},
      {"name=1, 2", R"("name":"1, 2")"},
      {"name={a = 1, b.c = 2}", R"("name":{"a":1,"b":{"c":2}})"},
  };
  for (const auto& [assignment, part] : cases) {
    const std::string text = after(assignment);
    EXPECT_NE(text.find(part), std::string::npos) << assignment << " gave " << text;
  }
}

TEST(SetValue, ATableThatIsUnsetBeginsAnew) {
  Node root = recipe();
  set_value(root, "train=unset");
  set_value(root, "train.steps=3");
  EXPECT_EQ(root.at("train"), Node::table({{"steps", 3}})) << "no type is called unset";
}

TEST(SetValue, ANumberBeyond64BitsIsNoString) {
  expect_error<InputError>([] { after("train.steps=99999999999999999999"); },
                           {"--set 'train.steps=99999999999999999999'", "does not fit in 64 bits"});
}

TEST(SetValue, NamesItselfAsThePlace) {
  Node root = recipe();
  set_value(root, "train.sub.x=[1]");
  EXPECT_EQ(root.at("train").at("sub").at("x").items()[0].place().text(), "--set train.sub.x=[1]");
  EXPECT_EQ(root.at("train").at("sub").place().text(), "--set train.sub.x=[1]");
  EXPECT_EQ(root.at("train").at("steps").place().text(), "r.toml:4") << "what was not set keeps its place";
}

TEST(SetValue, RefusesBadAssignmentsAndLeavesTheTableAlone) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"train.steps", "expected key=value"},
      {"=3", "key before '=' is missing"},
      {"a..b=1", "expected a name at '.b'"},
      {"a.=1", "ends in a dot"},
      {".a=1", "expected a name"},
      {"a[=1", "']' is missing"},
      {"a.\"\"=1", "expected a name at '\"\"'"},
      {"a.\"b=1", "'\"' is missing after '\"b'"},
      {"a[x]=1", "'x' is not an index"},
      {"a[-1]=1", "'-1' is not an index"},
      {"a[]=1", "'' is not an index"},
      {"a[99999999999999999999]=1", "is not an index"},
      {"a b=1", "unexpected ' b'"},
      {"memory[2].x=1", "index 2 is out of range: 'memory' has 1 element"},
      {"memory[0]x=1", "unexpected 'x'"},
      {"sizes[18446744073709551615]=1", "out of range"},
      {"memory.first=1", "'memory' is a list: expected an index in place of 'first'"},
      {"train.steps.x=1", "'train.steps' is no table but integer 10 (r.toml:4)"},
      {"train[0]=1", "'train' is no list but table (r.toml:3)"},
      {"sizes=[1, 2", "--set 'sizes=[1, 2'"},
      {"name=\"a", "--set 'name=\"a'"},
      {"name={a=1", "--set"},
      {"name=\xFF", "byte 5 is not valid UTF-8"},
  };
  for (const auto& [assignment, part] : cases) {
    Node root = recipe();
    expect_error<InputError>([&] { set_value(root, assignment); }, {"--set", part});
    EXPECT_EQ(root, recipe()) << assignment;
  }
  std::string deep = "a";
  for (int i = 0; i < 100000; ++i) deep += ".a";
  Node root;
  expect_error<InputError>([&] { set_value(root, deep + "=1"); }, {"more than 64 parts"});
}

TEST(AssignedKey, IsTheSameInEverySpelling) {
  for (const char* assignment : {"memory[0].mem_len=4", " memory.0.mem_len =4", "memory.0.mem_len= [1, 2]"})
    EXPECT_EQ(assigned_key(assignment), "memory[0].mem_len") << assignment;
  EXPECT_EQ(assigned_key("init="), "init");
  EXPECT_EQ(assigned_key("sweep.\"data.fold\"=[0]"), "sweep.\"data.fold\"");
  expect_error<InputError>([] { assigned_key("steps"); }, {"--set 'steps'", "expected key=value"});
}

}  // namespace
}  // namespace mnemo::base
