#include "distributed/launch.h"

#include <gtest/gtest.h>

#include <map>

#include "base/error.h"
#include "tests/support/expect_error.h"

namespace mnemo::distributed {
namespace {

std::optional<Place> place(const std::map<std::string, std::string>& variables) {
  return place_from([&](const std::string& name) {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional<std::string>(found->second);
  });
}

TEST(Launch, NoLauncherIsNoPlace) {
  EXPECT_FALSE(place({}));
  EXPECT_FALSE(place({{"RANK", "0"}}));
}

TEST(Launch, Torchrun) {
  const auto found = place({{"RANK", "5"},
                            {"WORLD_SIZE", "8"},
                            {"LOCAL_RANK", "1"},
                            {"LOCAL_WORLD_SIZE", "4"},
                            {"MASTER_ADDR", "head"},
                            {"MASTER_PORT", "1234"},
                            {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                            {"TORCHELASTIC_RUN_ID", "r"},
                            {"TORCHELASTIC_RESTART_COUNT", "2"}});
  ASSERT_TRUE(found);
  EXPECT_EQ(found->launcher, Launcher::torchrun);
  EXPECT_EQ(found->rank, 5);
  EXPECT_EQ(found->size, 8);
  EXPECT_EQ(found->local_rank, 1);
  EXPECT_EQ(found->local_size, 4);
  EXPECT_EQ(found->restarts, 2);
  EXPECT_EQ(found->address, "head");
  EXPECT_EQ(found->port, 1234);
  EXPECT_TRUE(found->hosted);
  EXPECT_EQ(found->job, "r/2");
  EXPECT_FALSE(found->one_machine());
}

TEST(Launch, OpenMpi) {
  std::map<std::string, std::string> variables = {{"OMPI_COMM_WORLD_RANK", "1"},
                                                  {"OMPI_COMM_WORLD_SIZE", "2"},
                                                  {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                                                  {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}};
  const auto found = place(variables);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->launcher, Launcher::openmpi);
  EXPECT_EQ(found->rank, 1);
  EXPECT_EQ(found->address, "127.0.0.1");
  EXPECT_EQ(found->port, 29500);
  EXPECT_FALSE(found->hosted);
  variables["OMPI_COMM_WORLD_LOCAL_SIZE"] = "1";
  variables["OMPI_COMM_WORLD_LOCAL_RANK"] = "0";
  test::expect_error<base::InputError>([&] { place(variables); }, {"MASTER_ADDR", "several machines"});
  variables["MASTER_ADDR"] = "n1";
  variables["MASTER_PORT"] = "77";
  EXPECT_EQ(place(variables)->address, "n1");
  EXPECT_EQ(place(variables)->port, 77);
}

TEST(Launch, Slurm) {
  std::map<std::string, std::string> variables = {{"SLURM_PROCID", "3"},
                                                  {"SLURM_LOCALID", "1"},
                                                  {"SLURM_STEP_NUM_TASKS", "4"},
                                                  {"SLURM_STEP_NUM_NODES", "2"},
                                                  {"SLURM_STEP_TASKS_PER_NODE", "2(x2)"},
                                                  {"SLURM_STEP_NODELIST", "cn[07-08]"},
                                                  {"SLURM_JOB_ID", "30001"},
                                                  {"SLURM_STEP_ID", "2"}};
  const auto found = place(variables);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->launcher, Launcher::slurm);
  EXPECT_EQ(found->rank, 3);
  EXPECT_EQ(found->size, 4);
  EXPECT_EQ(found->local_rank, 1);
  EXPECT_EQ(found->local_size, 2);
  EXPECT_EQ(found->address, "cn07");
  EXPECT_EQ(found->port, 15001);
  EXPECT_EQ(found->job, "30001.2");
  // A batch script has SLURM_PROCID and is no rank; a step of one task has nobody to meet.
  variables.erase("SLURM_STEP_NUM_TASKS");
  EXPECT_FALSE(place(variables));
  EXPECT_FALSE(place({{"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "1"}, {"SLURM_LOCALID", "0"}}));
}

TEST(Launch, Pmi) {
  const auto found = place({{"PMI_RANK", "1"}, {"PMI_SIZE", "3"}, {"MASTER_PORT", "5000"}});
  ASSERT_TRUE(found);
  EXPECT_EQ(found->launcher, Launcher::pmi);
  EXPECT_EQ(found->local_rank, 1);
  EXPECT_EQ(found->port, 5000);
}

TEST(Launch, FirstMachineOfSlurmsLists) {
  EXPECT_EQ(first_machine("a"), "a");
  EXPECT_EQ(first_machine("a,b"), "a");
  EXPECT_EQ(first_machine("n[003-010,12],x"), "n003");
  EXPECT_EQ(first_machine("n[7]-ib"), "n7-ib");
  EXPECT_EQ(first_machine("n[7,9]"), "n7");
  EXPECT_EQ(first_machine("n["), "n");
}

/// One rank meets nobody.
TEST(Launch, ASingleRankNeedsNoAddress) {
  const auto alone = place({{"RANK", "0"}, {"WORLD_SIZE", "1"}});
  ASSERT_TRUE(alone);
  EXPECT_EQ(alone->size, 1);
}

TEST(Launch, ErrorsNameTheVariable) {
  const std::map<std::string, std::string> good = {
      {"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", "1"}};
  ASSERT_TRUE(place(good));
  auto elsewhere = good;
  elsewhere["MASTER_ADDR"] = "h";
  test::expect_error<base::InputError>([&] { place(elsewhere); }, {"LOCAL_WORLD_SIZE is not set", "meet at h"});
  elsewhere["LOCAL_WORLD_SIZE"] = "1";
  elsewhere["LOCAL_RANK"] = "0";
  EXPECT_FALSE(place(elsewhere).value().one_machine());
  for (const auto& [name, value] : std::map<std::string, std::string>{{"RANK", "2"},
                                                                      {"WORLD_SIZE", "two"},
                                                                      {"MASTER_PORT", "70000"},
                                                                      {"LOCAL_RANK", "-1"},
                                                                      {"LOCAL_WORLD_SIZE", "3"}}) {
    auto bad = good;
    bad[name] = value;
    test::expect_error<base::InputError>([&] { place(bad); }, {name, value});
  }
  auto missing = good;
  missing.erase("MASTER_PORT");
  test::expect_error<base::InputError>([&] { place(missing); }, {"MASTER_PORT is not set"});
}

}  // namespace
}  // namespace mnemo::distributed
